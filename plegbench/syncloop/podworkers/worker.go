package podworkers

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// A Step is a phase of a pod's life here, in the kubelet's terms. Each leads to the next only.
type Step string

// The steps.
const (
	Syncing     Step = "sync"
	Terminating Step = "terminating"
	Terminated  Step = "terminated"
)

// String returns the step's name.
func (s Step) String() string { return string(s) }

// A worker is the state of one pod. Workers.mu guards all of it but uid, ref, name and wake.
type worker struct {
	uid  types.UID
	ref  klog.ObjectRef
	name string        // full name
	wake chan struct{} // one slot; written to and closed under the lock only
	gone bool          // wake is closed, or its goroutine is about to return

	ctx    context.Context // of the step under way
	cancel context.CancelFunc

	pending *UpdateOptions // not yet taken by the goroutine
	active  *UpdateOptions // last taken by the goroutine

	startedAt     time.Time // allowed to sync
	terminatingAt time.Time // termination was requested
	terminatedAt  time.Time // no container runs any more

	startedTerminating bool // the goroutine has taken the request
	deleted            bool // removed from its source, or being deleted
	evicted            bool
	finished           bool // nothing is left to be done
	restartRequested   bool // created again, under the same UID, after termination was requested
	observedRuntime    bool // it was killed as an orphan

	grace     int64 // seconds; 0 until termination is requested
	completed []chan<- struct{}
	override  func(*v1.PodStatus) // the last one

	waiting bool      // in the cache
	working bool      // handles an update, or has one pending
	since   time.Time // of the last change of waiting or working
}

func (k *worker) step() Step {
	switch {
	case !k.terminatedAt.IsZero():
		return Terminated
	case k.terminating():
		return Terminating
	}
	return Syncing
}

// terminating reports whether termination was requested, or is complete.
func (k *worker) terminating() bool { return !k.terminatingAt.IsZero() }

func (k *worker) terminated() bool { return !k.terminatedAt.IsZero() }

// notify wakes the goroutine, which finds the pending update.
func (k *worker) notify() {
	if k.gone {
		return
	}
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// retire ends the goroutine, at the latest when it takes its next update, and closes the channels that wait for the
// pod's end.
func (k *worker) retire() {
	if !k.gone {
		k.gone = true
		close(k.wake)
	}
	if k.cancel != nil {
		k.cancel()
	}
	k.release()
	k.working = false
}

// release closes the channels that wait for the end of the containers.
func (k *worker) release() {
	for _, ch := range k.completed {
		close(ch)
	}
	k.completed, k.override = nil, nil
}

// replay queues the last update again, unless there is a newer one.
func (k *worker) replay() {
	if k.pending != nil || k.active == nil {
		return
	}
	again := *k.active
	k.pending = &again
	k.working = true
	k.notify()
}

// remember makes an update the active one, to be replayed as a sync without a start time. The mirror is not needed,
// since only the later steps are replayed.
func (k *worker) remember(o UpdateOptions) {
	k.active = &UpdateOptions{Type: Sync, Pod: o.Pod, RunningPod: o.RunningPod}
}

// spec is the pod as its source last had it, or nil.
func (k *worker) spec() *v1.Pod {
	for _, o := range []*UpdateOptions{k.pending, k.active} {
		if o != nil && o.Pod != nil {
			return o.Pod
		}
	}
	return nil
}

// effectiveGrace is the grace period, in seconds, of a pod whose last one was previous, or 0 if it had none yet: the
// shortest of those requested, or else the one in the pod's spec, and at least one second. shortened reports a change.
func effectiveGrace(previous int64, p *v1.Pod, override *int64) (grace int64, shortened bool) {
	grace = previous
	asked := false
	take := func(seconds *int64) {
		if seconds != nil && (grace == 0 && !asked || *seconds < grace) {
			grace, asked = *seconds, true
		}
	}
	if p != nil {
		take(p.DeletionGracePeriodSeconds)
	}
	take(override)
	if grace == 0 && !asked && p != nil && p.Spec.TerminationGracePeriodSeconds != nil {
		grace = *p.Spec.TerminationGracePeriodSeconds
	}
	grace = max(1, grace)
	return grace, previous != 0 && grace != previous
}

// whyEnd returns what in an update begins a pod's termination, with the kubelet's text, or "".
func whyEnd(o *UpdateOptions) (why string, deleted, evicted bool) {
	switch {
	case o.RunningPod != nil:
		return "Pod is orphaned and must be torn down", true, false
	case o.Pod.DeletionTimestamp != nil:
		return "Pod is marked for graceful deletion, begin teardown", true, false
	case pod.IsTerminal(o.Pod.Status.Phase):
		return "Pod is in a terminal phase (success/failed), begin teardown", false, false
	case o.Type == Kill && o.Kill != nil && o.Kill.Evict:
		return "Pod is being evicted by the kubelet, begin teardown", false, true
	case o.Type == Kill:
		return "Pod is being removed by the kubelet, begin teardown", false, false
	}
	return "", false, false
}

// idle reports whether nothing runs in a status: no container and no sandbox.
func idle(s *container.PodStatus) bool {
	for _, sb := range s.SandboxStatuses {
		if container.SandboxState(sb.GetState()) == container.Running {
			return false
		}
	}
	return len(s.Running()) == 0
}
