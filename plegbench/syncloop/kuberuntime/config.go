package kuberuntime

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
	"github.com/kdiag/kdiag/plegbench/syncloop/volumemanager/source"
)

// sandboxConfig is the argument of RunPodSandbox, and again of each CreateContainer in that sandbox.
func (m *Manager) sandboxConfig(p *v1.Pod, attempt uint32) *runtimeapi.PodSandboxConfig {
	all := slices.Concat(p.Spec.InitContainers, p.Spec.Containers)
	labels := map[string]string{}
	maps.Copy(labels, p.Labels)
	maps.Copy(labels, m.identity(p))
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name: p.Name, Namespace: p.Namespace, Uid: string(p.UID), Attempt: attempt,
		},
		Labels: labels, Annotations: p.Annotations, LogDirectory: m.podLogs(p.Namespace, p.Name, p.UID),
		DnsConfig: m.dns(p),
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: m.CgroupParent(p),
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: namespaces(p),
				Privileged:       slices.ContainsFunc(all, privileged),
				Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
			},
		},
	}
	if !p.Spec.HostNetwork {
		config.Hostname = hostname(p)
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

// dns is the pod's resolv.conf. nil leaves it to the runtime, which copies the node's.
func (m *Manager) dns(p *v1.Pod) *runtimeapi.DNSConfig {
	policy := p.Spec.DNSPolicy
	if policy == v1.DNSDefault || policy == v1.DNSClusterFirst && p.Spec.HostNetwork || len(m.ClusterDNS) == 0 {
		return nil
	}
	dns := &runtimeapi.DNSConfig{Servers: m.ClusterDNS, Options: []string{"ndots:5"}}
	if domain := m.ClusterDomain; domain != "" {
		dns.Searches = []string{p.Namespace + ".svc." + domain, "svc." + domain, domain}
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

// namespaces returns the namespaces of a pod's sandbox and containers.
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
	case ptr.Deref(p.Spec.ShareProcessNamespace, false):
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

// containerAnnotations are the annotations by which a later sync judges a container.
func containerAnnotations(c *v1.Container, restarts int) map[string]string {
	return map[string]string{
		container.HashAnnotation:                   strconv.FormatUint(ContainerHash(c), 16),
		container.RestartCountAnnotation:           strconv.Itoa(restarts),
		container.TerminationMessagePathAnnotation: c.TerminationMessagePath,
	}
}

// ContainerHash is the hash by which a changed container is recognised: since Kubernetes 1.32 of its name and image
// only (pkg/kubelet/container/helpers.go). It is FNV-1a over a printed form of the JSON's bytes, not over the JSON.
func ContainerHash(c *v1.Container) uint64 {
	spec, _ := json.Marshal(map[string]string{"image": c.Image, "name": c.Name}) // which never fails
	h := fnv.New32a()
	fmt.Fprintf(h, "([]uint8)%v", spec)
	return uint64(h.Sum32())
}

func int64Value(n *int64) *runtimeapi.Int64Value {
	if n == nil {
		return nil
	}
	return &runtimeapi.Int64Value{Value: *n}
}

func privileged(c v1.Container) bool {
	return c.SecurityContext != nil && ptr.Deref(c.SecurityContext.Privileged, false)
}

func capabilities(c *v1.Capabilities) *runtimeapi.Capability {
	if c == nil {
		return nil
	}
	names := func(list []v1.Capability) (out []string) {
		for _, name := range list {
			out = append(out, string(name))
		}
		return out
	}
	return &runtimeapi.Capability{AddCapabilities: names(c.Add), DropCapabilities: names(c.Drop)}
}

// propagation is how mounts propagate that appear below a mount later.
var propagation = map[v1.MountPropagationMode]runtimeapi.MountPropagation{
	v1.MountPropagationHostToContainer: runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER,
	v1.MountPropagationBidirectional:   runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL,
}

// containerSecurity is the security context of a container. The runtime takes the image's user if the pod names none.
func containerSecurity(p *v1.Pod, c *v1.Container) *runtimeapi.LinuxContainerSecurityContext {
	own := cmp.Or(c.SecurityContext, &v1.SecurityContext{})
	pod := cmp.Or(p.Spec.SecurityContext, &v1.PodSecurityContext{})
	groups := pod.SupplementalGroups
	if pod.FSGroup != nil {
		groups = append([]int64{*pod.FSGroup}, groups...)
	}
	return &runtimeapi.LinuxContainerSecurityContext{
		Privileged: privileged(*c), ReadonlyRootfs: ptr.Deref(own.ReadOnlyRootFilesystem, false),
		Capabilities:       capabilities(own.Capabilities),
		NamespaceOptions:   namespaces(p),
		RunAsUser:          int64Value(cmp.Or(own.RunAsUser, pod.RunAsUser)),
		RunAsGroup:         int64Value(cmp.Or(own.RunAsGroup, pod.RunAsGroup)),
		SupplementalGroups: groups,
		NoNewPrivs:         !ptr.Deref(own.AllowPrivilegeEscalation, true),
		// The parts of /proc and /sys that a container must not see or write (pkg/securitycontext/util.go upstream).
		MaskedPaths: []string{
			"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
			"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
			"/sys/devices/virtual/powercap",
		},
		ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
	}
}

// verifyNonRoot refuses a container that must not run as root and would (pkg/kubelet/kuberuntime/security_context.go
// upstream). The user is the pod's, or else the image's.
func (s *podSync) verifyNonRoot(ctx context.Context, c *v1.Container, image string) error {
	own := cmp.Or(c.SecurityContext, &v1.SecurityContext{})
	pod := cmp.Or(s.pod.Spec.SecurityContext, &v1.PodSecurityContext{})
	if !ptr.Deref(cmp.Or(own.RunAsNonRoot, pod.RunAsNonRoot), false) {
		return nil
	}
	where := fmt.Sprintf("(pod: %q, container: %s)", describe(s.pod), c.Name)
	if user := cmp.Or(own.RunAsUser, pod.RunAsUser); user != nil {
		if *user == 0 {
			return fmt.Errorf("container's runAsUser breaks non-root policy %s", where)
		}
		return nil
	}
	found, err := s.CRI.ImageStatus(ctx, image)
	switch {
	case err != nil:
		return err
	case found.GetUid() == nil && found.GetUsername() != "":
		return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), "+
			"cannot verify user is non-root %s", found.GetUsername(), where)
	case found.GetUid().GetValue() == 0:
		return fmt.Errorf("container has runAsNonRoot and image will run as root %s", where)
	}
	return nil
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

// environment is a container's environment: envFrom, overridden by env, whose values may refer to earlier variables as
// $(NAME).
func (s *podSync) environment(ctx context.Context, c *v1.Container) (map[string]string, error) {
	env := map[string]string{}
	for _, from := range c.EnvFrom {
		read := source.Secret
		if from.SecretRef == nil {
			read = source.ConfigMap
		}
		ref := cmp.Or(from.SecretRef, (*v1.SecretEnvSource)(from.ConfigMapRef), &v1.SecretEnvSource{})
		data, err := read(ctx, s.Objects, s.pod.Namespace, ref.Name, ref.Optional)
		if err != nil {
			return nil, err
		}
		for k, v := range data {
			env[from.Prefix+k] = string(v)
		}
	}
	for _, e := range c.Env {
		if e.ValueFrom == nil {
			env[e.Name] = pod.Expand(e.Value, env)
			continue
		}
		value, ok, err := s.value(ctx, &e)
		if err != nil {
			return nil, err
		}
		if ok {
			env[e.Name] = value
		}
	}
	return env, nil
}

// value resolves the source of a variable. ok is false for something optional that is missing.
func (s *podSync) value(ctx context.Context, e *v1.EnvVar) (value string, ok bool, err error) {
	read, ref := source.Secret, e.ValueFrom.SecretKeyRef
	switch from := e.ValueFrom; {
	case from.FieldRef != nil:
		value, err = s.field(from.FieldRef.FieldPath)
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		read, ref = source.ConfigMap, (*v1.SecretKeySelector)(from.ConfigMapKeyRef)
	case ref == nil:
		return "", false, fmt.Errorf("the source of environment variable %s is not supported", e.Name)
	}
	data, err := read(ctx, s.Objects, s.pod.Namespace, ref.Name, ref.Optional)
	found, ok := data[ref.Key]
	if err == nil && !ok && !ptr.Deref(ref.Optional, false) {
		err = fmt.Errorf("couldn't find key %v for environment variable %s", ref.Key, e.Name)
	}
	return string(found), ok, err
}

// field returns the text of a field of the pod: the fields of volumes, and fields that are known only once the pod has
// its addresses.
func (s *podSync) field(path string) (string, error) {
	host := strings.Join(s.HostIPs[:min(1, len(s.HostIPs))], "")
	switch path {
	case "spec.nodeName":
		return cmp.Or(s.pod.Spec.NodeName, s.NodeName), nil
	case "spec.serviceAccountName":
		return s.pod.Spec.ServiceAccountName, nil
	case "status.hostIP":
		return host, nil
	case "status.podIP":
		if s.pod.Spec.HostNetwork {
			return host, nil
		}
		return s.ip, nil
	}
	return source.Field(s.pod, path)
}

const hostsPath = "/etc/hosts"

// containerMounts are a container's volumes, /etc/hosts unless the container brings its own, and the file of the
// termination message. On the node's network the runtime provides /etc/hosts.
func (s *podSync) containerMounts(c *v1.Container, env map[string]string) ([]*runtimeapi.Mount, error) {
	volumes := s.Mounts(s.pod.UID)
	ownHosts := s.ip != "" && !s.pod.Spec.HostNetwork
	var mounts []*runtimeapi.Mount
	for i, vm := range c.VolumeMounts {
		volume, ok := volumes[vm.Name]
		if !ok {
			return nil, fmt.Errorf("cannot find volume %q to mount into container %q", vm.Name, c.Name)
		}
		sub := cmp.Or(vm.SubPath, pod.Expand(vm.SubPathExpr, env))
		if vm.SubPathExpr != "" && strings.Contains(sub, "$(") {
			return nil, fmt.Errorf("missing value for %q in subPathExpr of volumeMount %q of %q", sub, vm.Name, c.Name)
		}
		if sub != "" {
			at, err := s.PrepareSafeSubpath(s.pod.UID, vm.Name, c.Name, i, sub)
			if err != nil { // the container's status must not tell about the node's files
				s.Log.Error(err, "Failed to prepare subPath for volumeMount of the container", "pod", klog.KObj(s.pod),
					"containerName", c.Name, "volumeMountName", vm.Name)
				return nil, fmt.Errorf("failed to prepare subPath for volumeMount %q of container %q", vm.Name, c.Name)
			}
			volume.HostPath = at
		}
		path := filepath.Join("/", vm.MountPath)
		ownHosts = ownHosts && path != hostsPath
		mounts = append(mounts, &runtimeapi.Mount{
			ContainerPath: path, HostPath: volume.HostPath, Readonly: vm.ReadOnly || volume.ReadOnly,
			SelinuxRelabel: volume.Managed, Propagation: propagation[ptr.Deref(vm.MountPropagation, "")],
		})
	}
	dir := filepath.Join(s.RootDir, "pods", string(s.pod.UID))
	file := func(inside, path, text string, mode os.FileMode) error {
		mounts = append(mounts, &runtimeapi.Mount{ContainerPath: inside, HostPath: path, SelinuxRelabel: true})
		return write(path, text, mode)
	}
	if ownHosts {
		text := "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" +
			s.ip + "\t" + hostname(s.pod) + "\n"
		// Other containers of the pod have the file mounted already: its content is replaced, not the file.
		if err := file(hostsPath, filepath.Join(dir, "etc-hosts"), text, 0o644); err != nil {
			return nil, err
		}
	}
	if path := c.TerminationMessagePath; path != "" {
		// Each instance of the container has its own file. Any user in the container may write it.
		own := filepath.Join(dir, "containers", c.Name, fmt.Sprintf("%08x", rand.Uint32()))
		if err := file(filepath.Join("/", path), own, "", 0o666); err != nil {
			return nil, err
		}
	}
	return mounts, nil
}

// write writes a file with a mode that the umask does not change.
func write(path, text string, mode os.FileMode) error {
	err := os.MkdirAll(filepath.Dir(path), 0o750)
	return errors.Join(err, os.WriteFile(path, []byte(text), mode), os.Chmod(path, mode))
}
