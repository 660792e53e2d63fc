package podworkers

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A WorkState is what SyncKnownPods says of a pod that has a worker.
type WorkState struct {
	Step      Step
	Orphan    bool // no source wants it any more
	HasConfig bool // a source has had it; false: only the runtime knows it
	Static    bool
}

// SyncKnownPods tells the workers which pods are desired. It ends those that are not, forgets those that have ended and are not
// desired, or were created again meanwhile, and returns the rest. A desired pod that is not among them shall be created
// again. From the first call on, a pod without a worker is known not to run.
func (w *Workers) SyncKnownPods(desired []*v1.Pod) map[types.UID]WorkState {
	known := make(map[types.UID]bool, len(desired))
	for _, p := range desired {
		known[p.UID] = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.podsSynced = true
	out := make(map[types.UID]WorkState, len(w.workers))
	for uid, k := range w.workers {
		orphan := !known[uid]
		if (orphan || k.restartRequested) && w.forget(k, orphan) {
			continue
		}
		out[uid] = WorkState{Step: k.step(), Orphan: orphan, HasConfig: k.spec() != nil, Static: k.static()}
	}
	return out
}

// forget removes what is known of a pod that has ended, or never began, and reports whether it did. What still lives and is
// not desired is brought on its way to its end.
func (w *Workers) forget(k *worker, orphan bool) bool {
	log := w.cfg.Log.V(4).WithValues("podUID", k.uid)
	switch {
	case k.finished:
		if k.restartRequested {
			log.Info("Pod has been terminated but another pod with the same UID was created, remove history to allow restart")
		} else {
			log.Info("Pod has been terminated and is no longer known to the kubelet, remove all history")
		}
	case !orphan:
		log.Info("Pod worker has been requested for removal but is still not fully terminated")
		return false
	case k.startedAt.IsZero() && !k.observedRuntime:
		log.Info("Pod is orphaned and has not been started")
	case !k.terminating():
		k.terminatingAt = time.Now()
		k.grace, _ = effectiveGrace(0, k.spec(), nil)
		k.replay()
		log.Info("Pod is orphaned and still running, began terminating")
		return false
	default:
		k.replay()
		log.Info("Pod is orphaned and still terminating, notified the pod worker")
		return false
	}
	delete(w.workers, k.uid)
	w.retire(k)
	return true
}

// ask answers for a pod out of its worker, or, if it has none, says whether all pods had one.
func (w *Workers) ask(uid types.UID, answer func(k *worker) bool, unknown func(podsSynced bool) bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k := w.workers[uid]; k != nil {
		return answer(k)
	}
	return unknown(w.podsSynced)
}

func no(bool) bool     { return false }
func same(b bool) bool { return b }

// IsPodKnownTerminated reports whether the containers of a pod with a worker have ended.
func (w *Workers) IsPodKnownTerminated(uid types.UID) bool {
	return w.ask(uid, (*worker).terminated, no)
}

// CouldHaveRunningContainers reports whether a container of the pod may run. Before all pods were seen any may.
func (w *Workers) CouldHaveRunningContainers(uid types.UID) bool {
	return w.ask(uid, func(k *worker) bool { return !k.terminated() }, func(synced bool) bool { return !synced })
}

// ShouldPodBeFinished reports whether all that is to be done for the pod is done.
func (w *Workers) ShouldPodBeFinished(uid types.UID) bool {
	return w.ask(uid, func(k *worker) bool { return k.finished }, same)
}

// IsPodTerminationRequested reports whether the pod of a worker shall end, or has ended.
func (w *Workers) IsPodTerminationRequested(uid types.UID) bool {
	return w.ask(uid, (*worker).terminating, no)
}

// ShouldPodRuntimeBeRemoved reports whether the pod's sandboxes may be removed.
func (w *Workers) ShouldPodRuntimeBeRemoved(uid types.UID) bool {
	return w.ask(uid, (*worker).terminated, same)
}

// ShouldPodContentBeRemoved reports whether all of the pod's dead containers may be removed, with what they have left.
func (w *Workers) ShouldPodContentBeRemoved(uid types.UID) bool {
	return w.ask(uid, func(k *worker) bool { return k.evicted || k.deleted && k.terminated() }, same)
}

// IsPodForMirrorPodTerminatingByFullName reports whether the static pod of that full name is being ended: its mirror has to
// stay until then.
func (w *Workers) IsPodForMirrorPodTerminatingByFullName(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.workers[w.startedStatic[name]]
	return k != nil && k.terminating() && !k.terminated()
}

// A WorkerState is what a worker is at, for those who watch.
type WorkerState struct {
	UID            types.UID
	Name           string // namespace/name
	Step           string // sync, terminating, terminated, finished
	Started        bool   // false: it waits for its turn, a static pod of the same name being there
	Stopping       bool   // its containers are being stopped
	WaitingInCache bool   // for PLEG to see the pod again
	Busy           bool   // it is at work, or has an update before it
	Since          time.Time
}

// Snapshot returns what all workers are at, by name.
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
	slices.SortFunc(out, func(a, b WorkerState) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID)) })
	return out
}
