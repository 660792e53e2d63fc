package podworkers

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// A job is one update and the step that it leads to.
type job struct {
	UpdateOptions
	step Step
	ctx  context.Context
}

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
		j, ok := w.take(k)
		if !ok {
			continue // for another update, or for the end
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

// take consumes the pending update and decides what it leads to. ok is false if there is nothing to do now.
func (w *Workers) take(k *worker) (j job, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k.gone {
		return job{}, false
	}
	if k.pending == nil {
		k.working = false
		return job{}, false
	}
	j = job{UpdateOptions: *k.pending, step: k.step()}
	if k.startedAt.IsZero() && j.Pod != nil {
		now, ever := w.mayStart(k, j.Pod)
		switch {
		case !ever:
			k.terminatedAt, k.finished, k.pending = time.Now(), true, nil
			w.retire(k)
			w.observe(j, string(j.Type))
			return job{}, false
		case !now:
			k.working = false // the update stays pending
			w.Queue.Enqueue(k.uid, jitter(w.cfg.BackOff))
			return job{}, false
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
	return j, true
}

// do waits for a new status and takes the step. synced reports that it got as far as the step.
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

// await blocks until PLEG has inspected the pod since its last sync. Neither an update nor a kill shortens that.
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
	}
	return k.grace, k.override
}

// finish records the result of a step and reports whether the worker ends.
func (w *Workers) finish(k *worker, j job, terminal bool, err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	log := w.cfg.Log.WithValues("pod", k.ref, "podUID", k.uid)
	label, moved, over := string(j.Type), false, false
	switch {
	case errors.Is(err, context.Canceled):
		log.V(2).Info("Sync exited with context cancellation error", "workType", j.step)
	case err != nil:
		log.Error(err, "Error syncing pod, skipping")
	case j.step == Terminated:
		log.V(4).Info("Pod is complete and the worker can now stop")
		label, over = string(Terminated), true
	case j.RunningPod != nil:
		log.V(4).Info("Pod terminated all orphaned containers successfully and worker can now stop")
		k.terminatedAt, over = time.Now(), true
	case j.step == Terminating:
		log.V(4).Info("Pod terminated all containers successfully")
		k.terminatedAt, moved = time.Now(), true
		k.release()
		k.replay()
	case terminal:
		log.V(4).Info("Pod is terminal")
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
	w.Queue.Enqueue(k.uid, jitter(w.cfg.requeueAfter(moved, err)))
	k.since = time.Now()
	if k.pending != nil {
		k.notify()
	} else {
		k.working = false
	}
	return false
}

func (w *Workers) observe(j job, label string) {
	if !j.StartTime.IsZero() {
		w.cfg.Metrics.PodWorkerDuration.WithLabelValues(label).Observe(time.Since(j.StartTime).Seconds())
	}
}
