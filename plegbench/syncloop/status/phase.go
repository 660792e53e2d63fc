package status

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// A tally counts a pod's containers by their statuses.
type tally struct {
	initPending    int // ordinary init containers that have not ended
	initFailed     int // ordinary init containers that failed for good
	sidecarPending int // sidecars that have not started
	unknown        int // regular containers and sidecars without a status
	running        int // regular containers and sidecars
	waiting        int // regular containers and sidecars that never ran
	stopped        int // regular containers that ended, whether or not they wait to be started again
	final          int // of the stopped, those that will not be started again
	succeeded      int // of the stopped, those that ended with 0 and do not wait
}

// phase sums up a pod's container statuses. isTerminal means that nothing will be started again; initialized, that a
// regular container was made in the sandbox there is.
func phase(p *v1.Pod, statuses []v1.ContainerStatus, isTerminal, initialized bool) v1.PodPhase {
	var t tally
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		if pod.IsSidecar(c) {
			t.sidecar(statusOf(statuses, c.Name))
		} else {
			t.init(p, c, statusOf(statuses, c.Name))
		}
	}
	for i := range p.Spec.Containers {
		t.regular(p, &p.Spec.Containers[i], statusOf(statuses, p.Spec.Containers[i].Name))
	}
	switch {
	case t.initFailed > 0:
		return v1.PodFailed
	case t.initPending > 0, t.sidecarPending > 0 && !initialized, t.waiting > 0:
		return v1.PodPending
	case t.unknown > 0, t.running+t.stopped == 0:
		return v1.PodPending
	// A static pod is not made terminal, even when nothing of it will be started again: its file would never run again.
	case t.running > 0, t.final < t.stopped && (!isTerminal || pod.IsStatic(p)):
		return v1.PodRunning
	case t.succeeded == t.stopped:
		return v1.PodSucceeded
	}
	return v1.PodFailed
}

// init counts an ordinary init container. One that waits after it failed is counted only if it will not be tried again.
func (t *tally) init(p *v1.Pod, c *v1.Container, st *v1.ContainerStatus) {
	end := ended(st)
	switch {
	case end == nil:
		t.initPending++
	case end.ExitCode != 0 && !pod.Restarts(p, c, end.ExitCode):
		t.initFailed++
	}
}

// sidecar counts a sidecar. One that has ended does not matter to the pod's phase.
func (t *tally) sidecar(st *v1.ContainerStatus) {
	switch {
	case st == nil:
		t.unknown++
	case st.State.Running != nil:
		t.running++
		if st.Started == nil || !*st.Started {
			t.sidecarPending++
		}
	case ended(st) != nil:
	case st.State.Waiting != nil:
		t.sidecarPending++
		t.waiting++
	default:
		t.sidecarPending++
		t.unknown++
	}
}

func (t *tally) regular(p *v1.Pod, c *v1.Container, st *v1.ContainerStatus) {
	switch end := ended(st); {
	case st == nil:
		t.unknown++
	case st.State.Running != nil:
		t.running++
	case end != nil:
		t.stopped++
		if !pod.Restarts(p, c, end.ExitCode) {
			t.final++
		}
		if st.State.Terminated != nil && end.ExitCode == 0 {
			t.succeeded++
		}
	case st.State.Waiting != nil:
		t.waiting++
	default:
		t.unknown++
	}
}

// ended is how a container ended that does not run: now, or before it began to wait. It is nil if it never ran.
func ended(st *v1.ContainerStatus) *v1.ContainerStateTerminated {
	switch {
	case st == nil || st.State.Running != nil:
		return nil
	case st.State.Terminated != nil:
		return st.State.Terminated
	case st.State.Waiting != nil:
		return st.LastTerminationState.Terminated
	}
	return nil
}

func statusOf(in []v1.ContainerStatus, name string) *v1.ContainerStatus {
	if i := slices.IndexFunc(in, func(st v1.ContainerStatus) bool { return st.Name == name }); i >= 0 {
		return &in[i]
	}
	return nil
}
