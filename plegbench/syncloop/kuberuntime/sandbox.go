package kuberuntime

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// sandboxChanged decides whether a pod's newest sandbox can be used (pkg/kubelet/kuberuntime/util/util.go).
func sandboxChanged(pod *v1.Pod, status *container.PodStatus) PodActions {
	if len(status.SandboxStatuses) == 0 {
		return PodActions{KillPod: true, CreateSandbox: true, Why: "No sandbox for pod can be found. Need to start a new one"}
	}
	newest := status.SandboxStatuses[0]
	ready := 0
	for _, s := range status.SandboxStatuses {
		if s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			ready++
		}
	}
	a := PodActions{
		KillPod: true, CreateSandbox: true, SandboxID: newest.GetId(), Attempt: newest.GetMetadata().GetAttempt() + 1,
	}
	switch {
	case ready > 1:
		a.Why = "Multiple sandboxes are ready for Pod. Need to reconcile them"
	case newest.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY:
		a.Why = "No ready sandbox for pod can be found. Need to start a new one"
	case newest.GetLinux().GetNamespaces().GetOptions().GetNetwork() != networkMode(pod):
		a.Why, a.SandboxID = "Sandbox for pod has changed. Need to start a new one", ""
	case !pod.Spec.HostNetwork && newest.GetNetwork() != nil && newest.GetNetwork().GetIp() == "":
		a.Why = "Sandbox for pod has no IP address. Need to start a new one"
	default:
		return PodActions{SandboxID: a.SandboxID, Attempt: a.Attempt - 1}
	}
	return a
}

// networkMode is the network namespace that a pod wants.
func networkMode(pod *v1.Pod) runtimeapi.NamespaceMode {
	if pod.Spec.HostNetwork {
		return runtimeapi.NamespaceMode_NODE
	}
	return runtimeapi.NamespaceMode_POD
}

// namespaces are those that a pod's sandbox and containers run in.
func namespaces(pod *v1.Pod) *runtimeapi.NamespaceOption {
	o := &runtimeapi.NamespaceOption{
		Network: networkMode(pod), Ipc: runtimeapi.NamespaceMode_POD, Pid: runtimeapi.NamespaceMode_CONTAINER,
	}
	if pod.Spec.HostIPC {
		o.Ipc = runtimeapi.NamespaceMode_NODE
	}
	switch share := pod.Spec.ShareProcessNamespace; {
	case pod.Spec.HostPID:
		o.Pid = runtimeapi.NamespaceMode_NODE
	case share != nil && *share:
		o.Pid = runtimeapi.NamespaceMode_POD
	}
	return o
}

// createSandbox makes a sandbox and returns its id. The message explains an error.
func (m *Manager) createSandbox(ctx context.Context, pod *v1.Pod, attempt uint32) (id, message string, err error) {
	config, err := m.sandboxConfig(pod, attempt)
	if err != nil {
		m.Log.Error(err, "Failed to generate sandbox config for pod", "pod", klog.KObj(pod))
		return "", fmt.Sprintf("Failed to generate sandbox config for pod %q: %v", describe(pod), err), err
	}
	if err := os.MkdirAll(config.GetLogDirectory(), 0o755); err != nil {
		m.Log.Error(err, "Failed to create log directory for pod", "pod", klog.KObj(pod))
		return "", fmt.Sprintf("Failed to create log directory for pod %q: %v", describe(pod), err), err
	}
	handler := runtimeHandler(pod)
	if handler != "" {
		m.Log.V(2).Info("Running pod with runtime handler", "pod", klog.KObj(pod), "runtimeHandler", handler)
	}
	start := time.Now()
	id, err = m.CRI.RunPodSandbox(ctx, config, handler)
	m.Metrics.RunPodSandboxDuration.WithLabelValues(handler).Observe(time.Since(start).Seconds())
	if err != nil {
		m.Metrics.RunPodSandboxErrors.WithLabelValues(handler).Inc()
		m.Log.Error(err, "Failed to create sandbox for pod", "pod", klog.KObj(pod))
		return "", fmt.Sprintf("Failed to create sandbox for pod %q: %v", describe(pod), err), err
	}
	return id, "", nil
}

// runtimeHandler is the name of the pod's RuntimeClass, which need not exist at an API server: by convention a class is
// named like its handler.
func runtimeHandler(pod *v1.Pod) string {
	if pod.Spec.RuntimeClassName == nil {
		return ""
	}
	return *pod.Spec.RuntimeClassName
}

// sandboxConfig is what RunPodSandbox gets, and again each CreateContainer in that sandbox.
func (m *Manager) sandboxConfig(pod *v1.Pod, attempt uint32) (*runtimeapi.PodSandboxConfig, error) {
	dns, err := m.Options.DNS(pod)
	if err != nil {
		return nil, err
	}
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID), Attempt: attempt,
		},
		Labels: sandboxLabels(pod, m.NodeName), Annotations: pod.Annotations,
		LogDirectory: PodLogs(m.LogDir, pod.Namespace, pod.Name, pod.UID),
		DnsConfig:    dns, PortMappings: portMappings(pod),
		Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: m.Options.CgroupParent(pod), Sysctls: sysctls(pod)},
	}
	if !pod.Spec.HostNetwork {
		if config.Hostname, err = m.hostname(pod); err != nil {
			return nil, err
		}
	}
	config.Linux.SecurityContext, err = sandboxSecurity(pod)
	return config, err
}

// longestHostname is what the kernel takes.
const longestHostname = 64

func (m *Manager) hostname(pod *v1.Pod) (string, error) {
	host, domain, err := m.Options.Hostname(pod)
	if err != nil || domain == "" || pod.Spec.SetHostnameAsFQDN == nil || !*pod.Spec.SetHostnameAsFQDN {
		return host, err
	}
	if host += "." + domain; len(host) > longestHostname {
		return "", fmt.Errorf("hostname %s has %d characters, the kernel takes %d", host, len(host), longestHostname)
	}
	return host, nil
}

// portMappings are the ports of regular containers. One that is defined twice in a container counts once.
func portMappings(pod *v1.Pod) []*runtimeapi.PortMapping {
	var all []*runtimeapi.PortMapping
	for _, c := range pod.Spec.Containers {
		seen := map[string]bool{}
		for _, p := range c.Ports {
			name := p.Name
			if name == "" {
				name = fmt.Sprint(p.Protocol, p.HostIP, p.ContainerPort, p.HostPort)
			}
			if seen[name] {
				continue
			}
			seen[name] = true
			all = append(all, &runtimeapi.PortMapping{
				Protocol:      runtimeapi.Protocol(runtimeapi.Protocol_value[string(p.Protocol)]), // unknown ones are TCP
				ContainerPort: p.ContainerPort, HostPort: p.HostPort, HostIp: p.HostIP,
			})
		}
	}
	return all
}

// sysctls are the pod's, with dots between their parts: runc does not take the form with slashes.
func sysctls(pod *v1.Pod) map[string]string {
	all := map[string]string{}
	if pod.Spec.SecurityContext == nil {
		return all
	}
	swap := strings.NewReplacer("/", ".", ".", "/")
	for _, s := range pod.Spec.SecurityContext.Sysctls {
		name := s.Name
		if i := strings.IndexAny(name, "./"); i >= 0 && name[i] == '/' {
			name = swap.Replace(name)
		}
		all[name] = s.Value
	}
	return all
}

// sandboxIPs are the addresses that a sandbox reports, the primary one first. On the host's network there are none.
func (m *Manager) sandboxIPs(s *runtimeapi.PodSandboxStatus) []string {
	if s.GetNetwork() == nil {
		m.Log.Info("Pod Sandbox status doesn't have network information, cannot report IPs",
			"pod", klog.KRef(s.GetMetadata().GetNamespace(), s.GetMetadata().GetName()))
		return nil
	}
	ips := []string{s.GetNetwork().GetIp()}
	for _, more := range s.GetNetwork().GetAdditionalIps() {
		ips = append(ips, more.GetIp())
	}
	if ips[0] == "" {
		ips = ips[1:]
	}
	for _, ip := range ips {
		if _, err := netip.ParseAddr(ip); err != nil {
			m.Log.Info("Pod Sandbox reported an unparseable IP",
				"pod", klog.KRef(s.GetMetadata().GetNamespace(), s.GetMetadata().GetName()), "IP", ip)
			return nil
		}
	}
	return slices.Clip(ips)
}
