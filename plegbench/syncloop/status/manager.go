package status

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// A Client is the pods of an API server.
type Client interface {
	GetPod(ctx context.Context, namespace, name string) (*v1.Pod, error)
	PatchPodStatus(ctx context.Context, namespace, name string, patch []byte) (*v1.Pod, error)
	DeletePod(ctx context.Context, namespace, name string, opts metav1.DeleteOptions) error
}

// Pods are the desired pods, static ones with their mirrors.
type Pods interface {
	PodByUID(uid types.UID) (*v1.Pod, bool)
	MirrorOf(static *v1.Pod) (*v1.Pod, bool)
	TranslateUID(uid types.UID) types.UID // a mirror's into that of its static pod, any other into itself
}

// Deletion is what the pod workers know of a pod.
type Deletion interface {
	CouldHaveRunningContainers(uid types.UID) bool
}

// A Config is what New needs. Client and File may both be missing: then statuses are only kept.
type Config struct {
	Client   Client
	File     string // replaced atomically on each change by all statuses as one JSON document
	Pods     Pods
	Deletion Deletion
	Log      logr.Logger
	Metrics  *metrics.Metrics
	Interval time.Duration // between full passes: syncPeriod in pkg/kubelet/status/status_manager.go upstream, 10 s
}

// A Manager keeps the newest status of each pod and reports it. It is safe for use by several goroutines.
type Manager struct {
	cfg  Config
	wake chan struct{}

	mu   sync.Mutex
	pods map[types.UID]cached

	// Of the goroutine in Run alone.
	sent    map[types.UID]uint64 // last version that the API server has, by the UID it has the pod under
	written []byte               // what the file holds
}

// A cached status is the newest of a pod.
type cached struct {
	status          v1.PodStatus
	version         uint64
	name, namespace string
	finished        bool      // SyncTerminatedPod has succeeded: nothing on the node is left to wait for
	at              time.Time // of the oldest change that was not sent yet; zero if there is none
}

// New makes a Manager. Statuses are reported while Run runs.
func New(cfg Config) *Manager {
	return &Manager{cfg: cfg, wake: make(chan struct{}, 1), pods: map[types.UID]cached{}, sent: map[types.UID]uint64{}}
}

// Run reports changes as they come, and everything that differs each interval, until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	if m.cfg.Client == nil {
		m.cfg.Log.Info("Kubernetes client is nil, not starting status manager")
	} else {
		m.cfg.Log.Info("Starting to sync pod status with apiserver")
	}
	tick := time.NewTicker(m.cfg.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			m.writeFile() // what was set last is not lost
			return ctx.Err()
		case <-m.wake:
			m.cfg.Log.V(4).Info("Syncing updated statuses")
			m.report(ctx, false)
		case <-tick.C:
			m.cfg.Log.V(4).Info("Syncing all statuses")
			m.report(ctx, true)
		}
	}
}

func (m *Manager) report(ctx context.Context, all bool) {
	m.writeFile()
	if m.cfg.Client != nil {
		m.syncBatch(ctx, all)
	}
}

// SetPodStatus takes a pod's new status. It is refused if a container would come back from an end that its restart
// policy makes final.
func (m *Manager) SetPodStatus(p *v1.Pod, st v1.PodStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	st = *st.DeepCopy()
	st.ObservedGeneration = p.Generation
	// A pod that is being deleted is looked at again even if nothing changed, since it may be ready to go now.
	m.update(p, st, p.DeletionTimestamp != nil, false)
}

// SetSandboxReady records that a pod's sandbox has its network, before its images are pulled (OnPodSandboxReady in
// pkg/kubelet/kubelet.go).
func (m *Manager) SetSandboxReady(p *v1.Pod) {
	st, known := m.PodStatus(p.UID)
	if !known {
		st = *p.Status.DeepCopy()
	}
	st.Conditions = setCondition(st.Conditions, newCondition(p, v1.PodReadyToStartContainers, v1.ConditionTrue, "", ""))
	m.SetPodStatus(p, st)
}

// PodStatus is the newest status of a pod, by its own UID or its mirror's. It shares nothing with the Manager.
func (m *Manager) PodStatus(uid types.UID) (v1.PodStatus, bool) {
	uid = m.cfg.Pods.TranslateUID(uid)
	m.mu.Lock()
	defer m.mu.Unlock()
	c, ok := m.pods[uid]
	return *c.status.DeepCopy(), ok
}

// Known reports whether there is a status of that pod.
func (m *Manager) Known(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.pods[uid]
	return ok
}

// RemoveOrphanedStatuses forgets the pods that are not to be kept.
func (m *Manager) RemoveOrphanedStatuses(keep map[types.UID]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid := range m.pods {
		if !keep[uid] {
			m.cfg.Log.V(5).Info("Removing pod from status map", "podUID", uid)
			delete(m.pods, uid)
			m.wakeUp() // the file changes
		}
	}
}

func (m *Manager) forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pods, uid)
	m.wakeUp()
}

// SetContainerReadiness takes what a readiness probe found, with what follows for the pod's conditions.
func (m *Manager) SetContainerReadiness(uid types.UID, id container.ID, isReady bool) {
	m.change(uid, id, "readiness", func(p *v1.Pod, st *v1.PodStatus, c *v1.ContainerStatus) bool {
		if c.Ready == isReady {
			return false
		}
		c.Ready = isReady
		all := slices.Concat(st.InitContainerStatuses, st.ContainerStatuses)
		st.Conditions = setCondition(st.Conditions, ready(p, st.Conditions, all, st.Phase))
		st.Conditions = setCondition(st.Conditions, containersReady(p, all, st.Phase))
		return true
	})
}

// SetContainerStartup takes what a startup probe found.
func (m *Manager) SetContainerStartup(uid types.UID, id container.ID, started bool) {
	m.change(uid, id, "startup", func(_ *v1.Pod, _ *v1.PodStatus, c *v1.ContainerStatus) bool {
		if c.Started != nil && *c.Started == started {
			return false
		}
		c.Started = &started
		return true
	})
}

// change applies what a probe found to a copy of the status, and takes it if apply reports a change.
func (m *Manager) change(
	uid types.UID, id container.ID, what string, apply func(*v1.Pod, *v1.PodStatus, *v1.ContainerStatus) bool,
) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.cfg.Pods.PodByUID(uid)
	old, known := m.pods[uid]
	if !ok || !known {
		m.cfg.Log.V(4).Info("Container "+what+" changed of a pod that is gone or not synced yet", "podUID", uid, "containerID", id.String())
		return
	}
	st := *old.status.DeepCopy()
	for _, list := range [][]v1.ContainerStatus{st.ContainerStatuses, st.InitContainerStatuses} {
		i := slices.IndexFunc(list, func(c v1.ContainerStatus) bool { return c.ContainerID == id.String() })
		if i < 0 {
			continue
		}
		if apply(p, &st, &list[i]) {
			m.update(p, st, false, false)
		}
		return
	}
	m.cfg.Log.Info("Container "+what+" changed for unknown container", "pod", klog.KObj(p), "containerID", id.String())
}

// update stores a status if it differs from the last one, or if forced, and has it reported. The lock is held.
func (m *Manager) update(p *v1.Pod, st v1.PodStatus, force, finished bool) {
	old, known := m.pods[p.UID]
	before := old.status
	if !known {
		before = p.Status
		if mirror, ok := m.cfg.Pods.MirrorOf(p); ok {
			before = mirror.Status
		}
	} else if old.finished && !finished && !pod.IsStatic(p) {
		m.cfg.Log.Info("Got unexpected podIsFinished=false, while podIsFinished=true in status cache, programmer error", "pod", klog.KObj(p))
		finished = true
	}
	if err := checkTransitions(&before, &st, p); err != nil {
		m.cfg.Log.Error(err, "Status update on pod aborted", "pod", klog.KObj(p))
		return
	}
	carryOver(&st, &before, time.Now())
	normalize(p, &st)
	if known && !force && equal(&before, &st) {
		m.cfg.Log.V(3).Info("Ignoring same status for pod", "pod", klog.KObj(p), "status", st)
		return
	}
	next := cached{status: st, version: old.version + 1, name: p.Name, namespace: p.Namespace, finished: finished, at: old.at}
	if next.at.IsZero() {
		next.at = time.Now()
	}
	m.pods[p.UID] = next
	m.wakeUp()
}

func (m *Manager) wakeUp() {
	select {
	case m.wake <- struct{}{}:
	default: // a pass is due already
	}
}
