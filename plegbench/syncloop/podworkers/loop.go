package podworkers

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// A job is one update with the step that it leads to.
type job struct {
	UpdateOptions
	step Step
	ctx  context.Context
}

// A verdict is what becomes of an update that was taken up.
type verdict int

const (
	goAhead verdict = iota
	later           // stay, and wait for another update
	never           // end: there is nothing to do for this pod, now or ever
)

// run is the goroutine of one pod.
func (w *Workers) run(k *worker, wake <-chan struct{}) {
	var lastSync time.Time
	for {
		select {
		case <-w.base.Done():
			return
		case _, ok := <-wake:
			if !ok {
				return
			}
		}
		j, v := w.take(k)
		if v == never {
			return
		}
		if v == later {
			continue
		}
		synced, terminal, err := w.do(k, j, lastSync)
		if w.base.Err() != nil {
			return
		}
		if synced {
			lastSync = time.Now()
		}
		if w.finish(k, j, terminal, err) {
			return
		}
	}
}

// take consumes the pending update and decides what it leads to.
func (w *Workers) take(k *worker) (job, verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	log := w.cfg.Log.V(4).WithValues("pod", k.ref, "podUID", k.uid)
	if w.workers[k.uid] != k {
		log.Info("Pod worker no longer has status, worker should exit")
		return job{}, never
	}
	if k.pending == nil {
		k.working = false
		return job{}, later
	}
	j := job{UpdateOptions: *k.pending, step: k.step()}
	if k.startedAt.IsZero() && j.Pod != nil {
		now, ever := w.mayStart(k, j.Pod)
		switch {
		case !ever:
			log.Info("Pod cannot start ever", "updateType", j.Type)
			k.terminatedAt, k.finished, k.pending = time.Now(), true, nil
			w.retire(k)
			w.observe(j, j.Type.String())
			return job{}, never
		case !now:
			log.Info("Pod cannot start yet", "updateType", j.Type)
			k.working = false // the update stays pending
			w.Queue.Enqueue(k.uid, jitter(w.cfg.BackOff))
			return job{}, later
		}
		k.startedAt = time.Now()
	}
	k.pending = nil
	if k.ctx == nil || k.ctx.Err() != nil {
		k.ctx, k.cancel = context.WithCancel(w.base)
	}
	j.ctx = k.ctx
	k.remember(j.UpdateOptions)
	k.since = time.Now()
	return j, goAhead
}

// do waits for a fresh status and takes the step. synced reports that it got as far as the step.
func (w *Workers) do(k *worker, j job, lastSync time.Time) (synced, terminal bool, err error) {
	if j.RunningPod != nil {
		w.begin(k, j.step)
		return true, false, w.cfg.Syncer.SyncTerminatingRuntimePod(j.ctx, j.RunningPod)
	}
	status, err := w.await(k, lastSync)
	if err != nil {
		if w.base.Err() == nil {
			w.cfg.Recorder.Eventf(j.Pod, v1.EventTypeWarning, "FailedSync", "error determining status: %v", err)
		}
		return false, false, err
	}
	switch j.step {
	case Terminated:
		err = w.cfg.Syncer.SyncTerminatedPod(j.ctx, j.Pod, status)
	case Terminating:
		grace, override := w.begin(k, j.step)
		err = w.cfg.Syncer.SyncTerminatingPod(j.ctx, j.Pod, status, &grace, override)
	default:
		terminal, err = w.cfg.Syncer.SyncPod(j.ctx, j.Type, j.Pod, j.MirrorPod, status)
	}
	return true, terminal, err
}

// await blocks until PLEG has seen the pod since its last sync. Neither an update nor a kill shortens that.
func (w *Workers) await(k *worker, lastSync time.Time) (*container.PodStatus, error) {
	w.setWaiting(k, true)
	defer w.setWaiting(k, false)
	return w.cfg.Cache.GetNewerThan(w.base, k.uid, lastSync)
}

func (w *Workers) setWaiting(k *worker, waiting bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k.waiting, k.since = waiting, time.Now()
}

// begin marks that the containers are being stopped and returns how.
func (w *Workers) begin(k *worker, s Step) (grace int64, override func(*v1.PodStatus)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s == Terminating && !k.startedTerminating {
		k.startedTerminating = true
		w.cfg.Log.V(4).Info("Pod worker has observed request to terminate", "podUID", k.uid)
	}
	return k.grace, k.override
}

// finish draws the conclusions of a step and reports whether the worker is at its end.
func (w *Workers) finish(k *worker, j job, terminal bool, err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	log := w.cfg.Log.WithValues("pod", k.ref, "podUID", k.uid)
	label, moved, over := j.Type.String(), false, false
	switch {
	case errors.Is(err, context.Canceled):
		log.V(2).Info("Sync exited with context cancellation error", "workType", j.step.String())
	case err != nil:
		log.Error(err, "Error syncing pod, skipping")
	case j.step == Terminated:
		log.V(4).Info("Pod is complete and the worker can now stop")
		label, over = Terminated.String(), true
	case j.RunningPod != nil:
		log.V(4).Info("Pod terminated all orphaned containers successfully and worker can now stop")
		k.terminatedAt, over = time.Now(), true
	case j.step == Terminating:
		log.V(4).Info("Pod terminated all containers successfully")
		k.terminatedAt, moved = time.Now(), true
		k.release()
		k.replay()
	case terminal:
		log.V(4).Info("Pod is terminal", "updateType", j.step.String())
		if !k.terminating() { // a request may have come during the sync
			k.terminatingAt = time.Now()
			k.grace, _ = effectiveGrace(0, j.Pod, nil)
		}
		k.startedTerminating, moved = true, true
		k.replay()
	}
	w.observe(j, label)
	if over {
		k.finished, k.pending = true, nil
		w.retire(k)
		return true
	}
	w.Queue.Enqueue(k.uid, jitter(requeueAfter(outcome{moved: moved, err: err, now: time.Now()}, w.cfg)))
	k.since = time.Now()
	if k.pending != nil {
		k.notify()
	} else {
		k.working = false
	}
	log.V(4).Info("Processing pod event done", "updateType", j.step.String())
	return false
}

func (w *Workers) observe(j job, label string) {
	if !j.StartTime.IsZero() {
		w.cfg.Metrics.PodWorkerDuration.WithLabelValues(label).Observe(time.Since(j.StartTime).Seconds())
	}
}
