package plegbench

import (
	"context"
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// relist takes the samples after the first.
func (r *run) relist(ctx context.Context) {
	r.progress("relist", 1, r.opts.Samples)
	for r.another(ctx) {
		if !pause(ctx, r.opts.Pause) {
			r.cut = true
			break
		}
		if r.forIsOver() {
			break
		}
		r.took(r.sample(ctx))
		r.progress("relist", len(r.m.Samples), r.opts.Samples)
	}
	r.m.ChangedPods = r.history.changed()
}

// forIsOver reports whether Options.For is set and has passed since the first sample.
func (r *run) forIsOver() bool {
	return r.opts.For > 0 && time.Since(r.m.Samples[0].At) >= r.opts.For
}

// took records a sample.
func (r *run) took(s Sample) {
	r.m.Samples = append(r.m.Samples, s)
	r.mode = s.Mode
	if s.OK() && r.m.Sandboxes != nil && r.m.Containers != nil {
		r.history.add(snapshot{at: s.At, sandboxes: r.m.Sandboxes, containers: r.m.Containers})
	}
}

// another reports whether to take one more sample.
func (r *run) another(ctx context.Context) bool {
	samples := r.m.Samples
	n := len(samples)
	if r.opts.Samples > 0 && n >= r.opts.Samples {
		return false
	}
	if ctx.Err() != nil {
		r.cut = true
		return false
	}
	if r.opts.Record {
		return !r.forIsOver()
	}
	if late := max(samples[0].Sandboxes.Elapsed, samples[0].Containers.Elapsed); r.gone || hungSample(samples[0]) ||
		late >= r.opts.RPCTimeout { // one that only the patience of the first brought
		return false
	}
	if n >= 2 && hopeless(samples[n-1]) && hopeless(samples[n-2]) {
		return false
	}
	return leavesTime(ctx, r.m.Started, samples[n-1].Elapsed())
}

// leavesTime reports whether a call of the given length would still leave half of the time since started until ctx's
// deadline to what comes after.
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

// A listing is the result of one sample.
type listing struct {
	sample     Sample
	sandboxes  *crictl.PodSandboxList
	containers *crictl.ContainerList
}

// sample makes both lists, one after the other as the kubelet does, and checks whether the runtime lives when they
// stall.
func (r *run) sample(ctx context.Context) Sample {
	lists := make(chan listing, 1)
	go func() { lists <- r.list(ctx, r.mode) }()
	var got listing
	select {
	case got = <-lists:
	case <-time.After(r.opts.stall()):
		liveness := r.startLiveness(ctx)
		got = <-lists
		if got.sample.OK() {
			liveness.cancel() // slow, but it answers
		} else {
			r.live(<-liveness.call)
		}
	}
	s := got.sample
	r.note(s.Sandboxes, s.Containers)
	if got.sandboxes != nil {
		r.m.Sandboxes = got.sandboxes
	}
	if got.containers != nil {
		r.m.Containers = got.containers
	}
	if s.OK() {
		r.gone = false
	}
	return s
}

// list makes both lists, the second only when the first was answered.
func (r *run) list(ctx context.Context, mode crictl.ListMode) listing {
	first := sandboxes(ctx, r.client, mode, false)
	l := listing{
		sample:    Sample{At: first.call.Start, Mode: first.mode, Sandboxes: first.call},
		sandboxes: first.list,
	}
	if first.call.OK() {
		second := containers(ctx, r.client, mode, false)
		l.sample.Containers, l.containers = second.call, second.list
	}
	return l
}
