package prober

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// A worker runs one probe of one container, in all its instances.
type worker struct {
	m         *Manager
	key       key
	ref       klog.ObjectRef
	pod       *v1.Pod
	container *v1.Container
	spec      *v1.Probe
	results   *Results
	initial   Result        // of a new instance
	stopped   chan struct{} // ends the worker, after the probe under way
	trigger   chan struct{} // runs a probe out of turn

	// Of the worker's goroutine alone.
	id     container.ID // of the instance
	last   Result
	times  int32 // how often last was the outcome in a row
	onHold bool  // this instance is not probed again
}

func newWorker(m *Manager, at key, p *v1.Pod, c *v1.Container) *worker {
	w := &worker{
		m: m, key: at, ref: klog.KObj(p), pod: p, container: c, spec: withDefaults(*at.kind.probe(c)),
		stopped: make(chan struct{}, 1), trigger: make(chan struct{}, 1),
	}
	switch at.kind {
	case liveness:
		w.results, w.initial = m.Liveness, Success
	case readiness:
		w.results, w.initial = m.Readiness, Failure
	case startup:
		w.results, w.initial = m.Startup, Unknown
	}
	return w
}

// withDefaults fills in what the API server would (pkg/apis/core/v1/defaults.go upstream).
func withDefaults(p v1.Probe) *v1.Probe {
	p.TimeoutSeconds = cmp.Or(p.TimeoutSeconds, 1)
	p.PeriodSeconds = cmp.Or(p.PeriodSeconds, 10)
	p.SuccessThreshold = cmp.Or(p.SuccessThreshold, 1)
	p.FailureThreshold = cmp.Or(p.FailureThreshold, 3)
	return &p
}

// run probes each period until the worker is stopped, its container is done, or ctx ends.
func (w *worker) run(ctx context.Context) {
	defer w.end()
	period := time.Duration(w.spec.PeriodSeconds) * time.Second
	// After a restart there are many workers at once, which must not all probe at the same moment.
	if period > time.Since(w.m.start) {
		select {
		case <-ctx.Done():
			return
		case <-w.stopped:
			return
		case <-time.After(time.Duration(rand.Float64() * float64(period))):
		}
	}
	tick := time.NewTicker(period)
	defer tick.Stop()
	for w.step(ctx) {
		select {
		case <-ctx.Done():
			return
		case <-w.stopped:
			return
		case <-tick.C:
		case <-w.trigger:
			tick.Reset(period)
		}
	}
}

// end removes all traces of the worker.
func (w *worker) end() {
	w.results.Remove(w.id)
	w.m.removed(w.key)
	for _, result := range []Result{Success, Failure, Unknown} {
		w.m.Metrics.ProbesTotal.DeleteLabelValues(w.labels(result)...)
	}
	w.m.Metrics.ProbesDuration.DeleteLabelValues(w.key.kind.String(), w.container.Name, w.pod.Name, w.pod.Namespace)
}

// step probes once, if it is time, and reports whether the worker goes on.
func (w *worker) step(ctx context.Context) bool {
	log := w.m.Log.V(3).WithValues("pod", w.ref, "containerName", w.container.Name)
	st, ok := w.m.PodStatus(w.key.uid)
	if !ok {
		log.Info("No status for pod")
		return true
	}
	if pod.IsTerminal(st.Phase) {
		log.Info("Pod is terminated, exiting probe worker", "phase", st.Phase)
		return false
	}
	c := statusOf(&st, w.container.Name)
	if c == nil {
		log.Info("Probe target container not found")
		return true
	}
	if w.id.String() != c.ContainerID {
		w.newInstance(ctx, c)
	}
	switch {
	case w.onHold:
		return true
	case c.State.Running == nil:
		log.Info("Non-running container probed")
		w.set(ctx, Failure)
		return c.State.Terminated == nil || pod.Restarts(w.pod, w.container, c.State.Terminated.ExitCode)
	case w.pod.DeletionTimestamp != nil && w.key.kind != readiness:
		log.Info("Pod deletion requested, setting probe result to success", "probeType", w.key.kind)
		w.set(ctx, Success) // a failure would end it before its grace period
		return false
	case int32(time.Since(c.State.Running.StartedAt.Time).Seconds()) < w.spec.InitialDelaySeconds:
		return true
	}
	// A startup probe runs before the container has started, the others after that.
	if started := c.Started != nil && *c.Started; started != (w.key.kind == startup) {
		w.probe(ctx, &st)
	}
	return true
}

// statusOf returns the status of a container that was created, or nil.
func statusOf(st *v1.PodStatus, name string) *v1.ContainerStatus {
	for _, list := range [][]v1.ContainerStatus{st.ContainerStatuses, st.InitContainerStatuses} {
		for i := range list {
			if list[i].Name == name && list[i].ContainerID != "" {
				return &list[i]
			}
		}
	}
	return nil
}

// newInstance begins with a new instance of the container. One that ran before this syncLoop gets no initial result, so
// that it keeps the one in the pod's status.
func (w *worker) newInstance(ctx context.Context, c *v1.ContainerStatus) {
	w.results.Remove(w.id)
	w.id = container.ParseID(c.ContainerID)
	w.onHold = false
	if w.key.kind == startup && pod.IsSidecar(w.container) && c.Started != nil && *c.Started {
		w.set(ctx, Success) // the init containers after the sidecar wait for it
	}
	if !w.m.adopted(c) {
		w.set(ctx, w.initial)
	}
}

func (w *worker) set(ctx context.Context, r Result) { w.results.Set(ctx, w.id, w.key.uid, r) }

// probe runs the probe, and stores the result once it has occurred often enough in a row.
func (w *worker) probe(ctx context.Context, st *v1.PodStatus) {
	begin := time.Now()
	result, err := w.try(ctx, st)
	if err != nil {
		return // a probe that could not be run proves nothing
	}
	w.m.Metrics.ProbesTotal.WithLabelValues(w.labels(result)...).Inc()
	if result != Failure {
		w.m.Metrics.ProbesDuration.WithLabelValues(w.key.kind.String(), w.container.Name, w.pod.Name, w.pod.Namespace).
			Observe(time.Since(begin).Seconds())
	}
	if w.last != result {
		w.last, w.times = result, 0
	}
	w.times++
	if result == Failure && w.times < w.spec.FailureThreshold || result == Success && w.times < w.spec.SuccessThreshold {
		return
	}
	w.set(ctx, result)
	if w.key.kind == liveness && result == Failure || w.key.kind == startup {
		// The container will be restarted, or has started.
		w.onHold, w.times = true, 0
	}
}

// labels are those of prober_probe_total.
func (w *worker) labels(r Result) []string {
	result := map[Result]string{Success: "successful", Failure: "failed", Unknown: "unknown"}[r]
	return []string{w.key.kind.String(), result, w.container.Name, w.pod.Name, w.pod.Namespace, string(w.key.uid)}
}
