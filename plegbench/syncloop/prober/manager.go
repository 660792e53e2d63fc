// Package prober probes containers: one goroutine for each liveness, readiness and startup probe of a container. The
// results go into Results, from which the syncLoop reads the changes. The rules are those of pkg/kubelet/prober and
// pkg/probe upstream.
package prober

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// A Config configures a Manager.
type Config struct {
	Liveness, Readiness, Startup *Results
	// Exec runs a command in a container and returns its output. The error is an exec.ExitError if the command
	// exited with another code than 0, DeadlineExceeded of gRPC if it took too long, or any other if it could not be
	// run.
	Exec func(ctx context.Context, id container.ID, command []string, timeout time.Duration) ([]byte, error)
	// GRPC calls a health service. Its error is the message of the failure.
	GRPC func(ctx context.Context, addr, service string, timeout time.Duration) error
	// PodStatus is the newest status of a pod, with the containers' ids and the pod's address.
	PodStatus func(uid types.UID) (st v1.PodStatus, known bool)
	Recorder  record.EventRecorder
	Log       logr.Logger
	Metrics   *metrics.Metrics
}

// A kind of probe.
type kind int

const (
	liveness kind = iota
	readiness
	startup
)

// String is the kubelet's name of a kind, in logs, events and metrics.
func (k kind) String() string { return [...]string{"Liveness", "Readiness", "Startup"}[k] }

// probe is the probe of that kind that a container has, or nil.
func (k kind) probe(c *v1.Container) *v1.Probe {
	return [...]*v1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe}[k]
}

// A key identifies a worker.
type key struct {
	uid       types.UID
	container string
	kind      kind
}

// A Manager runs the workers. It is safe for use by several goroutines.
type Manager struct {
	Config
	start time.Time

	// The workers' context. Run ends it.
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	workers map[key]*worker
	running sync.WaitGroup
}

// New makes a Manager without pods. Its workers start with AddPod and end with Run, if not before.
func New(cfg Config) *Manager {
	m := &Manager{Config: cfg, start: time.Now(), workers: map[key]*worker{}}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m
}

// Run waits for the end of ctx, and then of every worker.
func (m *Manager) Run(ctx context.Context) error {
	<-ctx.Done()
	m.mu.Lock()
	m.cancel()
	m.mu.Unlock()
	m.running.Wait()
	return ctx.Err()
}

// AddPod starts the workers of a pod's regular containers and sidecars that do not run yet. A probe that is changed
// later stays as it was.
func (m *Manager) AddPod(p *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers) {
		if pod.Container(p.Spec.InitContainers, c.Name) != nil && !pod.IsSidecar(&c) {
			continue
		}
		for _, k := range []kind{startup, readiness, liveness} {
			at := key{p.UID, c.Name, k}
			if m.ctx.Err() != nil || k.probe(&c) == nil || m.workers[at] != nil {
				continue
			}
			w := newWorker(m, at, p, &c)
			m.workers[at] = w
			m.running.Go(w.run)
		}
	}
}

// StopLivenessAndStartup ends these workers of a terminating pod, except the workers of sidecars.
func (m *Manager) StopLivenessAndStartup(p *v1.Pod) {
	m.stop(func(k key) bool {
		return k.uid == p.UID && k.kind != readiness && pod.Container(p.Spec.Containers, k.container) != nil
	})
}

// RemovePod ends a pod's workers.
func (m *Manager) RemovePod(p *v1.Pod) { m.stop(func(k key) bool { return k.uid == p.UID }) }

// CleanupPods ends the workers of all pods but the desired ones.
func (m *Manager) CleanupPods(desired map[types.UID]bool) {
	m.stop(func(k key) bool { return !desired[k.uid] })
}

func (m *Manager) stop(which func(key) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, w := range m.workers {
		if which(k) {
			w.stop()
		}
	}
}

func (m *Manager) worker(uid types.UID, name string, k kind) *worker {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.workers[key{uid, name, k}]
}

// restartGrace is how long before the start of a kubelet a container must have started to count as one of an earlier
// run (pkg/kubelet/prober/prober_manager.go upstream).
const restartGrace = 10 * time.Second

func (m *Manager) ranBefore(c *v1.ContainerStatus) bool {
	return c.State.Running != nil && c.State.Running.StartedAt.Time.Before(m.start.Add(-restartGrace))
}

// UpdatePodStatus sets started and ready of each container in a status. A regular container or sidecar is ready if it
// has started, and its readiness probe, if it has one, has succeeded; an init container once it has succeeded. A
// readiness probe that has not succeeded yet is run at once. Without a result yet, a container of an earlier run is
// ready if its pod was.
func (m *Manager) UpdatePodStatus(p *v1.Pod, st *v1.PodStatus) {
	for _, list := range [][]v1.ContainerStatus{st.ContainerStatuses, st.InitContainerStatuses} {
		for i := range list {
			c := &list[i]
			c.Started = new(m.isStarted(p, c))
			if spec := pod.Container(p.Spec.InitContainers, c.Name); spec != nil && !pod.IsSidecar(spec) {
				c.Ready = c.Ready || c.State.Terminated != nil && c.State.Terminated.ExitCode == 0
			} else if *c.Started {
				c.Ready = m.isReady(p, c)
			}
		}
	}
}

// isReady reports whether a container that has started is ready.
func (m *Manager) isReady(p *v1.Pod, c *v1.ContainerStatus) bool {
	result, known := m.Readiness.Get(container.ParseID(c.ContainerID))
	if known && result == Success {
		return true
	}
	w := m.worker(p.UID, c.Name, readiness)
	if w != nil {
		select {
		case w.trigger <- struct{}{}:
		default:
			m.Log.Info("Failed to trigger a manual run", "probe", readiness.String())
		}
	}
	spec := pod.Container(slices.Concat(p.Spec.Containers, p.Spec.InitContainers), c.Name)
	if !known && spec != nil && spec.ReadinessProbe != nil && m.ranBefore(c) {
		return slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
			return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
		})
	}
	return w == nil
}

// isStarted reports whether a container runs and its startup probe, if it has one, has succeeded.
func (m *Manager) isStarted(p *v1.Pod, c *v1.ContainerStatus) bool {
	if c.State.Running == nil {
		return false
	}
	if result, ok := m.Startup.Get(container.ParseID(c.ContainerID)); ok {
		return result == Success
	}
	return c.Started != nil && *c.Started || m.worker(p.UID, c.Name, startup) == nil
}

// A Result is the result of a container's probes, after thresholds.
type Result int

// The results.
const (
	Unknown Result = iota - 1
	Success
	Failure
)

// An Update is a changed result.
type Update struct {
	ContainerID container.ID
	PodUID      types.UID
	Result      Result
}

// updatesCap is how many changes wait for the syncLoop (pkg/kubelet/prober/results upstream). If it reads no more of
// them, the probes block.
const updatesCap = 20

// Results are the results of one kind of probe, by container. They are safe for use by several goroutines.
type Results struct {
	updates chan Update

	mu     sync.RWMutex
	result map[container.ID]Result
}

// NewResults makes Results without any.
func NewResults() *Results {
	return &Results{updates: make(chan Update, updatesCap), result: map[container.ID]Result{}}
}

// Get is the result of a container; ok is false if there is none.
func (r *Results) Get(id container.ID) (result Result, ok bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	result, ok = r.result[id]
	return result, ok
}

// Set stores a result. If it is a new one, Set waits until the update is taken, or ctx ends.
func (r *Results) Set(ctx context.Context, id container.ID, uid types.UID, result Result) {
	r.mu.Lock()
	old, ok := r.result[id]
	r.result[id] = result
	r.mu.Unlock()
	if ok && old == result {
		return
	}
	select {
	case r.updates <- Update{ContainerID: id, PodUID: uid, Result: result}:
	case <-ctx.Done():
	}
}

// Remove forgets a container. That is no update.
func (r *Results) Remove(id container.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.result, id)
}

// Updates are the changes, for one reader.
func (r *Results) Updates() <-chan Update { return r.updates }
