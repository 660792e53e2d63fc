package kuberuntime

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// sandboxConfig is the argument of RunPodSandbox, and again of each CreateContainer in that sandbox.
func (m *Manager) sandboxConfig(p *v1.Pod, attempt uint32) *runtimeapi.PodSandboxConfig {
	labels := maps.Clone(p.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, m.identity(p))
	security := podSecurityOf(p)
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name: p.Name, Namespace: p.Namespace, Uid: string(p.UID), Attempt: attempt,
		},
		Labels: labels, Annotations: p.Annotations, LogDirectory: container.PodLogs(m.LogDir, p.Namespace, p.Name, p.UID),
		DnsConfig: m.dns(p),
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: m.CgroupParent(p), Sysctls: map[string]string{},
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: namespaces(p), Privileged: anyPrivileged(p),
				Seccomp:   &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
				RunAsUser: int64Value(security.RunAsUser), RunAsGroup: int64Value(security.RunAsGroup),
				SupplementalGroups: supplementalGroups(security),
			},
		},
	}
	if !p.Spec.HostNetwork {
		config.Hostname = hostname(p)
	}
	for _, s := range security.Sysctls {
		config.Linux.Sysctls[s.Name] = s.Value
	}
	for _, c := range p.Spec.Containers {
		for _, port := range c.Ports {
			config.PortMappings = append(config.PortMappings, &runtimeapi.PortMapping{
				Protocol:      runtimeapi.Protocol(runtimeapi.Protocol_value[string(port.Protocol)]), // TCP if unknown
				ContainerPort: port.ContainerPort, HostPort: port.HostPort, HostIp: port.HostIP,
			})
		}
	}
	return config
}

// maxHostname is one byte less than Linux allows.
const maxHostname = 63

func hostname(p *v1.Pod) string {
	host := cmp.Or(p.Spec.Hostname, p.Name)
	if len(host) > maxHostname {
		host = strings.TrimRight(host[:maxHostname], "-.")
	}
	return host
}

// runtimeHandler is the name of the pod's RuntimeClass, which by convention is that of its handler.
func runtimeHandler(p *v1.Pod) string {
	if p.Spec.RuntimeClassName == nil {
		return ""
	}
	return *p.Spec.RuntimeClassName
}

// dns is the pod's resolv.conf. nil leaves it to the runtime, which copies the node's.
func (m *Manager) dns(p *v1.Pod) *runtimeapi.DNSConfig {
	var dns *runtimeapi.DNSConfig
	switch policy := p.Spec.DNSPolicy; {
	case policy == v1.DNSNone:
		dns = &runtimeapi.DNSConfig{}
	case policy == v1.DNSDefault, policy == v1.DNSClusterFirst && p.Spec.HostNetwork:
		return nil
	case len(m.ClusterDNS) == 0:
		m.Recorder.Eventf(p, v1.EventTypeWarning, "MissingClusterDNS",
			"pod: %q. kubelet does not have ClusterDNS IP configured and cannot create Pod using %q policy. "+
				"Falling back to %q policy.",
			pod.Format(p), v1.DNSClusterFirst, v1.DNSDefault)
		return nil
	default:
		dns = &runtimeapi.DNSConfig{Servers: m.ClusterDNS, Options: []string{"ndots:5"}}
		if domain := m.ClusterDomain; domain != "" {
			dns.Searches = []string{p.Namespace + ".svc." + domain, "svc." + domain, domain}
		}
	}
	if c := p.Spec.DNSConfig; c != nil {
		dns.Servers = append(dns.Servers[:len(dns.Servers):len(dns.Servers)], c.Nameservers...)
		dns.Searches = append(dns.Searches, c.Searches...)
		for _, o := range c.Options {
			text := o.Name
			if o.Value != nil && *o.Value != "" {
				text += ":" + *o.Value
			}
			dns.Options = append(dns.Options, text)
		}
	}
	return dns
}

// networkMode is the network namespace of a pod.
func networkMode(p *v1.Pod) runtimeapi.NamespaceMode {
	if p.Spec.HostNetwork {
		return runtimeapi.NamespaceMode_NODE
	}
	return runtimeapi.NamespaceMode_POD
}

// namespaces are those of a pod's sandbox and containers.
func namespaces(p *v1.Pod) *runtimeapi.NamespaceOption {
	o := &runtimeapi.NamespaceOption{
		Network: networkMode(p), Ipc: runtimeapi.NamespaceMode_POD, Pid: runtimeapi.NamespaceMode_CONTAINER,
	}
	if p.Spec.HostIPC {
		o.Ipc = runtimeapi.NamespaceMode_NODE
	}
	switch {
	case p.Spec.HostPID:
		o.Pid = runtimeapi.NamespaceMode_NODE
	case isTrue(p.Spec.ShareProcessNamespace):
		o.Pid = runtimeapi.NamespaceMode_POD
	}
	return o
}

// identity are the labels that sandboxes and containers have in common.
func (m *Manager) identity(p *v1.Pod) map[string]string {
	return map[string]string{
		container.PodNameLabel:      p.Name,
		container.PodNamespaceLabel: p.Namespace,
		container.PodUIDLabel:       string(p.UID),
		container.OwnerLabel:        m.NodeName,
	}
}

func (m *Manager) containerLabels(p *v1.Pod, c *v1.Container) map[string]string {
	labels := m.identity(p)
	labels[container.ContainerNameLabel] = c.Name
	return labels
}

// containerAnnotations hold what is needed to judge and to kill a container whose pod is unknown.
func containerAnnotations(p *v1.Pod, c *v1.Container, restarts int) map[string]string {
	a := map[string]string{
		container.HashAnnotation:                     strconv.FormatUint(ContainerHash(c), 16),
		container.RestartCountAnnotation:             strconv.Itoa(restarts),
		container.TerminationMessagePathAnnotation:   c.TerminationMessagePath,
		container.TerminationMessagePolicyAnnotation: string(c.TerminationMessagePolicy),
	}
	put := func(key string, value any) {
		if raw, err := json.Marshal(value); err == nil { // types of the API can be marshalled
			a[key] = string(raw)
		}
	}
	if s := p.DeletionGracePeriodSeconds; s != nil {
		put(container.DeletionGracePeriodAnnotation, *s)
	}
	if s := p.Spec.TerminationGracePeriodSeconds; s != nil {
		put(container.TerminationGracePeriodAnnotation, *s)
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		put(container.PreStopHandlerAnnotation, c.Lifecycle.PreStop)
	}
	if len(c.Ports) > 0 {
		put(container.PortsAnnotation, c.Ports)
	}
	return a
}

// ContainerHash is the hash by which a changed container is recognised: since Kubernetes 1.32 of its name and image
// only (pkg/kubelet/container/helpers.go). It is FNV-1a over a printed form of the JSON's bytes, not over the JSON.
func ContainerHash(c *v1.Container) uint64 {
	spec, err := json.Marshal(map[string]string{"image": c.Image, "name": c.Name})
	if err != nil {
		return 0 // two strings can always be marshalled
	}
	h := fnv.New32a()
	fmt.Fprintf(h, "([]uint8)%v", spec)
	return uint64(h.Sum32())
}

func podSecurityOf(p *v1.Pod) *v1.PodSecurityContext {
	return cmp.Or(p.Spec.SecurityContext, &v1.PodSecurityContext{})
}

func isTrue(b *bool) bool { return b != nil && *b }

func int64Value(n *int64) *runtimeapi.Int64Value {
	if n == nil {
		return nil
	}
	return &runtimeapi.Int64Value{Value: *n}
}

func anyPrivileged(p *v1.Pod) bool {
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for _, c := range list {
			if c.SecurityContext != nil && isTrue(c.SecurityContext.Privileged) {
				return true
			}
		}
	}
	return false
}

func supplementalGroups(p *v1.PodSecurityContext) []int64 {
	if p.FSGroup == nil {
		return p.SupplementalGroups
	}
	return append([]int64{*p.FSGroup}, p.SupplementalGroups...)
}

// containerSecurity is the security context of a container. image is nil or as the runtime has it: its user counts if
// the pod names none.
func (m *Manager) containerSecurity(
	p *v1.Pod, c *v1.Container, image *runtimeapi.Image,
) (*runtimeapi.LinuxContainerSecurityContext, error) {
	own, pod := cmp.Or(c.SecurityContext, &v1.SecurityContext{}), podSecurityOf(p)
	s := &runtimeapi.LinuxContainerSecurityContext{
		Privileged: isTrue(own.Privileged), ReadonlyRootfs: isTrue(own.ReadOnlyRootFilesystem),
		NamespaceOptions:   namespaces(p),
		RunAsUser:          int64Value(cmp.Or(own.RunAsUser, pod.RunAsUser)),
		RunAsGroup:         int64Value(cmp.Or(own.RunAsGroup, pod.RunAsGroup)),
		SupplementalGroups: supplementalGroups(pod), MaskedPaths: maskedPaths(), ReadonlyPaths: readonlyPaths(),
		NoNewPrivs: own.AllowPrivilegeEscalation != nil && !*own.AllowPrivilegeEscalation,
		Seccomp:    &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined},
	}
	refused := "" // by runAsNonRoot
	switch {
	case s.RunAsUser != nil:
		if s.RunAsUser.Value == 0 {
			refused = "container's runAsUser breaks non-root policy"
		}
	case image.GetUid() == nil && image.GetUsername() != "":
		s.RunAsUsername = image.GetUsername()
		refused = "container has runAsNonRoot and image has non-numeric user (" + s.RunAsUsername +
			"), cannot verify user is non-root"
	default:
		s.RunAsUser = &runtimeapi.Int64Value{Value: image.GetUid().GetValue()}
		if s.RunAsUser.Value == 0 {
			refused = "container has runAsNonRoot and image will run as root"
		}
	}
	if refused != "" && isTrue(cmp.Or(own.RunAsNonRoot, pod.RunAsNonRoot)) {
		return nil, fmt.Errorf("%s (pod: %q, container: %s)", refused, describe(p), c.Name)
	}
	if own.Capabilities != nil {
		s.Capabilities = &runtimeapi.Capability{
			AddCapabilities: texts(own.Capabilities.Add), DropCapabilities: texts(own.Capabilities.Drop),
		}
	}
	switch profile := cmp.Or(own.SeccompProfile, pod.SeccompProfile); {
	case profile == nil && m.SeccompDefault, profile != nil && profile.Type == v1.SeccompProfileTypeRuntimeDefault:
		s.Seccomp.ProfileType = runtimeapi.SecurityProfile_RuntimeDefault
	case profile != nil && profile.Type == v1.SeccompProfileTypeLocalhost:
		return nil, errors.New("seccomp profiles of the node are not supported")
	}
	return s, nil
}

func texts(capabilities []v1.Capability) (out []string) {
	for _, c := range capabilities {
		out = append(out, string(c))
	}
	return out
}

// maskedPaths and readonlyPaths are the parts of /proc and /sys that a container does not see, or may not write
// (pkg/securitycontext/util.go upstream).
func maskedPaths() []string {
	return []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
		"/sys/devices/virtual/powercap",
	}
}

func readonlyPaths() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}

// Bounds of the cgroup's values (pkg/kubelet/cm/helpers_linux.go upstream).
const (
	sharesPerCPU = 1024
	leastShares  = 2
	mostShares   = 262144
	quotaPeriod  = 100_000 // microseconds
	leastQuota   = 1000    // microseconds
	milliPerCPU  = 1000
)

// linuxResources are a container's cgroup values.
func (m *Manager) linuxResources(p *v1.Pod, c *v1.Container) *runtimeapi.LinuxContainerResources {
	cpu, limit := c.Resources.Requests.Cpu().MilliValue(), c.Resources.Limits.Cpu().MilliValue()
	if _, ok := c.Resources.Requests[v1.ResourceCPU]; !ok {
		cpu = limit
	}
	r := &runtimeapi.LinuxContainerResources{
		CpuShares: min(max(cpu*sharesPerCPU/milliPerCPU, leastShares), mostShares), CpuPeriod: quotaPeriod,
		MemoryLimitInBytes: c.Resources.Limits.Memory().Value(), OomScoreAdj: oomScore(p, c, m.MemoryCapacity),
	}
	if limit > 0 { // a quota of 0 is unlimited
		r.CpuQuota = max(limit*quotaPeriod/milliPerCPU, leastQuota)
	}
	if m.CgroupV2 {
		r.Unified = map[string]string{"memory.oom.group": "1"}
	}
	return r
}

// OOM scores (pkg/kubelet/qos/policy.go upstream).
const (
	guaranteedOOMScore = -997
	bestEffortOOMScore = 1000
)

// oomScore is the kernel's preference for killing a container when memory runs out. It is higher for burstable
// containers that request a smaller part of the node's memory. capacity is in bytes.
func oomScore(p *v1.Pod, c *v1.Container, capacity int64) int64 {
	class := pod.QOSClass(p)
	switch {
	case class == v1.PodQOSGuaranteed, pod.IsCritical(p) && p.Spec.PriorityClassName == "system-node-critical":
		return guaranteedOOMScore
	case class == v1.PodQOSBestEffort, capacity <= 0:
		return bestEffortOOMScore
	}
	score := bestEffortOOMScore - bestEffortOOMScore*c.Resources.Requests.Memory().Value()/capacity
	return min(max(score, bestEffortOOMScore+guaranteedOOMScore), bestEffortOOMScore-1)
}

// describe formats a pod as the kubelet's errors and back-off messages do: name_namespace(uid).
func describe(p *v1.Pod) string { return fmt.Sprintf("%s_%s(%s)", p.Name, p.Namespace, p.UID) }
