package podworkers

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// UpdatePod hands an update to the pod's worker, which is started if there is none. It decides whether the pod's
// termination begins, and never blocks. Updates of a pod that has ended are ignored until SyncKnownPods has forgotten
// it.
func (w *Workers) UpdatePod(o UpdateOptions) {
	var uid types.UID
	var ref klog.ObjectRef
	if o.Pod != nil {
		uid, ref = o.Pod.UID, klog.KObj(o.Pod)
	} else {
		uid, ref = o.RunningPod.UID, klog.KRef(o.RunningPod.Namespace, o.RunningPod.Name)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.base.Err() != nil {
		return
	}
	log := w.cfg.Log.V(4).WithValues("pod", ref, "podUID", uid, "updateType", o.Type)
	k, known := w.workers[uid]
	if !known {
		log.Info("Pod is being synced for the first time")
		k = w.newWorker(uid, ref, o.Pod)
		w.workers[uid] = k
	}
	if known && k.terminating() && o.Type == Create {
		k.restartRequested = true
		log.Info("Pod is terminating but has been requested to restart with same UID, will be reconciled later")
		return
	}
	began := false
	if !k.terminating() {
		if why, deleted, evicted := whyEnd(&o); why != "" {
			log.Info(why)
			k.terminatingAt, k.deleted, k.evicted = time.Now(), deleted, evicted
			began = true
		}
	}
	if runtimeOnly := o.RunningPod != nil; k.finished || k.terminated() && runtimeOnly {
		complete(o.Kill)
		return
	} else if runtimeOnly {
		k.observedRuntime = true
		if spec := k.spec(); spec != nil { // a source has had it meanwhile: it ends like other pods
			o.Pod, o.RunningPod = spec, nil
		}
	}
	shortened := k.takeKill(&o)
	w.ensureRunning(k, o.Pod)
	if k.pending != nil && !k.pending.StartTime.IsZero() && k.pending.StartTime.Before(o.StartTime) {
		o.StartTime = k.pending.StartTime
	}
	k.pending = &o
	k.working = true
	k.notify()
	if (began || shortened) && k.cancel != nil {
		log.Info("Cancelling current pod sync", "workType", k.step())
		k.cancel()
	}
}

// newWorker makes the worker of a new pod. A pod that had already ended when this process began has only to be cleaned
// up.
func (w *Workers) newWorker(uid types.UID, ref klog.ObjectRef, p *v1.Pod) *worker {
	now := time.Now()
	k := &worker{uid: uid, ref: ref, name: ref.Name + "_" + ref.Namespace, gone: true, since: now}
	if p == nil || !pod.IsTerminal(p.Status.Phase) {
		return k
	}
	if status, err := w.cfg.Cache.Get(uid); err == nil && idle(status) {
		k.terminatingAt, k.terminatedAt, k.startedTerminating = now, now, true
	}
	return k
}

// takeKill applies the kill options of an update, and reports whether the grace period got shorter. They have no effect
// before termination was requested and after the containers have ended.
func (k *worker) takeKill(o *UpdateOptions) (shortened bool) {
	kill := o.Kill
	o.Kill = nil
	if !k.terminating() || k.terminated() {
		complete(kill)
		return false
	}
	var override *int64
	if kill != nil {
		override = kill.GraceOverride
		if kill.Completed != nil {
			k.completed = append(k.completed, kill.Completed)
		}
		if kill.StatusOverride != nil {
			k.override = kill.StatusOverride
		}
	}
	k.grace, shortened = effectiveGrace(k.grace, o.Pod, override)
	return shortened
}

// complete closes the channel of kill options that have no effect.
func complete(kill *KillOptions) {
	if kill != nil && kill.Completed != nil {
		close(kill.Completed)
	}
}

// ensureRunning starts the worker's goroutine. Static pods are queued: of one full name only one may run.
func (w *Workers) ensureRunning(k *worker, p *v1.Pod) {
	if !k.gone {
		return
	}
	k.gone = false
	k.wake = make(chan struct{}, 1)
	if p != nil && pod.IsStatic(p) {
		w.waitingStatic[k.name] = append(w.waitingStatic[k.name], k.uid)
	}
	wake := k.wake
	w.wg.Go(func() { w.run(k, wake) })
}

// mayStart reports whether a pod may be synced for the first time: now, or ever. A static pod waits for an earlier one
// of the same full name, and one that has to end before it began never starts.
func (w *Workers) mayStart(k *worker, p *v1.Pod) (now, ever bool) {
	if !pod.IsStatic(p) {
		return true, true
	}
	if k.terminating() {
		return false, false
	}
	if uid, taken := w.startedStatic[k.name]; taken {
		return uid == k.uid, true
	}
	line := slices.DeleteFunc(w.waitingStatic[k.name], func(uid types.UID) bool {
		return w.workers[uid] == nil || w.workers[uid].terminating() // it ended before its turn
	})
	if len(line) > 0 && line[0] != k.uid {
		w.waitingStatic[k.name] = line
		return false, true
	}
	if w.waitingStatic[k.name] = line[min(1, len(line)):]; len(line) <= 1 {
		delete(w.waitingStatic, k.name)
	}
	w.startedStatic[k.name] = k.uid
	return true, true
}

// retire ends a worker's goroutine and makes way for the next static pod of its name.
func (w *Workers) retire(k *worker) {
	k.retire()
	if w.startedStatic[k.name] == k.uid {
		delete(w.startedStatic, k.name)
	}
}
