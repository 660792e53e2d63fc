package kuberuntime

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// PodActions are what a pod needs now. Containers are given by their index in the spec.
type PodActions struct {
	KillPod       bool   // stop all containers and sandboxes first
	CreateSandbox bool   // create a new sandbox
	SandboxID     string // to start in, or the one that is replaced; empty if there is none
	Attempt       uint32 // of the sandbox
	Why           string // the kubelet's log line for a sandbox that has to be replaced; empty otherwise

	ContainersToKill  []Kill // not with KillPod
	InitToStart       []int
	ContainersToStart []int
	EphemeralToStart  []int
}

// A Kill is a single container that has to be killed.
type Kill struct {
	ID      container.ID
	Name    string
	Message string // of the event
	Reason  killReason
}

// A killReason determines the grace period.
type killReason string

const (
	reasonUnknown       killReason = "" // any other
	reasonStartupProbe  killReason = "StartupProbe"
	reasonLivenessProbe killReason = "LivenessProbe"
	reasonPostStart     killReason = "FailedPostStartHook"
)

// String writes the actions for the log.
func (a PodActions) String() string {
	return fmt.Sprintf("KillPod: %t, CreateSandbox: %t, Attempt: %d, InitContainersToStart: %v, ContainersToStart: %v, "+
		"EphemeralContainersToStart: %v, ContainersToKill: %v",
		a.KillPod, a.CreateSandbox, a.Attempt, a.InitToStart, a.ContainersToStart, a.EphemeralToStart, a.ContainersToKill)
}

// end makes the actions those of a pod that is done: it is killed and nothing is started, not even a sidecar or an
// ephemeral container.
func (a *PodActions) end() {
	a.KillPod = true
	a.ContainersToKill, a.InitToStart, a.ContainersToStart, a.EphemeralToStart = nil, nil, nil, nil
}

func (a *PodActions) kill(s *container.Status, reason killReason, format string, args ...any) {
	k := Kill{ID: s.ID, Name: s.Name, Message: fmt.Sprintf(format, args...), Reason: reason}
	a.ContainersToKill = append(a.ContainersToKill, k)
}

// actionInput is the input of computePodActions.
type actionInput struct {
	pod               *v1.Pod
	status            *container.PodStatus
	liveness, startup ProbeResult
}

// computePodActions decides what a pod needs, as the kubelet's function of that name does
// (pkg/kubelet/kuberuntime/kuberuntime_manager.go).
func computePodActions(in actionInput) PodActions {
	a := sandboxChanged(in.pod, in.status)
	if a.CreateSandbox {
		in.startOver(&a)
		return a
	}
	// Ephemeral containers start even while the pod is not initialised, and never again.
	for i := range in.pod.Spec.EphemeralContainers {
		if in.status.Find(in.pod.Spec.EphemeralContainers[i].Name) == nil {
			a.EphemeralToStart = append(a.EphemeralToStart, i)
		}
	}
	if !in.initContainers(&a) || a.KillPod {
		return a
	}
	kept := 0
	for i := range in.pod.Spec.Containers {
		if in.regular(&a, i) {
			kept++
		}
	}
	if kept == 0 && len(a.ContainersToStart) == 0 {
		a.end()
	}
	return a
}

// startOver decides for a pod without a usable sandbox: all of it is killed, and starts again unless the pod is done.
func (in actionInput) startOver(a *PodActions) {
	spec := &in.pod.Spec
	// A pod that had containers and may not restart is only killed. Without any, creating it never succeeded.
	if spec.RestartPolicy == v1.RestartPolicyNever && a.Attempt != 0 && len(in.status.ContainerStatuses) != 0 {
		a.CreateSandbox = false
		return
	}
	var start []int
	created := false
	for i := range spec.Containers {
		c := &spec.Containers[i]
		s := in.status.Find(c.Name)
		succeeded := s != nil && s.State == container.Exited && s.ExitCode == 0
		if pod.RestartPolicy(in.pod, c) != v1.RestartPolicyOnFailure || !succeeded {
			start = append(start, i)
		}
		created = created || s != nil && s.State != container.Unknown
	}
	if len(start) == 0 && created {
		a.CreateSandbox = false
		return
	}
	if len(spec.InitContainers) > 0 {
		a.InitToStart = []int{0}
		return
	}
	a.ContainersToStart = start
}

// regular decides on one regular container of an initialised pod. It returns whether the container keeps running.
func (in actionInput) regular(a *PodActions, i int) bool {
	c := &in.pod.Spec.Containers[i]
	s := in.status.Find(c.Name)
	if s == nil || s.State != container.Running {
		if !ShouldStart(in.pod, c, s) {
			return false
		}
		a.ContainersToStart = append(a.ContainersToStart, i)
		if s != nil && s.State == container.Unknown {
			// It may run, and two instances must not.
			a.kill(s, reasonUnknown, "Container is in %q state, try killing it before restart", s.State)
		}
		return false
	}
	message, reason := "", reasonUnknown
	restart := pod.RestartPolicy(in.pod, c) != v1.RestartPolicyNever
	switch {
	case s.Hash != ContainerHash(c):
		message = fmt.Sprintf("Container %s definition changed", c.Name)
		restart = true // with any policy, since it is another container
	case hasFailed(in.liveness, s.ID):
		message, reason = fmt.Sprintf("Container %s failed liveness probe", c.Name), reasonLivenessProbe
	case hasFailed(in.startup, s.ID):
		message, reason = fmt.Sprintf("Container %s failed startup probe", c.Name), reasonStartupProbe
	default:
		return true
	}
	if restart {
		message += ", will be restarted"
		a.ContainersToStart = append(a.ContainersToStart, i)
	}
	a.kill(s, reason, "%s", message)
	return false
}

func hasFailed(v ProbeResult, id container.ID) bool {
	failed, known := v(id)
	return known && failed
}

// sandboxChanged decides whether a pod's newest sandbox is usable (pkg/kubelet/kuberuntime/util/util.go).
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

// ShouldStart is the kubelet's ShouldContainerBeRestarted: it reports whether a container that may not run is to be
// started. s is its newest instance, or nil.
func ShouldStart(p *v1.Pod, c *v1.Container, s *container.Status) bool {
	switch {
	case p.DeletionTimestamp != nil:
		return false
	case s == nil: // never started, or collected
		return true
	case s.State == container.Running:
		return false
	case s.State == container.Exited:
		return pod.Restarts(p, c, int32(s.ExitCode))
	}
	return true // created or unknown
}
