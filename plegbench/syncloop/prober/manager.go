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

// A Config is what New needs.
type Config struct {
	Liveness, Readiness, Startup *Results
	// Exec runs a command in a container and returns what it wrote. The error is an exec.ExitError if the command
	// exited with another code than 0, DeadlineExceeded of gRPC if it took too long, or any other if it could not be
	// run.
	Exec func(ctx context.Context, id container.ID, command []string, timeout time.Duration) ([]byte, error)
	// GRPC calls a health service. Its error is the message of the failure.
	GRPC func(ctx context.Context, addr, service string, timeout time.Duration) error
	// PodStatus is the newest status of a pod, with the containers' ids and the pod's address.
	PodStatus func(uid types.UID) (v1.PodStatus, bool)
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
	ended   bool
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
	m.ended = true
	m.mu.Unlock()
	m.cancel()
	m.running.Wait()
	return ctx.Err()
}

// AddPod starts the workers of a pod that do not run yet. A probe that is changed later stays as it was.
func (m *Manager) AddPod(p *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range probed(p) {
		for _, k := range []kind{startup, readiness, liveness} {
			at := key{p.UID, c.Name, k}
			if m.ended || k.probe(c) == nil || m.workers[at] != nil {
				continue
			}
			w := newWorker(m, at, p, c)
			m.workers[at] = w
			m.running.Go(func() { w.run(m.ctx) })
		}
	}
}

// probed are a pod's containers that may have probes: the regular ones and the sidecars.
func probed(p *v1.Pod) []*v1.Container {
	var out []*v1.Container
	for i := range p.Spec.Containers {
		out = append(out, &p.Spec.Containers[i])
	}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; pod.IsSidecar(c) {
			out = append(out, c)
		}
	}
	return out
}

// StopLivenessAndStartup ends these workers of a terminating pod, except those of sidecars.
func (m *Manager) StopLivenessAndStartup(p *v1.Pod) {
	m.stop(func(k key) bool {
		return k.uid == p.UID && k.kind != readiness &&
			slices.ContainsFunc(p.Spec.Containers, func(c v1.Container) bool { return c.Name == k.container })
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
			signal(w.stopped)
		}
	}
}

// signal puts a message into a channel of one slot, unless there is one.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

func (m *Manager) worker(uid types.UID, name string, k kind) *worker {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.workers[key{uid, name, k}]
}

func (m *Manager) removed(k key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.workers, k)
}

// UpdatePodStatus sets started and ready of each container in a status.
func (m *Manager) UpdatePodStatus(p *v1.Pod, st *v1.PodStatus) {
	for i := range st.ContainerStatuses {
		c := &st.ContainerStatuses[i]
		m.updateContainer(p, pod.Container(p.Spec.Containers, c.Name), c)
	}
	for i := range st.InitContainerStatuses {
		c := &st.InitContainerStatuses[i]
		spec := pod.Container(p.Spec.InitContainers, c.Name)
		if spec != nil && pod.IsSidecar(spec) {
			m.updateContainer(p, spec, c)
			continue
		}
		c.Started = new(m.isStarted(p, c))
		c.Ready = c.Ready || c.State.Terminated != nil && c.State.Terminated.ExitCode == 0
	}
}

func (m *Manager) updateContainer(p *v1.Pod, spec *v1.Container, c *v1.ContainerStatus) {
	started := m.isStarted(p, c)
	c.Started = &started
	if started {
		c.Ready = m.isReady(p, spec, c)
	}
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

// isReady reports whether a started container's readiness probe, if it has one, has succeeded. If it has not, it is run
// again at once.
func (m *Manager) isReady(p *v1.Pod, spec *v1.Container, c *v1.ContainerStatus) bool {
	if c.State.Running == nil {
		return false
	}
	result, known := m.Readiness.Get(container.ParseID(c.ContainerID))
	if known && result == Success {
		return true
	}
	w := m.worker(p.UID, c.Name, readiness)
	if w != nil {
		signal(w.trigger)
	}
	if spec == nil || !m.adopted(c) {
		return w == nil
	}
	// It ran before this syncLoop: until it is probed it stays as ready as its pod was, so that a restart of the
	// syncLoop does not take it out of service.
	wasReady := slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
	})
	return (w == nil || !known) && (spec.ReadinessProbe == nil || wasReady)
}

// adoptedBefore is how long before the Manager a container must have started to count as adopted.
const adoptedBefore = 10 * time.Second

// adopted reports whether a container was running well before the Manager was made.
func (m *Manager) adopted(c *v1.ContainerStatus) bool {
	r := c.State.Running
	return r != nil && !r.StartedAt.IsZero() && r.StartedAt.Time.Before(m.start.Add(-adoptedBefore))
}
