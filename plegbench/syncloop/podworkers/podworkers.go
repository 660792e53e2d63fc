// Package podworkers runs one goroutine for each pod. It syncs the pod again and again, then stops its containers, and
// at last cleans up after it; it never goes back a step. The package follows pkg/kubelet/pod_workers.go; a Syncer does
// the steps.
//
// All updates of a pod go through UpdatePod, which never blocks: of the updates during a step only the newest is kept.
// Before each step the worker waits for a status newer than its last step, without a deadline.
package podworkers

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
)

// An UpdateType is the reason of an update. Its text is the label operation_type of
// kubelet_pod_worker_duration_seconds.
type UpdateType string

// The types of updates.
const (
	Sync   UpdateType = "sync"   // the pod is due, or something happened to it
	Update UpdateType = "update" // its desired state changed
	Create UpdateType = "create" // a source has it now
	Kill   UpdateType = "kill"   // it has to end
)

// UpdateOptions are one update of one pod.
type UpdateOptions struct {
	Type       UpdateType
	StartTime  time.Time // of the cause, for the metrics; merged updates keep the oldest
	Pod        *v1.Pod
	MirrorPod  *v1.Pod        // of a static pod; nil means that there is none now
	RunningPod *container.Pod // instead of Pod if only the runtime knows the pod; for Kill only
	Kill       *KillOptions   // for Kill only; may be nil
}

// KillOptions say how a pod ends.
type KillOptions struct {
	Completed      chan<- struct{}     // closed once the containers have ended
	Evict          bool                // the node evicts it
	StatusOverride func(*v1.PodStatus) // changes the reported status from now on
	GraceOverride  *int64              // seconds; it can only make the grace period shorter
}

// A Syncer does the work of each step. A step that fails is repeated later. ctx ends when the pod's termination begins
// or gets more urgent.
type Syncer interface {
	// SyncPod does what the pod needs now. terminal reports that its containers have ended by themselves, for good.
	SyncPod(ctx context.Context, t UpdateType, pod, mirror *v1.Pod, status *container.PodStatus) (terminal bool, err error)
	// SyncTerminatingPod stops the containers. Without an error none runs any more. grace is in seconds, never nil.
	SyncTerminatingPod(ctx context.Context, pod *v1.Pod, status *container.PodStatus, grace *int64,
		override func(*v1.PodStatus)) error
	// SyncTerminatingRuntimePod stops the containers of a pod that only the runtime knows.
	SyncTerminatingRuntimePod(ctx context.Context, running *container.Pod) error
	// SyncTerminatedPod cleans up after the containers have ended.
	SyncTerminatedPod(ctx context.Context, pod *v1.Pod, status *container.PodStatus) error
}

// A StatusCache has what the runtime knows of each pod.
type StatusCache interface {
	// Get returns what is known now.
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
	ResyncInterval   time.Duration // after a sync without an error; 0 is 60 s (syncFrequency)
	BackOff          time.Duration // after a failed one; 0 is 10 s (backOffPeriod)
	TransientBackOff time.Duration // after one that waits for the network; 0 is 1 s (backOffOnTransientErrorPeriod)
}

// Workers are the workers of all pods.
type Workers struct {
	cfg    Config
	Queue  *WorkQueue      // pods to be synced later
	base   context.Context // of all goroutines
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu            sync.Mutex // guards what follows, and every worker
	workers       map[types.UID]*worker
	startedStatic map[string]types.UID   // full name to the one static pod of that name that may run
	waitingStatic map[string][]types.UID // full name to later ones, oldest first
	podsSynced    bool                   // SyncKnownPods was called: pods without a worker do not run
}

// New makes Workers, which accept updates at once. Run ends them.
func New(cfg Config) *Workers {
	cfg.ResyncInterval = cmp.Or(cfg.ResyncInterval, time.Minute)
	cfg.BackOff = cmp.Or(cfg.BackOff, 10*time.Second)
	cfg.TransientBackOff = cmp.Or(cfg.TransientBackOff, time.Second)
	w := &Workers{
		cfg: cfg, Queue: &WorkQueue{due: map[types.UID]time.Time{}}, workers: map[types.UID]*worker{},
		startedStatic: map[string]types.UID{}, waitingStatic: map[string][]types.UID{},
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
	w.Wait()
	return ctx.Err()
}

// Wait blocks until all workers have ended. It is for after Run's context.
func (w *Workers) Wait() { w.wg.Wait() }
