package podworkers

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// A PodWorkType is a phase in the life of a pod's worker. Each leads to the next only.
type PodWorkType string

// The phases.
const (
	SyncPodWork        PodWorkType = "sync"
	TerminatingPodWork PodWorkType = "terminating"
	TerminatedPodWork  PodWorkType = "terminated"
)

// A worker is the state of one pod. Workers.mu guards all of it but uid, ref, name and wake.
type worker struct {
	uid  types.UID
	ref  klog.ObjectRef
	name string        // full name
	wake chan struct{} // one slot; written to and closed under the lock only
	gone bool          // wake is closed, or its goroutine is about to return

	ctx    context.Context // of the step under way
	cancel context.CancelFunc

	pending *UpdatePodOptions // not yet taken by the goroutine
	active  *UpdatePodOptions // last taken by the goroutine

	startedAt     time.Time // allowed to sync
	terminatingAt time.Time // termination was requested
	terminatedAt  time.Time // no container runs any more

	deleted          bool // removed from its source, or being deleted
	evicted          bool
	finished         bool // nothing is left to be done
	restartRequested bool // created again, under the same UID, after termination was requested
	observedRuntime  bool // it was killed as an orphan

	grace     int64 // seconds; 0 until termination is requested
	completed []chan<- struct{}
	override  func(*v1.PodStatus) // the last one

	waiting bool      // in the cache
	working bool      // handles an update, or has one pending
	since   time.Time // of the last change of waiting or working
}

func (k *worker) workType() PodWorkType {
	switch {
	case !k.terminatedAt.IsZero():
		return TerminatedPodWork
	case k.terminating():
		return TerminatingPodWork
	}
	return SyncPodWork
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

// release closes the channels that wait for the end of the containers.
func (k *worker) release() {
	for _, ch := range k.completed {
		close(ch)
	}
	k.completed, k.override = nil, nil
}

// requeueLastPodUpdate queues the last update again, unless there is a newer one.
func (k *worker) requeueLastPodUpdate() {
	if k.pending != nil || k.active == nil {
		return
	}
	again := *k.active
	k.pending = &again
	k.working = true
	k.notify()
}

// spec is the pod as its source last had it, or nil.
func (k *worker) spec() *v1.Pod {
	for _, o := range []*UpdatePodOptions{k.pending, k.active} {
		if o != nil && o.Pod != nil {
			return o.Pod
		}
	}
	return nil
}

// effectiveGrace is the grace period, in seconds, of a pod whose last one was previous, or 0 if it had none yet: the
// shortest of those requested, or else the one in the pod's spec, and at least one second. shortened reports a change.
func effectiveGrace(previous int64, p *v1.Pod, override *int64) (grace int64, shortened bool) {
	if p == nil {
		p = &v1.Pod{}
	}
	grace = previous
	for _, seconds := range []*int64{p.DeletionGracePeriodSeconds, override} {
		if seconds != nil && (grace == 0 || *seconds < grace) {
			grace = max(1, *seconds)
		}
	}
	if grace == 0 && p.Spec.TerminationGracePeriodSeconds != nil {
		grace = *p.Spec.TerminationGracePeriodSeconds
	}
	grace = max(1, grace)
	return grace, previous != 0 && grace != previous
}

// whyEnd returns the kubelet's text for an update that begins a pod's termination, or "".
func whyEnd(o *UpdatePodOptions) (why string, deleted, evicted bool) {
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

// A podWork is one update and the phase in which it is handled.
type podWork struct {
	UpdatePodOptions
	workType PodWorkType
	ctx      context.Context
}

// podWorkerLoop is the goroutine of one pod.
func (w *Workers) podWorkerLoop(k *worker) {
	var lastSync time.Time
	for {
		select {
		case <-w.base.Done():
			return
		case _, ok := <-k.wake:
			if !ok {
				return
			}
		}
		j, ok := w.startPodSync(k)
		if !ok {
			continue // for another update, or for the end
		}
		synced, terminal, err := w.syncStep(k, j, lastSync)
		if w.base.Err() != nil {
			return
		}
		if synced {
			lastSync = time.Now()
		}
		if w.completeSync(k, j, terminal, err) {
			return
		}
	}
}

// startPodSync takes the pending update. ok is false if there is nothing to do now.
func (w *Workers) startPodSync(k *worker) (j podWork, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k.gone {
		return podWork{}, false
	}
	if k.pending == nil {
		k.working = false
		return podWork{}, false
	}
	j = podWork{UpdatePodOptions: *k.pending, workType: k.workType()}
	if k.startedAt.IsZero() && j.Pod != nil {
		switch static := pod.IsStatic(j.Pod); {
		case static && k.terminating(): // it has to end before it began
			k.terminatedAt, k.finished, k.pending = time.Now(), true, nil
			w.retire(k)
			w.observe(j, string(j.Type))
			return podWork{}, false
		case static && w.startedStatic[k.name] != "" && w.startedStatic[k.name] != k.uid:
			k.working = false // the update stays pending until the earlier pod of this name has ended
			w.enqueue(k.uid, w.cfg.BackOff)
			return podWork{}, false
		case static:
			w.startedStatic[k.name] = k.uid
		}
		k.startedAt = time.Now()
	}
	k.pending = nil
	if k.ctx == nil || k.ctx.Err() != nil {
		k.ctx, k.cancel = context.WithCancel(w.base)
	}
	j.ctx = k.ctx
	// A requeued update is a sync without a start time. It needs no mirror, since only the later phases use it.
	k.active = &UpdatePodOptions{Type: Sync, Pod: j.Pod, RunningPod: j.RunningPod}
	k.since = time.Now()
	return j, true
}

// syncStep waits for a new status and calls the Syncer. synced reports that it got as far as that call.
func (w *Workers) syncStep(k *worker, j podWork, lastSync time.Time) (synced, terminal bool, err error) {
	if j.RunningPod != nil {
		return true, false, w.cfg.Syncer.SyncTerminatingRuntimePod(j.ctx, j.RunningPod)
	}
	w.setWaiting(k, true) // until PLEG has inspected the pod since its last sync; not even a kill shortens that
	status, err := w.cfg.Cache.GetNewerThan(w.base, k.uid, lastSync)
	w.setWaiting(k, false)
	if err != nil {
		if w.base.Err() == nil {
			w.cfg.Recorder.Eventf(j.Pod, v1.EventTypeWarning, "FailedSync", "error determining status: %v", err)
		}
		return false, false, err
	}
	switch j.workType {
	case TerminatedPodWork:
		err = w.cfg.Syncer.SyncTerminatedPod(j.ctx, j.Pod, status)
	case TerminatingPodWork:
		w.mu.Lock()
		grace, override := k.grace, k.override
		w.mu.Unlock()
		err = w.cfg.Syncer.SyncTerminatingPod(j.ctx, j.Pod, status, &grace, override)
	default:
		terminal, err = w.cfg.Syncer.SyncPod(j.ctx, j.Type, j.Pod, j.MirrorPod, status)
	}
	return true, terminal, err
}

func (w *Workers) setWaiting(k *worker, waiting bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k.waiting, k.since = waiting, time.Now()
}

// completeSync records the result of a step and reports whether the worker ends.
func (w *Workers) completeSync(k *worker, j podWork, terminal bool, err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	log := w.cfg.Log.WithValues("pod", k.ref, "podUID", k.uid)
	label, moved, over := string(j.Type), false, false
	switch {
	case errors.Is(err, context.Canceled):
		log.V(2).Info("Sync exited with context cancellation error", "workType", j.workType)
	case err != nil:
		log.Error(err, "Error syncing pod, skipping")
	case j.workType == TerminatedPodWork:
		log.V(4).Info("Pod is complete and the worker can now stop")
		label, over = string(TerminatedPodWork), true
	case j.RunningPod != nil:
		log.V(4).Info("Pod terminated all orphaned containers successfully and worker can now stop")
		k.terminatedAt, over = time.Now(), true
	case j.workType == TerminatingPodWork:
		log.V(4).Info("Pod terminated all containers successfully")
		k.terminatedAt, moved = time.Now(), true
		k.release()
		k.requeueLastPodUpdate()
	case terminal:
		log.V(4).Info("Pod is terminal")
		if !k.terminating() { // a request may have come during the sync
			k.terminatingAt = time.Now()
			k.grace, _ = effectiveGrace(0, j.Pod, nil)
		}
		moved = true
		k.requeueLastPodUpdate()
	}
	w.observe(j, label)
	if over {
		k.finished, k.pending = true, nil
		w.retire(k)
		return true
	}
	w.enqueue(k.uid, w.cfg.requeueAfter(moved, err))
	k.since = time.Now()
	if k.pending != nil {
		k.notify()
	} else {
		k.working = false
	}
	return false
}

func (w *Workers) observe(j podWork, label string) {
	if !j.StartTime.IsZero() {
		w.cfg.Metrics.PodWorkerDuration.WithLabelValues(label).Observe(time.Since(j.StartTime).Seconds())
	}
}
