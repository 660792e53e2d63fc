package plegbench

import (
	"cmp"
	"context"
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// relist takes the samples, of which the probes have made the first.
func (m *measurer) relist(ctx context.Context, first Sample) {
	m.took(first)
	m.progress("relist", 1, m.opts.Samples)
	for m.another(ctx) {
		if !pause(ctx, m.opts.Pause) {
			m.cut = true
			break
		}
		if m.forIsOver() {
			break
		}
		m.took(m.sample(ctx))
		m.progress("relist", len(m.out.Samples), m.opts.Samples)
	}
	m.out.ChangedPods = m.series.changed()
}

// forIsOver reports whether Options.For is set and has passed since the first sample.
func (m *measurer) forIsOver() bool {
	return m.opts.For > 0 && time.Since(m.out.Samples[0].At) >= m.opts.For
}

// took records a sample.
func (m *measurer) took(s Sample) {
	m.out.Samples = append(m.out.Samples, s)
	m.mode = s.Mode
	if s.OK() && m.out.Sandboxes != nil && m.out.Containers != nil {
		m.series.add(listPair{at: s.At, sandboxes: m.out.Sandboxes, containers: m.out.Containers})
	}
}

// another reports whether to take one more sample.
func (m *measurer) another(ctx context.Context) bool {
	samples := m.out.Samples
	n := len(samples)
	if m.opts.Samples > 0 && n >= m.opts.Samples {
		return false
	}
	if ctx.Err() != nil {
		m.cut = true
		return false
	}
	if m.opts.Record {
		return !m.forIsOver()
	}
	if late := max(samples[0].Sandboxes.Elapsed, samples[0].Containers.Elapsed); m.gone || hungSample(samples[0]) ||
		late >= m.opts.RPCTimeout { // it took longer than other lists may
		return false
	}
	if n >= 2 && hopeless(samples[n-1]) && hopeless(samples[n-2]) {
		return false
	}
	return leavesTime(ctx, m.out.Started, samples[n-1].Elapsed())
}

// leavesTime reports whether a call of the given length would still leave half of the time from started to ctx's
// deadline to the calls after it.
func leavesTime(ctx context.Context, started time.Time, length time.Duration) bool {
	deadline, ok := ctx.Deadline()
	if !ok {
		return true
	}
	return time.Since(started)+length <= deadline.Sub(started)/2
}

// hungSample reports whether one of the sample's lists was not answered.
func hungSample(s Sample) bool { return s.Sandboxes.Hung() || s.Containers.Hung() }

// hopeless reports whether the next sample will most likely end as this one did: a list hung, or is larger than a
// message may be. Repeating it would only load a sick runtime.
func hopeless(s Sample) bool {
	return hungSample(s) || s.Sandboxes.Code == crictl.ResourceExhausted ||
		s.Containers.Code == crictl.ResourceExhausted
}

// pause waits, and reports false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// sample makes both lists, one after the other as the kubelet does, and checks whether the runtime lives when they
// stall.
func (m *measurer) sample(ctx context.Context) Sample {
	lists := make(chan [2]reply, 1)
	go func() { lists <- m.list(ctx, m.mode) }()
	var both [2]reply
	select {
	case both = <-lists:
	case <-time.After(m.opts.stall()):
		liveness := m.startLiveness(ctx)
		if both = <-lists; both[0].call.OK() && both[1].call.OK() {
			liveness.cancel() // slow, but it answers
		} else {
			m.live(<-liveness.call)
		}
	}
	sandboxes, containers := both[0], both[1]
	s := Sample{
		At: sandboxes.call.Start, Mode: sandboxes.mode, Sandboxes: sandboxes.call, Containers: containers.call,
	}
	m.note(s.Sandboxes, s.Containers)
	m.out.Sandboxes = cmp.Or(sandboxes.sandboxes, m.out.Sandboxes)
	m.out.Containers = cmp.Or(containers.containers, m.out.Containers)
	if s.OK() {
		m.gone = false
	}
	return s
}

// list makes both lists, the second only when the first was answered.
func (m *measurer) list(ctx context.Context, mode crictl.ListMode) (both [2]reply) {
	both[0] = listSandboxes(ctx, m.client, mode, false)
	if both[0].call.OK() {
		both[1] = listContainers(ctx, m.client, mode, false)
	}
	return both
}
