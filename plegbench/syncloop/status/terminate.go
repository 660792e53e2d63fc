package status

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// TerminatePod completes the status of a pod of which nothing runs any more and nothing is left on the node but dead
// containers. A container whose end is not known has failed. From now on the pod may be deleted at the API server.
func (m *Manager) TerminatePod(p *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old, known := m.pods[p.UID]
	st := *p.Status.DeepCopy()
	if known {
		st = *old.status.DeepCopy()
	}
	finish(p, &st)
	if !pod.IsStatic(p) && !pod.IsTerminal(st.Phase) {
		m.cfg.Log.V(3).Info("Marking terminal pod as failed", "oldPhase", st.Phase, "pod", klog.KObj(p), "podUID", p.UID)
		st.Phase = v1.PodFailed
	}
	m.update(p, st, true, true)
}

// finish ends every container in a status that is not known to have ended, but for those that were never started.
func finish(p *v1.Pod, st *v1.PodStatus) {
	if hasInitialized(p) {
		for i := range st.ContainerStatuses {
			end(&st.ContainerStatuses[i])
		}
	}
	// The init containers after the last one that ever ran were not started; the first one counts as started in any
	// case.
	last := 0
	for i := range st.InitContainerStatuses {
		if c := &st.InitContainerStatuses[i]; c.State.Waiting == nil || c.LastTerminationState.Terminated != nil {
			last = i
		}
	}
	for i := range st.InitContainerStatuses[:min(last+1, len(st.InitContainerStatuses))] {
		end(&st.InitContainerStatuses[i])
	}
}

func end(c *v1.ContainerStatus) {
	if c.State.Terminated == nil {
		c.State = v1.ContainerState{Terminated: unknownStatus(lostAtTermination)}
	}
}

// hasInitialized reports whether a pod's regular containers were ever started, as its status shows.
func hasInitialized(p *v1.Pod) bool {
	if len(p.Spec.InitContainers) == 0 {
		return true
	}
	for i := range p.Status.ContainerStatuses {
		if c := &p.Status.ContainerStatuses[i]; c.LastTerminationState.Terminated != nil || c.State.Waiting == nil {
			return true
		}
	}
	n := len(p.Status.InitContainerStatuses)
	if n == 0 {
		return false
	}
	last := &p.Status.InitContainerStatuses[n-1]
	spec := pod.Container(p.Spec.InitContainers, last.Name)
	switch {
	case spec == nil:
		return false
	case pod.IsSidecar(spec):
		return last.State.Running != nil && last.Started != nil && *last.Started
	}
	succeeded := func(t *v1.ContainerStateTerminated) bool { return t != nil && t.ExitCode == 0 }
	return succeeded(last.State.Terminated) || succeeded(last.LastTerminationState.Terminated)
}
