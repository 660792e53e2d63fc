package kuberuntime

import (
	"cmp"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// PodActions are the actions that a pod needs now. Containers are given by their index in the spec.
type PodActions struct {
	KillPod       bool   // stop all containers and sandboxes first
	CreateSandbox bool   // create a new sandbox
	SandboxID     string // to start in, or the one that is replaced; empty if there is none
	Attempt       uint32 // of the sandbox
	Why           string // the kubelet's log line for a sandbox that has to be replaced; empty otherwise

	ContainersToKill      []Kill // not with KillPod
	InitContainersToStart []int
	ContainersToStart     []int
}

// A Kill is a single container that has to be killed.
type Kill struct {
	ID      container.ID
	Name    string
	Message string // of the event
	Grace   int64  // seconds, of the probe that failed; 0: the pod's
}

// end sets the actions of a pod that is done: it is killed and nothing is started, not even a sidecar.
func (a *PodActions) end() {
	a.KillPod = true
	a.ContainersToKill, a.InitContainersToStart, a.ContainersToStart = nil, nil, nil
}

func (a *PodActions) kill(s *container.Status, failed *v1.Probe, format string, args ...any) {
	k := Kill{ID: s.ID, Name: s.Name, Message: fmt.Sprintf(format, args...)}
	if failed != nil {
		k.Grace = ptr.Deref(failed.TerminationGracePeriodSeconds, 0)
	}
	a.ContainersToKill = append(a.ContainersToKill, k)
}

// actionInput is the input of computePodActions.
type actionInput struct {
	pod               *v1.Pod
	status            *container.PodStatus
	liveness, startup ProbeResult
}

// computePodActions computes the actions for a pod, as the kubelet's function of that name does
// (pkg/kubelet/kuberuntime/kuberuntime_manager.go).
func computePodActions(in actionInput) PodActions {
	a := sandboxChanged(in.pod, in.status)
	if a.CreateSandbox {
		in.actionsForNewSandbox(&a)
		return a
	}
	if !in.computeInitContainerActions(&a) || a.KillPod {
		return a
	}
	kept := 0
	for i := range in.pod.Spec.Containers {
		if in.appContainer(&a, i) {
			kept++
		}
	}
	if kept == 0 && len(a.ContainersToStart) == 0 {
		a.end()
	}
	return a
}

// actionsForNewSandbox decides for a pod without a usable sandbox: everything is killed, and starts again unless the
// pod is done.
func (in actionInput) actionsForNewSandbox(a *PodActions) {
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
		a.InitContainersToStart = []int{0}
		return
	}
	a.ContainersToStart = start
}

// appContainer decides on one regular container of an initialised pod. It returns whether the container keeps running.
func (in actionInput) appContainer(a *PodActions, i int) bool {
	c := &in.pod.Spec.Containers[i]
	s := in.status.Find(c.Name)
	if s == nil || s.State != container.Running {
		if !ShouldStart(in.pod, c, s) {
			return false
		}
		a.ContainersToStart = append(a.ContainersToStart, i)
		if s != nil && s.State == container.Unknown {
			// It may run, and two instances must not.
			a.kill(s, nil, "Container is in %q state, try killing it before restart", s.State)
		}
		return false
	}
	why, probe := in.killReason(c, s)
	if why == "" {
		return true
	}
	message := fmt.Sprintf("Container %s %s", c.Name, why)
	// With a changed definition it is another container, which starts with any policy.
	if pod.RestartPolicy(in.pod, c) != v1.RestartPolicyNever || probe == nil {
		message += ", will be restarted"
		a.ContainersToStart = append(a.ContainersToStart, i)
	}
	a.kill(s, probe, "%s", message)
	return false
}

// killReason returns why a running container has to be killed, and the failed probe if that is the reason. why is empty
// if the container may run on.
func (in actionInput) killReason(c *v1.Container, s *container.Status) (why string, failed *v1.Probe) {
	switch {
	case s.Hash != ContainerHash(c):
		return "definition changed", nil
	case hasFailed(in.liveness, s.ID):
		return "failed liveness probe", cmp.Or(c.LivenessProbe, &v1.Probe{})
	case hasFailed(in.startup, s.ID):
		return "failed startup probe", cmp.Or(c.StartupProbe, &v1.Probe{})
	}
	return "", nil
}

func hasFailed(v ProbeResult, id container.ID) bool {
	failed, known := v(id)
	return known && failed
}

// sandboxChanged decides whether a pod's newest sandbox is usable (pkg/kubelet/kuberuntime/util/util.go).
func sandboxChanged(pod *v1.Pod, status *container.PodStatus) PodActions {
	if len(status.SandboxStatuses) == 0 {
		const why = "No sandbox for pod can be found. Need to start a new one"
		return PodActions{KillPod: true, CreateSandbox: true, Why: why}
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

// ShouldStart reports whether a container that does not run is to be started (ShouldContainerBeRestarted upstream). s
// is its newest instance, or nil.
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

// computeInitContainerActions decides on the init containers and returns whether the pod is initialised.
//
// It goes from the last to the first. The last one with a status shows how far the pod is: those before it have
// succeeded, even if they were collected since. Of those only sidecars still matter.
func (in actionInput) computeInitContainerActions(a *PodActions) (initialised bool) {
	all := in.pod.Spec.InitContainers
	// A regular container proves that the init containers are done, unless it exited: it may belong to an earlier
	// sandbox.
	initialised = len(all) == 0 || slices.ContainsFunc(in.pod.Spec.Containers, func(c v1.Container) bool {
		s := in.status.Find(c.Name)
		return s != nil && (s.State == container.Created || s.State == container.Running)
	})
	past := initialised // every init container from here to the first has been started once
	for i := range slices.Backward(all) {
		c := &all[i]
		s, sidecar := in.status.Find(c.Name), pod.IsSidecar(c)
		finished := false // it succeeded, or is a sidecar that has started
		again := func() { a.InitContainersToStart = append(a.InitContainersToStart, i) }
		switch {
		case past && !sidecar, s == nil && !past:
			continue
		case s == nil, s.State == container.Created, s.State == container.Exited && sidecar:
			again()
		case s.State == container.Running:
			if why, probe := in.killReason(c, s); sidecar && why != "" {
				a.kill(s, probe, "Init container %s %s", c.Name, why)
				again()
			}
			// The next container waits for the startup probe of a sidecar, but not for its liveness probe.
			failed, known := in.startup(s.ID)
			finished = sidecar && (c.StartupProbe == nil || known && !failed)
		case s.State == container.Exited && s.ExitCode == 0 && s.Reason != "OOMKilled":
			finished = true
		case s.State == container.Exited && !ShouldStart(in.pod, c, s),
			s.State == container.Unknown && pod.RestartPolicy(in.pod, c) == v1.RestartPolicyNever:
			a.end() // the pod fails
			return false
		default:
			if s.State == container.Unknown {
				a.kill(s, nil, "Init container is in %q state, try killing it before restart", s.State)
			}
			again()
		}
		switch {
		case finished && i == len(all)-1:
			initialised = true
		case finished && !past:
			a.InitContainersToStart = append(a.InitContainersToStart, i+1)
		}
		past = true
	}
	if !past {
		a.InitContainersToStart = []int{0}
	}
	slices.Sort(a.InitContainersToStart)
	return initialised
}
