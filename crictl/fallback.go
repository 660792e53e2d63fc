package crictl

import (
	"context"
	"time"
)

// A depth says how far a filtered list may go. A list of containers by sandbox needs the sandboxes, and a list of
// sandboxes by pod needs the pods, which the containers know; each asks the other for a shallow list only.
type depth bool

const (
	shallow depth = false // by state
	deep    depth = true  // by state, and what is then still too large by sandbox or pod
)

const (
	// fillTimeouts bounds all filtered calls of one list, in RPC timeouts. Every one of them makes the runtime walk
	// through all its containers, so the filling-in must not go on for as long as there are sandboxes.
	fillTimeouts = 4
	// fillFailures is how many failed filtered calls are taken before the rest is left out.
	fillFailures = 3
	// fillShare is how much of the size that a refusal named must have come in by smaller lists for them to count as
	// complete. The rest is what changed meanwhile.
	fillShare = 0.99
)

// A filling is the state of filtered calls for one list.
type filling struct {
	calls    []Call
	complete bool
	failures int
	stopped  bool
	until    time.Time
}

func (c *Client) newFilling() *filling {
	return &filling{complete: true, until: time.Now().Add(fillTimeouts * c.timeout)}
}

// add notes a call and whether it was refused for its size, in which case it is not yet a loss.
func (p *filling) add(call Call) (refused bool) {
	p.calls = append(p.calls, call)
	if call.OK() {
		return false
	}
	if oversized(call) {
		return true
	}
	p.complete = false
	p.failures++
	// A runtime that has stopped answering does not answer the next one either.
	if call.Hung() || call.Code == Canceled || p.failures >= fillFailures {
		p.stopped = true
	}
	return false
}

// more reports whether another call may be made.
func (p *filling) more() bool {
	if !p.stopped && time.Now().After(p.until) {
		p.stopped = true
		p.complete = false
	}
	return !p.stopped
}

// A part is a filtered list that was refused for its size.
type part struct {
	filter  Filter
	refused Call
}

// fillContainers lists containers by state, in the order of a container's life, so that one which moves on meanwhile is
// seen twice rather than not at all. A state that is still too large is listed sandbox by sandbox.
func (c *Client) fillContainers(ctx context.Context, l *lister[Container], f Filter, refused Call, d depth) ([]Call, bool) {
	p := c.newFilling()
	var large []part
	if f.State != nil && oversized(refused) {
		large = append(large, part{f, refused})
	} else {
		large = c.containersByState(ctx, l, f, p)
	}
	if len(large) == 0 {
		return p.calls, p.complete
	}
	if d == shallow || f.SandboxID != "" || f.ID != "" {
		return p.calls, false
	}
	sandboxes := c.listPodSandbox(ctx, Filter{}, "", shallow)
	p.calls = append(p.calls, sandboxes.Calls...)
	p.complete = p.complete && sandboxes.Complete
	for _, part := range large {
		before := len(l.decoder.entries)
		for i := range sandboxes.Sandboxes {
			if !p.more() {
				break
			}
			sub := part.filter
			sub.SandboxID = sandboxes.Sandboxes[i].ID
			if p.add(l.unary(ctx, sub)) {
				p.complete = false // one sandbox alone is too large: there is no finer filter
			}
		}
		p.check(part, l.size(before))
	}
	return p.calls, p.complete
}

func (c *Client) containersByState(ctx context.Context, l *lister[Container], f Filter, p *filling) (large []part) {
	for state := ContainerCreated; state <= ContainerUnknown; state++ {
		if f.State != nil && *f.State != state {
			continue
		}
		if !p.more() {
			break
		}
		sub := f
		sub.State = &state
		if call := l.unary(ctx, sub); p.add(call) {
			large = append(large, part{sub, call})
		}
	}
	return large
}

// fillSandboxes lists sandboxes by state, ready ones first for the reason of fillContainers. A state that is still too
// large is listed pod by pod, as far as pods are known from the other state and from the containers.
func (c *Client) fillSandboxes(ctx context.Context, l *lister[PodSandbox], f Filter, refused Call, d depth) ([]Call, bool) {
	p := c.newFilling()
	var large []part
	if f.Ready != nil && oversized(refused) {
		large = append(large, part{f, refused})
	} else {
		large = c.sandboxesByState(ctx, l, f, p)
	}
	if len(large) == 0 {
		return p.calls, p.complete
	}
	if d == shallow || f.ID != "" || f.Labels[LabelPodUID] != "" {
		return p.calls, false
	}
	containers := c.listContainers(ctx, Filter{}, "", shallow)
	p.calls = append(p.calls, containers.Calls...)
	uids := podUIDs(l.decoder.entries, containers.Containers)
	for _, part := range large {
		before := len(l.decoder.entries)
		for _, uid := range uids {
			if !p.more() {
				break
			}
			if p.add(l.unary(ctx, withLabel(part.filter, LabelPodUID, uid))) {
				p.complete = false
			}
		}
		// Pods without any container are not known, so the size is the only proof that nothing is missing.
		p.check(part, l.size(before))
	}
	return p.calls, p.complete
}

func (c *Client) sandboxesByState(ctx context.Context, l *lister[PodSandbox], f Filter, p *filling) (large []part) {
	for _, ready := range []bool{true, false} {
		if f.Ready != nil && *f.Ready != ready {
			continue
		}
		if !p.more() {
			break
		}
		sub := f
		sub.Ready = &ready
		if call := l.unary(ctx, sub); p.add(call) {
			large = append(large, part{sub, call})
		}
	}
	return large
}

// check compares what came in for a part with what the refusal said was there.
func (p *filling) check(part part, size int) {
	if part.refused.Bytes == 0 || float64(size) < fillShare*float64(part.refused.Bytes) {
		p.complete = false
	}
}

// podUIDs are the pods that sandboxes and containers name, in the order in which they are first met.
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
	for k, v := range f.Labels {
		labels[k] = v
	}
	f.Labels = labels
	return f
}
