package podworkers

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// SyncKnownPods takes the desired pods. It ends workers of other pods, forgets pods that have ended and are not desired
// or were created again meanwhile, and returns those that still have a worker. A desired pod without a worker has to be
// created again. From the first call on, pods without a worker are known not to run.
func (w *Workers) SyncKnownPods(desired []*v1.Pod) map[types.UID]bool {
	known := make(map[types.UID]bool, len(desired))
	for _, p := range desired {
		known[p.UID] = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.podsSynced = true
	out := map[types.UID]bool{}
	for uid, k := range w.workers {
		orphan := !known[uid]
		if (orphan || k.restartRequested) && w.forget(k, orphan) {
			continue
		}
		out[uid] = true
	}
	return out
}

// forget removes a pod that has ended, or never began, and reports whether it did. Other pods that are not desired are
// brought to their end.
func (w *Workers) forget(k *worker, orphan bool) bool {
	switch {
	case k.finished, orphan && k.startedAt.IsZero() && !k.observedRuntime:
		w.cfg.Log.V(4).Info("Pod has been terminated and is no longer known to the kubelet, remove all history",
			"podUID", k.uid)
		delete(w.workers, k.uid)
		w.retire(k)
		return true
	case !orphan:
		return false
	case !k.terminating():
		w.cfg.Log.V(4).Info("Pod is orphaned and still running, began terminating", "podUID", k.uid)
		k.terminatingAt = time.Now()
		k.grace, _ = effectiveGrace(0, k.spec(), nil)
	}
	k.replay()
	return false
}

// ask evaluates a predicate for the worker of a pod, or returns unknown if there is none.
func (w *Workers) ask(uid types.UID, predicate func(k *worker) bool, unknown func(w *Workers) bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k := w.workers[uid]; k != nil {
		return predicate(k)
	}
	return unknown(w)
}

func never(*Workers) bool       { return false }
func synced(w *Workers) bool    { return w.podsSynced }
func notSynced(w *Workers) bool { return !w.podsSynced }

// IsPodKnownTerminated reports whether the containers of a pod with a worker have ended.
func (w *Workers) IsPodKnownTerminated(uid types.UID) bool {
	return w.ask(uid, (*worker).terminated, never)
}

// CouldHaveRunningContainers reports whether a container of the pod may run. Until all pods are known any may.
func (w *Workers) CouldHaveRunningContainers(uid types.UID) bool {
	return w.ask(uid, func(k *worker) bool { return !k.terminated() }, notSynced)
}

// ShouldPodBeFinished reports whether nothing is left to be done for the pod.
func (w *Workers) ShouldPodBeFinished(uid types.UID) bool {
	return w.ask(uid, func(k *worker) bool { return k.finished }, synced)
}

// IsPodTerminationRequested reports whether the pod of a worker has to end, or has ended.
func (w *Workers) IsPodTerminationRequested(uid types.UID) bool {
	return w.ask(uid, (*worker).terminating, never)
}

// ShouldPodRuntimeBeRemoved reports whether the pod's sandboxes may be removed.
func (w *Workers) ShouldPodRuntimeBeRemoved(uid types.UID) bool {
	return w.ask(uid, (*worker).terminated, synced)
}

// ShouldPodContentBeRemoved reports whether all dead containers of the pod may be removed, with their logs.
func (w *Workers) ShouldPodContentBeRemoved(uid types.UID) bool {
	return w.ask(uid, func(k *worker) bool { return k.evicted || k.deleted && k.terminated() }, synced)
}

// IsPodForMirrorPodTerminatingByFullName reports whether the static pod of that full name is terminating. Its mirror
// has to stay until then.
func (w *Workers) IsPodForMirrorPodTerminatingByFullName(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.workers[w.startedStatic[name]]
	return k != nil && k.terminating() && !k.terminated()
}

// A WorkerState is the state of a worker, for a view.
type WorkerState struct {
	UID            types.UID
	Name           string // namespace/name
	Step           string // sync, terminating, terminated, finished
	Started        bool   // false: it waits for the end of another static pod of the same name
	Stopping       bool   // its containers are being stopped
	WaitingInCache bool   // for PLEG to inspect the pod again
	Busy           bool   // it works, or has a pending update
	Since          time.Time
}

// Snapshot returns the states of all workers, sorted by name.
func (w *Workers) Snapshot() []WorkerState {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]WorkerState, 0, len(w.workers))
	for uid, k := range w.workers {
		s := WorkerState{
			UID: uid, Name: k.ref.String(), Step: k.step().String(), Started: !k.startedAt.IsZero(),
			Stopping: k.startedTerminating && !k.terminated(), WaitingInCache: k.waiting, Busy: k.working, Since: k.since,
		}
		if k.finished {
			s.Step = "finished"
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b WorkerState) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return out
}
