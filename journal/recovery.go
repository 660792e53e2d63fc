package journal

import (
	"math"
	"slices"
	"sort"
	"time"

	"github.com/kdiag/kdiag/journal/signature"
)

// quiet is how long, in µs, the skip lines must have stopped, while the kubelet goes on writing other things, for that
// to show that the loop runs again. The loop never sleeps longer than 5 s between two of them.
const quiet = minute

// failingNear is how near, in µs, records of a failing runtime around a NodeReady make it meaningless.
const failingNear = 15 * second

// marksOf returns the records of one host that can end an episode. sequence gives them their clock.
func (h *history) marksOf(host string) []mark {
	out := slices.DeleteFunc(slices.Clone(h.marks), func(m mark) bool {
		return m.host != host && m.host != "" && host != ""
	})
	for i := range h.bursts {
		b := &h.bursts[i]
		if b.Code != signature.NodeReady && b.Code != signature.RuntimeModulesStarted || !b.of(host) {
			continue
		}
		for _, m := range []timestamp{b.first, b.last} {
			if t, ok := m.at(); ok && (b.Code != signature.NodeReady || !h.failingAt(host, t)) {
				out = append(out, mark{timestamp: m, code: b.Code})
			}
		}
	}
	return out
}

// failingAt reports whether the runtime fails right before and after an instant, or right before the end of what is
// known.
func (h *history) failingAt(host string, at int64) bool {
	before, after := false, len(h.reach) == 0 || h.reach[len(h.reach)-1] <= at
	for _, b := range h.around(host, at-failingNear, at+failingNear) {
		switch b.Code {
		case signature.RelistFailed, signature.RuntimeIsDown, signature.SanityCheckFailed:
			before = before || b.first.inner <= at
			after = after || b.last.inner >= at
		}
	}
	return before && after
}

// firstMark returns the first mark between two readings of the clock that ends an episode of this kind. marks are by
// clock.
func firstMark(marks []mark, after, before int64, startup bool) (mark, bool) {
	first := sort.Search(len(marks), func(i int) bool { return marks[i].clock > after })
	for _, m := range marks[first:] {
		if m.clock < before && (startup || m.code != signature.RuntimeModulesStarted) {
			return m, true
		}
	}
	return mark{}, false
}

// recover fills in whether and when an episode ended.
func (h *history) recover(e *Episode, b *episodeBuilder, in interval, marks []mark) {
	last := b.recs[len(b.recs)-1]
	if !in.timed {
		h.recoverUntimed(e, last)
		return
	}
	before, clock, anchor := int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MinInt64)
	if b.next != nil {
		before, clock = b.next.inner, b.next.clock
		if b.next.kind&hasAge != 0 {
			anchor = b.next.anchor(before)
		}
	}
	if m, ok := firstMark(marks, in.clockEnd, clock, b.startup || last.kind&never != 0); ok {
		e.Recovered, e.RecoveredAt, e.RecoveredBy = true, m.instant(), m.code
		// The next stall's anchor is a relist that was good: earlier than any record that the loop wrote about it.
		if anchor > in.end && e.RecoveredAt != nil && timeOf(anchor).Before(*e.RecoveredAt) {
			e.RecoveredAt, e.RecoveredBy = timeOf(anchor), signature.PLEGNotHealthy
		}
		return
	}
	due := in.end + backoffMost/1000 // when the next skip line was due, the loop was past it
	// After a step of the clock, later stamps are not later records. journald reports records that it dropped with
	// the next one that it keeps.
	dropped := func(b *Burst) bool { return b.Code == signature.LogsSuppressed }
	if b.endsInSkips() && !stepped(e) && !slices.ContainsFunc(h.around(last.host, in.end, due+quiet), dropped) &&
		h.livesOn(last, due+quiet, before, b.next != nil && b.next.pid == last.pid && anchor > last.inner) {
		e.Recovered, e.RecoveredAt = true, timeOf(due)
	}
}

// endsInSkips reports whether an episode ends in skip lines in their usual order, so that their end means something.
func (e *episodeBuilder) endsInSkips() bool {
	n := 0
	for i := len(e.recs) - 1; i >= 0 && n < 3; i-- {
		r := e.recs[i]
		if r.kind&condition != 0 {
			continue
		}
		n++
		if i > 0 && r.timed && r.clock-e.recs[i-1].clock > 8*second {
			return false
		}
	}
	return n == 3
}

// livesOn reports whether the process of a record goes on writing after an instant, without an unhealthy record, or
// whether its next unhealthy record is of a later relist.
func (h *history) livesOn(last *unhealthy, after, before int64, relisted bool) bool {
	if last.pid == 0 || relisted {
		return relisted && last.pid != 0
	}
	within := func(m *timestamp) bool {
		t, ok := m.at()
		return ok && t >= after && t < before
	}
	for _, b := range h.around(last.host, after, before) {
		if b.PID == last.pid && within(&b.last) {
			return true
		}
	}
	return slices.ContainsFunc(h.stamps[last.source], func(m timestamp) bool {
		return within(&m) && m.boot == last.boot && m.has(innerKnown)
	})
}

// recoverUntimed looks for a mark behind the last record in the text, where nothing has a time.
func (h *history) recoverUntimed(e *Episode, last *unhealthy) {
	for i := range h.bursts {
		b := &h.bursts[i]
		ends := b.Code == signature.NodeReady || b.Code == signature.RuntimeModulesStarted && last.kind&never != 0
		if ends && b.source == last.source && b.first.seq > last.seq && !b.first.has(resolved) && b.PID != 0 {
			e.Recovered, e.RecoveredBy = true, b.Code
			return
		}
	}
}

// restarts lists the starts and stops of kubelet and runtime inside an episode.
func (h *history) restarts(e *episodeBuilder, in interval, host string) []Event {
	var out []Event
	started := false
	if in.timed {
		for _, b := range h.around(host, in.start, in.end+1) {
			switch b.Code {
			case signature.KubeletStarted, signature.RuntimeStarted, signature.RuntimeStopped,
				signature.UnitStarted, signature.UnitStopped, signature.UnitRestarted, signature.WatchdogTimeout,
				signature.UnitFailed:
				ev := h.event(b)
				started = started || ev.Lane == string(signature.Kubelet) && ev.Marker == string(signature.Start)
				if n := len(out); n > 0 && out[n-1].Code == ev.Code && ev.At.Sub(*out[n-1].At) < 10*time.Second {
					out[n-1].Count += ev.Count // one start writes several records
					continue
				}
				out = append(out, ev)
			}
		}
	}
	if started {
		return out
	}
	restart := Event{
		Count: 1, Lane: string(signature.Kubelet), Code: signature.KubeletStarted,
		Marker: string(signature.Restart), Subject: "kubelet",
	}
	for n := 1; n < len(e.recs); n++ {
		if a, b := e.recs[n-1], e.recs[n]; a.pid != b.pid && a.pid != 0 && b.pid != 0 && a.source == b.source {
			restart.At, restart.What = b.instant(), "another kubelet process writes from here on"
			return append(out, restart)
		}
	}
	for _, r := range e.recs {
		if r.kind&pending == 0 || r.kind&hasAge == 0 || in.neverOnly {
			continue
		}
		restart.What = "the kubelet was started again before the anchor: it has had a relist, but no status of the runtime yet"
		if r.timed {
			restart.At = timeOf(r.anchor(r.inner))
		}
		return append(out, restart)
	}
	return out
}
