// Package podworkers runs one goroutine for each pod, podWorkerLoop. It syncs the pod again and again, then stops its
// containers, and finally cleans up; it never goes back a step. The package follows pkg/kubelet/pod_workers.go; a
// Syncer does the steps.
//
// All updates of a pod go through UpdatePod, which never blocks: of the updates during a step only the newest is kept.
// Before each step the worker waits in GetNewerThan for a status newer than its last step, without a deadline.
package podworkers

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// An UpdateType is the reason for an update. Its text is the label operation_type of
// kubelet_pod_worker_duration_seconds.
type UpdateType string

// The types of updates.
const (
	Sync   UpdateType = "sync"   // the pod is due, or something happened to it
	Update UpdateType = "update" // its desired state changed
	Create UpdateType = "create" // a source has it now
	Kill   UpdateType = "kill"   // it has to end
)

// UpdatePodOptions describe one update of one pod.
type UpdatePodOptions struct {
	Type       UpdateType
	StartTime  time.Time // of the cause, for the metrics; merged updates keep the oldest
	Pod        *v1.Pod
	MirrorPod  *v1.Pod         // of a static pod; nil means that there is none now
	RunningPod *container.Pod  // instead of Pod if only the runtime knows the pod; for Kill only
	Kill       *KillPodOptions // for Kill only; may be nil
}

// KillPodOptions say how a pod ends.
type KillPodOptions struct {
	Completed      chan<- struct{}     // closed once the containers have ended
	Evict          bool                // the node evicts it
	StatusOverride func(*v1.PodStatus) // changes the reported status from now on
	GraceOverride  *int64              // seconds; it can only make the grace period shorter
}

// A Syncer does the work of each step. A step that fails is repeated later. ctx ends when the pod's termination begins
// or gets more urgent.
type Syncer interface {
	// SyncPod brings the pod closer to its spec. terminal reports that its containers have ended by themselves, for good.
	SyncPod(ctx context.Context, t UpdateType, pod, mirror *v1.Pod, status *container.PodStatus) (terminal bool,
		err error)
	// SyncTerminatingPod stops the containers. Without an error none runs any more. grace is in seconds, never nil.
	SyncTerminatingPod(ctx context.Context, pod *v1.Pod, status *container.PodStatus, grace *int64,
		override func(*v1.PodStatus)) error
	// SyncTerminatingRuntimePod stops the containers of a pod that only the runtime knows.
	SyncTerminatingRuntimePod(ctx context.Context, running *container.Pod) error
	// SyncTerminatedPod cleans up after the containers have ended.
	SyncTerminatedPod(ctx context.Context, pod *v1.Pod, status *container.PodStatus) error
}

// A StatusCache has the runtime's status of each pod.
type StatusCache interface {
	// Get returns the status of the pod, an empty one for a pod that is not known.
	Get(uid types.UID) (*container.PodStatus, error)
	// GetNewerThan waits until something newer than t is known.
	GetNewerThan(ctx context.Context, uid types.UID, t time.Time) (*container.PodStatus, error)
}

// ErrNetworkNotReady is the error of a sync that waits for the node's network. The text of other errors may contain its
// text.
var ErrNetworkNotReady = errors.New("network is not ready")

// A Config configures Workers.
type Config struct {
	Syncer           Syncer
	Cache            StatusCache
	Recorder         record.EventRecorder
	Log              logr.Logger
	Metrics          *metrics.Metrics
	ResyncInterval   time.Duration // after a sync without an error; syncFrequency
	BackOff          time.Duration // after a failed one; backOffPeriod
	TransientBackOff time.Duration // after one that waits for the network; backOffOnTransientErrorPeriod
}

// Workers are the workers of all pods.
type Workers struct {
	cfg    Config
	base   context.Context // of all goroutines
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu            sync.Mutex // guards the fields below, and every worker
	workers       map[types.UID]*worker
	due           map[types.UID]time.Time // pods to be synced later
	startedStatic map[string]types.UID    // full name to the one static pod of that name that may run
	podsSynced    bool                    // SyncKnownPods was called: pods without a worker do not run
}

// New makes Workers, which accept updates at once. Run ends them.
func New(cfg Config) *Workers {
	w := &Workers{
		cfg: cfg, workers: map[types.UID]*worker{}, due: map[types.UID]time.Time{},
		startedStatic: map[string]types.UID{},
	}
	w.base, w.cancel = context.WithCancel(context.Background())
	return w
}

// Run blocks until ctx ends, then ends all workers and waits for them. The pods go on running.
func (w *Workers) Run(ctx context.Context) error {
	<-ctx.Done()
	w.mu.Lock() // no worker is started once the lock is free again
	w.cancel()
	w.mu.Unlock()
	w.wg.Wait()
	return ctx.Err()
}

// UpdatePod hands an update to the pod's worker, which is started if there is none. It decides whether the pod's
// termination begins, and never blocks. Updates of a pod that has ended are ignored until SyncKnownPods has forgotten
// it.
func (w *Workers) UpdatePod(o UpdatePodOptions) {
	var uid types.UID
	var ref klog.ObjectRef
	if o.Pod != nil {
		uid, ref = o.Pod.UID, klog.KObj(o.Pod)
	} else {
		uid, ref = o.RunningPod.UID, o.RunningPod.Ref()
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
		k = &worker{
			uid: uid, ref: ref, name: ref.Name + "_" + ref.Namespace, wake: make(chan struct{}, 1), since: time.Now(),
		}
		if p := o.Pod; p != nil && pod.IsTerminal(p.Status.Phase) && w.isPodStatusCacheTerminal(uid) {
			// It ended in an earlier run. What is left to do is the cleaning up; until then it uses nothing.
			k.terminatingAt, k.terminatedAt = k.since, k.since
		}
		w.workers[uid] = k
		w.wg.Go(func() { w.podWorkerLoop(k) })
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
	if k.pending != nil && !k.pending.StartTime.IsZero() && k.pending.StartTime.Before(o.StartTime) {
		o.StartTime = k.pending.StartTime
	}
	k.pending = &o
	k.working = true
	k.notify()
	if (began || shortened) && k.cancel != nil {
		log.Info("Cancelling current pod sync", "workType", k.workType())
		k.cancel()
	}
}

// isPodStatusCacheTerminal reports whether the runtime runs nothing of a pod.
func (w *Workers) isPodStatusCacheTerminal(uid types.UID) bool {
	st, err := w.cfg.Cache.Get(uid)
	return err == nil && len(st.Running()) == 0 &&
		!slices.ContainsFunc(st.SandboxStatuses, func(sb *runtimeapi.PodSandboxStatus) bool {
			return sb.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
		})
}

// takeKill applies the kill options of an update and reports whether the grace period got shorter. Before termination
// is requested, and after the containers have ended, the options have no effect.
func (k *worker) takeKill(o *UpdatePodOptions) (shortened bool) {
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
func complete(kill *KillPodOptions) {
	if kill != nil && kill.Completed != nil {
		close(kill.Completed)
	}
}

// retire ends a worker's goroutine, at the latest when it takes its next update, closes the channels that wait for the
// pod's end, and makes way for the next static pod of its name.
func (w *Workers) retire(k *worker) {
	if !k.gone {
		k.gone = true
		close(k.wake)
	}
	if k.cancel != nil {
		k.cancel()
	}
	k.release()
	k.working = false
	if w.startedStatic[k.name] == k.uid {
		delete(w.startedStatic, k.name)
	}
}

// SyncKnownPods terminates the workers of undesired pods, removes finished workers whose pod is undesired or was
// recreated, and returns the pods that still have a worker. A desired pod without a worker has to be created again.
// From the first call on, pods without a worker are known not to run.
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
		if (orphan || k.restartRequested) && w.removeTerminatedWorker(k, orphan) {
			continue
		}
		out[uid] = true
	}
	return out
}

// removeTerminatedWorker removes a worker that has finished or never began, and reports whether it did. It terminates
// other workers of undesired pods.
func (w *Workers) removeTerminatedWorker(k *worker, orphan bool) bool {
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
	k.requeueLastPodUpdate()
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

// ShouldPodContainersBeTerminating reports whether the pod has to end, so that nothing of it may be started.
func (w *Workers) ShouldPodContainersBeTerminating(uid types.UID) bool {
	return w.ask(uid, (*worker).terminating, synced)
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
	WaitingInCache bool   // for PLEG to inspect the pod again
	Busy           bool   // it works, or has a pending update
	Since          time.Time
}

// States returns the states of all workers, sorted by name.
func (w *Workers) States() []WorkerState {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]WorkerState, 0, len(w.workers))
	for uid, k := range w.workers {
		s := WorkerState{
			UID: uid, Name: k.ref.String(), Step: string(k.workType()), WaitingInCache: k.waiting, Busy: k.working,
			Since: k.since,
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
