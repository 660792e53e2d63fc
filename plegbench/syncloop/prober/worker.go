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

// A worker runs one probe of one container, whatever instance of it there is.
type worker struct {
	m         *Manager
	key       key
	pod       *v1.Pod
	container *v1.Container
	spec      *v1.Probe
	results   *Results
	initial   Result        // of a new instance
	stopped   chan struct{} // ends the worker, after the probe that it is at
	trigger   chan struct{} // runs a probe out of turn

	// Of the worker's goroutine alone.
	id     container.ID // of the instance
	last   Result
	times  int32 // in a row that last was the outcome
	onHold bool  // there is nothing more to find out of this instance
}

func newWorker(m *Manager, at key, p *v1.Pod, c *v1.Container) *worker {
	w := &worker{
		m: m, key: at, pod: p, container: c, spec: withDefaults(*at.kind.probe(c)),
		stopped: make(chan struct{}, 1), trigger: make(chan struct{}, 1),
	}
	switch at.kind {
	case liveness:
		w.results, w.initial = m.cfg.Liveness, Success
	case readiness:
		w.results, w.initial = m.cfg.Readiness, Failure
	case startup:
		w.results, w.initial = m.cfg.Startup, Unknown
	}
	return w
}

// withDefaults fills in what the API server would have (pkg/apis/core/v1/defaults.go upstream).
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
	// After a restart there are many workers at once; they shall not all probe at the same moment.
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
			w.m.cfg.Log.V(4).Info("Triggered Probe by manual run", w.about("probeType", w.key.kind)...)
		}
	}
}

// end removes all traces of the worker.
func (w *worker) end() {
	w.forget()
	w.m.removed(w.key)
	for _, result := range []string{counted(Success), counted(Failure), counted(Unknown)} {
		w.m.cfg.Metrics.ProbesTotal.DeleteLabelValues(w.labels(result)...)
	}
	w.m.cfg.Metrics.ProbesDuration.DeleteLabelValues(w.key.kind.String(), w.container.Name, w.pod.Name, w.pod.Namespace)
}

func (w *worker) forget() {
	if !w.id.IsEmpty() {
		w.results.Remove(w.id)
	}
}

// about are keys and values of a log line, after those given.
func (w *worker) about(kv ...any) []any {
	return append(kv, "pod", klog.KObj(w.pod), "podUID", w.pod.UID, "containerName", w.container.Name)
}

// step probes once, if it is time, and reports whether the worker shall go on.
func (w *worker) step(ctx context.Context) bool {
	log := w.m.cfg.Log.WithValues("pod", klog.KObj(w.pod))
	st, ok := w.m.cfg.PodStatus(w.pod.UID)
	if !ok {
		log.V(3).Info("No status for pod")
		return true
	}
	if pod.IsTerminal(st.Phase) {
		log.V(3).Info("Pod is terminated, exiting probe worker", "phase", st.Phase)
		return false
	}
	c := statusOf(&st, w.container.Name)
	if c == nil {
		log.V(3).Info("Probe target container not found", "containerName", w.container.Name)
		return true
	}
	if w.id.String() != c.ContainerID {
		w.meet(ctx, c)
	}
	switch {
	case w.onHold:
		return true
	case c.State.Running == nil:
		log.V(3).Info("Non-running container probed", "containerName", w.container.Name)
		w.set(ctx, Failure)
		return c.State.Terminated == nil || pod.Restarts(w.pod, w.container, c.State.Terminated.ExitCode)
	case w.pod.DeletionTimestamp != nil && w.key.kind != readiness:
		log.V(3).Info("Pod deletion requested, setting probe result to success", "probeType", w.key.kind, "containerName", w.container.Name)
		if w.key.kind == startup {
			log.Info("Pod deletion requested before container has fully started", "containerName", w.container.Name)
		}
		w.set(ctx, Success) // it shall end in peace
		return false
	case int32(time.Since(c.State.Running.StartedAt.Time).Seconds()) < w.spec.InitialDelaySeconds:
		return true
	}
	// A startup probe is for before the container has started, the others are for after.
	if started := c.Started != nil && *c.Started; started != (w.key.kind == startup) {
		w.probe(ctx, &st)
	}
	return true
}

// statusOf is the status of a container that was made already, or nil.
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

// meet begins with a new instance of the container. One that was found running keeps the result that it has in the pod's
// status, by having none here.
func (w *worker) meet(ctx context.Context, c *v1.ContainerStatus) {
	w.forget()
	w.id = container.ParseID(c.ContainerID)
	w.onHold = false
	if w.key.kind == startup && pod.IsSidecar(w.container) && c.Started != nil && *c.Started {
		w.set(ctx, Success) // what follows the sidecar in the pod's start asks for it
	}
	if !w.m.adopted(c) {
		w.set(ctx, w.initial)
	}
}

func (w *worker) set(ctx context.Context, r Result) { w.results.Set(ctx, w.id, w.pod.UID, r) }

// probe runs the probe, and stores the outcome once it has come often enough in a row.
func (w *worker) probe(ctx context.Context, st *v1.PodStatus) {
	begin := time.Now()
	result, err := w.try(ctx, st)
	if err != nil {
		return // that the probe could not be run says nothing about the container
	}
	w.m.cfg.Metrics.ProbesTotal.WithLabelValues(w.labels(counted(result))...).Inc()
	if result != Failure {
		w.m.cfg.Metrics.ProbesDuration.WithLabelValues(w.key.kind.String(), w.container.Name, w.pod.Name, w.pod.Namespace).
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
		// It will be restarted, or has started: either way this instance is not asked again.
		w.onHold, w.times = true, 0
	}
}

func (w *worker) labels(result string) []string {
	return []string{w.key.kind.String(), result, w.container.Name, w.pod.Name, w.pod.Namespace, string(w.pod.UID)}
}

// counted is the label of a result in the metrics.
func counted(r Result) string {
	switch r {
	case Success:
		return "successful"
	case Failure:
		return "failed"
	}
	return "unknown"
}
