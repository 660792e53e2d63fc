package podworkers

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// UpdatePod hands an update to the pod's worker, which is started if there is none. It decides whether the pod's termination
// begins, and never blocks. Once a pod has ended updates are ignored until SyncKnownPods has forgotten it.
func (w *Workers) UpdatePod(o UpdateOptions) {
	o, uid, ref, ok := w.identify(o)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.base.Err() != nil {
		return
	}
	log := w.cfg.Log.WithValues("pod", ref, "podUID", uid, "updateType", o.Type)
	k, known := w.workers[uid]
	if !known {
		log.V(4).Info("Pod is being synced for the first time")
		k = w.newWorker(uid, ref, o.Pod)
		w.workers[uid] = k
	}
	runtimeOnly := o.RunningPod != nil
	if runtimeOnly {
		k.observedRuntime = true
		if spec := k.spec(); spec != nil { // a source has had it meanwhile: end it as what it is
			o.Pod, o.RunningPod = spec, nil
		}
	}
	if known && k.terminating() && o.Type == Create {
		k.restartRequested = true
		log.V(4).Info("Pod is terminating but has been requested to restart with same UID, will be reconciled later")
		return
	}
	if k.finished {
		log.V(4).Info("Pod is finished processing, no further updates")
		complete(o.Kill)
		return
	}
	began := false
	if !k.terminating() {
		if why, deleted, evicted := whyEnd(o, runtimeOnly); why != "" {
			log.V(4).Info(why)
			k.terminatingAt, k.deleted, k.evicted = time.Now(), deleted, evicted
			began = true
		}
	}
	if k.terminated() && runtimeOnly {
		log.V(3).Info("Pod is waiting for termination, ignoring runtime-only kill until after pod worker is fully terminated")
		complete(o.Kill)
		return
	}
	shortened := k.takeKill(&o)
	w.ensureRunning(k, o.Pod)
	if k.pending != nil && !k.pending.StartTime.IsZero() && k.pending.StartTime.Before(o.StartTime) {
		o.StartTime = k.pending.StartTime
	}
	k.pending = &o
	k.working = true
	log.V(4).Info("Notifying pod of pending update", "workType", k.step().String())
	k.notify()
	if (began || shortened) && k.cancel != nil {
		log.V(3).Info("Cancelling current pod sync", "workType", k.step().String())
		k.cancel()
	}
}

// identify says whose update it is. An update without a Pod can only be a kill of a pod that the runtime alone knows.
func (w *Workers) identify(o UpdateOptions) (out UpdateOptions, uid types.UID, ref klog.ObjectRef, ok bool) {
	if o.Pod != nil {
		ref = klog.KObj(o.Pod)
		if o.RunningPod != nil {
			o.RunningPod = nil
			w.cfg.Log.Info("Pod update included RunningPod which is only valid when Pod is not specified",
				"pod", ref, "podUID", o.Pod.UID, "updateType", o.Type)
		}
		return o, o.Pod.UID, ref, true
	}
	uid, ref = o.RunningPod.UID, klog.KRef(o.RunningPod.Namespace, o.RunningPod.Name)
	if o.Type != Kill {
		w.cfg.Log.Info("Pod update is ignored, runtime pods can only be killed", "pod", ref, "podUID", uid, "updateType", o.Type)
		return o, uid, ref, false
	}
	return o, uid, ref, true
}

// newWorker makes the state of a pod that was not known. One that had already ended when this process began has only its
// clearing up before it.
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

// takeKill takes over what an update says of the pod's end, and reports whether the grace period got shorter. Before
// termination was requested and after the containers have ended it means nothing.
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

// complete releases who waits for an end that needs no waiting.
func complete(kill *KillOptions) {
	if kill != nil && kill.Completed != nil {
		close(kill.Completed)
	}
}

// ensureRunning starts the worker's goroutine. Static pods are put in line: of one full name only one may run.
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
	w.wg.Go(func() {
		w.run(k, wake)
		w.cfg.Log.V(3).Info("Pod worker has stopped", "podUID", k.uid)
	})
}

// mayStart reports whether a pod may be synced for the first time: now, or ever. A static pod waits for an earlier one of
// the same full name, and one that shall end before it began needs no end.
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
	line := w.waitingStatic[k.name]
	for len(line) > 0 {
		next := w.workers[line[0]]
		if next == nil || next.terminating() {
			line = line[1:] // it went before its turn came
			continue
		}
		if next != k {
			w.waitingStatic[k.name] = line
			return false, true
		}
		line = line[1:]
		break
	}
	if len(line) == 0 {
		delete(w.waitingStatic, k.name)
	} else {
		w.waitingStatic[k.name] = line
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
