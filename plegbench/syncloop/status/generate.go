// Package status computes the status of pods, and reports it to the API server, to a file, or to both. The rules are
// those of pkg/kubelet/kubelet_pods.go and pkg/kubelet/status upstream. Left out are ephemeral containers, in-place
// resize, dynamic resource allocation, dual-stack addresses, restarts of all containers of a pod at once, and the
// statuses of volume mounts and container users.
package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// A GenerateInput is all that a pod's status is computed from.
type GenerateInput struct {
	Pod       *v1.Pod
	PodStatus *container.PodStatus
	Old       v1.PodStatus // the last one computed, or the status in the pod if there is none
	Terminal  bool         // its containers have ended and will not be started again
	// NotStarted is why containers could not be started the last time, by name.
	NotStarted map[string]*v1.ContainerStateWaiting
	// ShouldStart reports whether the next sync will start a container, whose newest instance it is given, nil if
	// there is none. It is asked for containers of NotStarted only.
	ShouldStart func(*v1.Pod, *v1.Container, *container.Status) bool
	// UpdateProbes fills in started and ready of each container. Nil leaves them false.
	UpdateProbes func(*v1.Pod, *v1.PodStatus)
	HostIPs      []string  // of the node, the primary first; none leaves them out of the status
	Now          time.Time // is compared with spec.activeDeadlineSeconds; zero is before any deadline
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
	setPhase(&st, &in)
	if in.UpdateProbes != nil {
		in.UpdateProbes(p, &st)
	}
	st.Conditions = conditions(&in, &st)
	return st
}

// setIPs sets the pod's addresses and the node's. A pod on the host's network has the node's addresses.
func setIPs(st *v1.PodStatus, p *v1.Pod, ips, hostIPs []string) {
	if p.Spec.HostNetwork && len(ips) == 0 {
		ips = hostIPs
	}
	for _, ip := range hostIPs {
		st.HostIP = hostIPs[0]
		st.HostIPs = append(st.HostIPs, v1.HostIP{IP: ip})
	}
	for _, ip := range ips {
		st.PodIP = ips[0]
		st.PodIPs = append(st.PodIPs, v1.PodIP{IP: ip})
	}
}

// setPhase sets the phase with its reason and message. A phase that was terminal once, here or at the API server,
// stays.
func setPhase(st *v1.PodStatus, in *GenerateInput) {
	p := in.Pod
	st.Phase = phase(p, slices.Concat(st.ContainerStatuses, st.InitContainerStatuses), in.Terminal)
	if pod.IsTerminal(in.Old.Phase) { // an evicted pod has failed, also if its containers exit with 0
		st.Phase = in.Old.Phase
	}
	if st.Phase == in.Old.Phase {
		st.Reason, st.Message = cmp.Or(in.Old.Reason, p.Status.Reason), cmp.Or(in.Old.Message, p.Status.Message)
	}
	if PastDeadline(p, &in.Old, in.Now) {
		st.Phase, st.Reason, st.Message = v1.PodFailed, DeadlineReason, DeadlineMessage
	}
	if pod.IsTerminal(p.Status.Phase) {
		st.Phase = p.Status.Phase
	}
}

// phase sums up a pod's container statuses. isTerminal means that nothing will be started again.
func phase(p *v1.Pod, statuses []v1.ContainerStatus, isTerminal bool) v1.PodPhase {
	pending := false // a container has not run yet, or an init container has not done its part
	sidecars := 0    // that run
	running := 0     // regular containers
	stopped := 0     // regular containers that ended, whether or not they wait to be started again
	final := 0       // of the stopped, those that will not be started again
	succeeded := 0   // of the stopped, those that ended with 0 and do not wait
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		st := statusOf(statuses, c.Name)
		end := ended(st)
		switch {
		case pod.IsSidecar(c) && st != nil && st.State.Running != nil:
			sidecars++
		case end == nil:
			pending = true
		case !pod.IsSidecar(c) && end.ExitCode != 0 && !pod.Restarts(p, c, end.ExitCode):
			return v1.PodFailed
		}
	}
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		st := statusOf(statuses, c.Name)
		end := ended(st)
		switch {
		case st != nil && st.State.Running != nil:
			running++
		case end == nil:
			pending = true
		default:
			stopped++
			if !pod.Restarts(p, c, end.ExitCode) {
				final++
			}
			if st.State.Terminated != nil && end.ExitCode == 0 {
				succeeded++
			}
		}
	}
	switch {
	case pending:
		return v1.PodPending
	// A static pod is not made terminal, even when nothing of it will be started again: its file would never run again.
	case running+sidecars > 0, final < stopped && (!isTerminal || pod.IsStatic(p)):
		return v1.PodRunning
	case succeeded == stopped:
		return v1.PodSucceeded
	}
	return v1.PodFailed
}

// ended is how a container ended that does not run: now, or before it began to wait. It is nil if it never ran.
func ended(st *v1.ContainerStatus) *v1.ContainerStateTerminated {
	switch {
	case st == nil || st.State.Running != nil:
		return nil
	case st.State.Terminated != nil:
		return st.State.Terminated
	}
	return st.LastTerminationState.Terminated
}

func statusOf(in []v1.ContainerStatus, name string) *v1.ContainerStatus {
	return pod.Find(in, func(st v1.ContainerStatus) bool { return st.Name == name })
}

// Reasons of conditions (pkg/kubelet/status/generate.go upstream).
const (
	reasonCompleted      = "PodCompleted"
	reasonFailed         = "PodFailed"
	reasonNotReady       = "ContainersNotReady"
	reasonNotInitialized = "ContainersNotInitialized"
	reasonGatesNotReady  = "ReadinessGatesNotReady"
)

// conditions returns the conditions that others have set in the pod, and the kubelet's own.
func conditions(in *GenerateInput, st *v1.PodStatus) []v1.PodCondition {
	p := in.Pod
	out := others(p.Status.Conditions)
	// An eviction sets this one once, and it does not follow from any container's state.
	if c := condition(in.Old.Conditions, v1.DisruptionTarget); c != nil {
		out = setCondition(out, *c)
	}
	all := slices.Concat(st.InitContainerStatuses, st.ContainerStatuses)
	return append(out,
		sandboxReady(p, in.PodStatus), initialized(p, in.Old.Conditions, all, st.Phase), ready(p, out, all, st.Phase),
		containersReady(p, all, st.Phase), newCondition(p, v1.PodScheduled, v1.ConditionTrue, "", ""))
}

// ours reports whether a condition is the kubelet's alone (pkg/kubelet/types/pod_status.go upstream).
func ours(t v1.PodConditionType) bool {
	switch t {
	case v1.PodScheduled, v1.PodReady, v1.PodInitialized, v1.ContainersReady, v1.PodReadyToStartContainers:
		return true
	}
	return false
}

func others(in []v1.PodCondition) []v1.PodCondition {
	return slices.DeleteFunc(slices.Clone(in), func(c v1.PodCondition) bool { return ours(c.Type) })
}

func condition(in []v1.PodCondition, t v1.PodConditionType) *v1.PodCondition {
	return pod.Find(in, func(c v1.PodCondition) bool { return c.Type == t })
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

// containersReady is True when every regular container and sidecar is ready.
func containersReady(p *v1.Pod, statuses []v1.ContainerStatus, phase v1.PodPhase) v1.PodCondition {
	var unready []string
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		regular := pod.IsSidecar(&c) || pod.Container(p.Spec.Containers, c.Name) != nil
		if st := statusOf(statuses, c.Name); regular && (st == nil || !st.Ready) {
			unready = append(unready, c.Name)
		}
	}
	is, reason, message := v1.ConditionFalse, "", ""
	switch {
	case phase == v1.PodSucceeded:
		reason = reasonCompleted
	case phase == v1.PodFailed:
		reason = reasonFailed
	case len(unready) > 0:
		reason, message = reasonNotReady, fmt.Sprintf("containers with unready status: %s", unready)
	default:
		is = v1.ConditionTrue
	}
	return newCondition(p, v1.ContainersReady, is, reason, message)
}

// ready is containersReady and, if that is True, whether the conditions of all readiness gates are.
func ready(
	p *v1.Pod, conditions []v1.PodCondition, statuses []v1.ContainerStatus, phase v1.PodPhase,
) v1.PodCondition {
	out := containersReady(p, statuses, phase)
	out.Type = v1.PodReady
	if out.Status != v1.ConditionTrue {
		return out
	}
	var unready []string
	for _, gate := range p.Spec.ReadinessGates {
		switch c := condition(conditions, gate.ConditionType); {
		case c == nil:
			unready = append(unready, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.",
				gate.ConditionType))
		case c.Status != v1.ConditionTrue:
			unready = append(unready, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v",
				gate.ConditionType, c.Status))
		}
	}
	if len(unready) > 0 {
		out.Status, out.Reason, out.Message = v1.ConditionFalse, reasonGatesNotReady, strings.Join(unready, ", ")
	}
	return out
}

// NeedToReconcilePodReadiness reports whether the condition Ready of a pod at the API server does not follow from the
// conditions of its readiness gates.
func NeedToReconcilePodReadiness(p *v1.Pod) bool {
	st := &p.Status
	was := condition(st.Conditions, v1.PodReady)
	if len(p.Spec.ReadinessGates) == 0 || was == nil {
		return false
	}
	should := ready(p, st.Conditions, slices.Concat(st.InitContainerStatuses, st.ContainerStatuses), st.Phase)
	return was.Status != should.Status || was.Message != should.Message
}

// initialized is True when every ordinary init container has succeeded and every sidecar has started, and stays so.
func initialized(p *v1.Pod, old []v1.PodCondition, statuses []v1.ContainerStatus, phase v1.PodPhase) v1.PodCondition {
	var incomplete []string
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		st := statusOf(statuses, c.Name)
		if st == nil || pod.IsSidecar(c) && !ptr.Deref(st.Started, false) || !pod.IsSidecar(c) && !st.Ready {
			incomplete = append(incomplete, c.Name)
		}
	}
	started := slices.ContainsFunc(p.Spec.Containers, func(c v1.Container) bool {
		st := statusOf(statuses, c.Name)
		return st != nil && (st.State.Running != nil || st.State.Terminated != nil)
	})
	was := condition(old, v1.PodInitialized)
	is, reason, message := v1.ConditionTrue, "", ""
	switch {
	case phase == v1.PodSucceeded:
		reason = reasonCompleted
	case len(incomplete) > 0 && !started && (was == nil || was.Status != v1.ConditionTrue):
		is, reason = v1.ConditionFalse, reasonNotInitialized
		message = fmt.Sprintf("containers with incomplete status: %s", incomplete)
	}
	return newCondition(p, v1.PodInitialized, is, reason, message)
}

// sandboxReady is True when the newest sandbox is ready, with the address that the pod needs.
func sandboxReady(p *v1.Pod, st *container.PodStatus) v1.PodCondition {
	is := v1.ConditionFalse
	if len(st.SandboxStatuses) > 0 {
		sb := st.SandboxStatuses[0]
		addressed := p.Spec.HostNetwork || sb.GetNetwork() == nil || sb.GetNetwork().GetIp() != ""
		if sb.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY && addressed {
			is = v1.ConditionTrue
		}
	}
	return newCondition(p, v1.PodReadyToStartContainers, is, "", "")
}
