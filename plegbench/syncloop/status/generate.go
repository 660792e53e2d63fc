// Package status computes the status of pods, and reports it to the API server, to a file, or to both. The rules are
// those of pkg/kubelet/kubelet_pods.go and pkg/kubelet/status upstream. Left out are in-place resize, dynamic
// resource allocation, dual-stack addresses, restarts of all containers of a pod at once, and the statuses of volume
// mounts and container users.
package status

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// A GenerateInput is all that a pod's status is computed from.
type GenerateInput struct {
	Pod       *v1.Pod
	PodStatus *container.PodStatus
	Old       v1.PodStatus // the last one computed, or that of the pod if there is none
	Terminal  bool         // its containers have ended and will not be started again
	// StartError is why a container could not be started the last time; ok is false if it could.
	StartError func(name string) (reason error, message string, ok bool)
	// ShouldStart reports whether the next sync will start a container, whose newest instance it is given, nil if
	// there is none. It is asked only if there is a StartError.
	ShouldStart func(*v1.Pod, *v1.Container, *container.Status) bool
	// UpdateProbes fills in started and ready of each container. Nil leaves them false.
	UpdateProbes func(*v1.Pod, *v1.PodStatus)
	HostIPs      []string  // of the node, the primary first; none leaves them out of the status
	Now          time.Time // what spec.activeDeadlineSeconds is held against; zero ignores the deadline
}

// Reason and message of a pod that was active for too long (pkg/kubelet/active_deadline.go upstream).
const (
	DeadlineReason  = "DeadlineExceeded"
	DeadlineMessage = "Pod was active on the node longer than the specified deadline"
)

// PastDeadline reports whether a pod with that status has been active for longer than its spec allows.
func PastDeadline(p *v1.Pod, st *v1.PodStatus, now time.Time) bool {
	if p.Spec.ActiveDeadlineSeconds == nil || st.StartTime.IsZero() {
		return false
	}
	return now.Sub(st.StartTime.Time) >= time.Duration(*p.Spec.ActiveDeadlineSeconds)*time.Second
}

// Generate computes a pod's status. It changes nothing that it was given.
func Generate(in GenerateInput) v1.PodStatus {
	p := in.Pod
	st := v1.PodStatus{QOSClass: pod.QOSClass(p)}
	setIPs(&st, p, in.PodStatus.IPs, in.HostIPs)
	st.ContainerStatuses = containerStatuses(&in, p.Spec.Containers, in.Old.ContainerStatuses, false)
	st.InitContainerStatuses = containerStatuses(&in, p.Spec.InitContainers, in.Old.InitContainerStatuses, true)
	st.EphemeralContainerStatuses = containerStatuses(&in, ephemeral(p), in.Old.EphemeralContainerStatuses, false)
	setPhase(&st, &in)
	if in.UpdateProbes != nil {
		in.UpdateProbes(p, &st)
	}
	st.Conditions = conditions(&in, &st)
	return st
}

func ephemeral(p *v1.Pod) []v1.Container {
	var out []v1.Container
	for i := range p.Spec.EphemeralContainers {
		out = append(out, v1.Container(p.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	return out
}

// setPhase sets the phase with its reason and message. A phase that was terminal once, here or at the API server,
// stays.
func setPhase(st *v1.PodStatus, in *GenerateInput) {
	p := in.Pod
	st.Phase = phase(p, slices.Concat(st.ContainerStatuses, st.InitContainerStatuses), in.Terminal, startedInSandbox(p, in.PodStatus))
	switch {
	case pod.IsTerminal(in.Old.Phase): // an evicted pod has failed, also if its containers exit with 0
		st.Phase = in.Old.Phase
	case !pod.IsTerminal(st.Phase) && pod.IsTerminal(p.Status.Phase):
		st.Phase = p.Status.Phase
	}
	if st.Phase == in.Old.Phase {
		st.Reason, st.Message = cmp.Or(in.Old.Reason, p.Status.Reason), cmp.Or(in.Old.Message, p.Status.Message)
	}
	if !in.Now.IsZero() && PastDeadline(p, &in.Old, in.Now) {
		st.Phase, st.Reason, st.Message = v1.PodFailed, DeadlineReason, DeadlineMessage
	}
	if pod.IsTerminal(p.Status.Phase) {
		st.Phase = p.Status.Phase
	}
}

// startedInSandbox reports whether a regular container was ever made in the sandbox that is ready now: then the pod
// has been initialized, whatever its sidecars do.
func startedInSandbox(p *v1.Pod, st *container.PodStatus) bool {
	if len(st.SandboxStatuses) == 0 || container.SandboxState(st.SandboxStatuses[0].GetState()) != container.Running {
		return false
	}
	return slices.ContainsFunc(st.ContainerStatuses, func(c *container.Status) bool {
		return c.SandboxID == st.SandboxStatuses[0].GetId() && pod.Container(p.Spec.Containers, c.Name) != nil
	})
}

// setIPs sets the pod's addresses and the node's. A pod on the host's network has the node's addresses.
func setIPs(st *v1.PodStatus, p *v1.Pod, ips, hostIPs []string) {
	for _, ip := range hostIPs {
		st.HostIPs = append(st.HostIPs, v1.HostIP{IP: ip})
	}
	if p.Spec.HostNetwork && len(ips) == 0 {
		ips = hostIPs
	}
	for _, ip := range ips {
		st.PodIPs = append(st.PodIPs, v1.PodIP{IP: ip})
	}
	if len(st.HostIPs) > 0 {
		st.HostIP = st.HostIPs[0].IP
	}
	if len(st.PodIPs) > 0 {
		st.PodIP = st.PodIPs[0].IP
	}
}

// conditions are those that others set, as they are in the pod, and the kubelet's own.
func conditions(in *GenerateInput, st *v1.PodStatus) []v1.PodCondition {
	p := in.Pod
	out := make([]v1.PodCondition, 0, len(p.Status.Conditions)+5)
	for _, c := range p.Status.Conditions {
		if !ours(c.Type) {
			out = append(out, c)
		}
	}
	// An eviction sets this one once, and it does not follow from any container's state.
	if c := condition(in.Old.Conditions, v1.DisruptionTarget); c != nil {
		out = setCondition(out, *c)
	}
	all := slices.Concat(st.InitContainerStatuses, st.ContainerStatuses)
	out = append(out, sandboxCondition(p, in.PodStatus), initialized(p, in.Old.Conditions, all, st.Phase))
	return append(out,
		ready(p, out, all, st.Phase), containersReady(p, all, st.Phase), newCondition(p, v1.PodScheduled, v1.ConditionTrue, "", ""))
}

// ours reports whether a condition is the kubelet's alone (pkg/kubelet/types/pod_status.go upstream).
func ours(t v1.PodConditionType) bool {
	switch t {
	case v1.PodScheduled, v1.PodReady, v1.PodInitialized, v1.ContainersReady, v1.PodReadyToStartContainers,
		v1.PodResizePending, v1.PodResizeInProgress, v1.AllContainersRestarting:
		return true
	}
	return false
}

func condition(in []v1.PodCondition, t v1.PodConditionType) *v1.PodCondition {
	if i := slices.IndexFunc(in, func(c v1.PodCondition) bool { return c.Type == t }); i >= 0 {
		return &in[i]
	}
	return nil
}

func setCondition(in []v1.PodCondition, c v1.PodCondition) []v1.PodCondition {
	if old := condition(in, c.Type); old != nil {
		*old = c
		return in
	}
	return append(in, c)
}

func newCondition(p *v1.Pod, t v1.PodConditionType, is v1.ConditionStatus, reason, message string) v1.PodCondition {
	return v1.PodCondition{Type: t, ObservedGeneration: p.Generation, Status: is, Reason: reason, Message: message}
}

// unknownStatus is the end of a container that the runtime lost: its exit code is unknown, so it counts as killed.
func unknownStatus(message string) *v1.ContainerStateTerminated {
	return &v1.ContainerStateTerminated{Reason: "ContainerStatusUnknown", Message: message, ExitCode: 137}
}

const lostAtTermination = "The container could not be located when the pod was terminated"
