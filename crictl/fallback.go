package crictl

import (
	"context"
	"maps"
	"time"
)

const (
	// fillTimeouts bounds all filtered calls of one list, in RPC timeouts. Each of them makes the runtime walk
	// through all its containers, so there may not be one for each of many sandboxes.
	fillTimeouts = 4
	// fillFailures is how many filtered calls may fail before the rest is left out.
	fillFailures = 3
	// fillShare is the part of the size that a refusal named that must have come in by smaller lists for them to
	// count as complete. The rest is what changed meanwhile.
	fillShare = 0.99
)

// A filling is the state of the filtered calls of one list.
type filling struct {
	until    time.Time
	failures int
	stopped  bool
	complete bool
}

// fill puts a list together from filtered ones: by state, and what is then still too large by sandbox or pod. The
// states come in the order of an object's life, so that one which moves on meanwhile is seen twice rather than not at
// all. refused is the call that was refused for its size, if any. It reports whether the list is complete.
func (l *lister[T]) fill(ctx context.Context, f Filter, refused Call) bool {
	p := &filling{until: time.Now().Add(fillTimeouts * l.c.timeout), complete: true}
	type part struct {
		filter  Filter
		refused Call
	}
	var large []part
	states := l.byState(f)
	for _, sub := range states {
		if !p.more() {
			break
		}
		if len(states) == 1 && oversized(refused) { // f has a state: the same call was just refused
			large = append(large, part{f, refused})
		} else if call := l.unary(ctx, sub); p.failed(call) {
			large = append(large, part{sub, call})
		}
	}
	if len(large) == 0 {
		return p.complete
	}
	if l.byObject == nil {
		return false
	}
	filters, complete := l.byObject(ctx, f)
	p.complete = p.complete && complete
	for _, part := range large {
		before := len(l.decoder.entries)
		for _, sub := range filters {
			if !p.more() {
				break
			}
			sub.State, sub.Ready = part.filter.State, part.filter.Ready
			if p.failed(l.unary(ctx, sub)) {
				p.complete = false // one sandbox alone is too large, and there is no finer filter
			}
		}
		// The size is the only proof that nothing is missing.
		if size := part.refused.Bytes; size == 0 || float64(l.sizeFrom(before)) < fillShare*float64(size) {
			p.complete = false
		}
	}
	return p.complete
}

// failed notes the outcome of a call. It reports whether the call was refused for its size, which is not yet a loss.
func (p *filling) failed(call Call) (refused bool) {
	if call.OK() || oversized(call) {
		return !call.OK()
	}
	p.complete = false
	p.failures++
	// A runtime that has stopped answering will not answer the next call either.
	p.stopped = call.Hung() || call.Code == Canceled || p.failures >= fillFailures
	return false
}

// more reports whether another call may be made.
func (p *filling) more() bool {
	if !p.stopped && time.Now().After(p.until) {
		p.stopped, p.complete = true, false
	}
	return !p.stopped
}

// podUIDs returns the UIDs of the pods of sandboxes and containers, in the order in which they are first met.
func podUIDs(sandboxes []PodSandbox, containers []Container) []string {
	seen := map[string]bool{"": true}
	var out []string
	add := func(uid string) {
		if !seen[uid] {
			seen[uid] = true
			out = append(out, uid)
		}
	}
	for i := range sandboxes {
		add(sandboxes[i].Pod.UID)
	}
	for i := range containers {
		add(containers[i].Pod.UID)
	}
	return out
}

func withLabel(f Filter, key, value string) Filter {
	labels := map[string]string{key: value}
	maps.Copy(labels, f.Labels)
	f.Labels = labels
	return f
}
