package journal

import (
	"math"
	"slices"
	"sort"
	"time"

	"github.com/kdiag/kdiag/journal/signature"
)

// silence is how long, in µs, the skip lines must have stopped, while the kubelet goes on writing other things, for that
// to show that the loop runs again. The loop never sleeps longer than 5 s between two of them.
const silence = minute

// failingNear is how near, in µs, records of a failing runtime around a NodeReady make it meaningless.
const failingNear = 15 * second

// marks returns the records of one host that can end an episode. sequence gives them their clock.
func (f *facts) marks(host uint16) []mark {
	var out []mark
	for i := range f.syncs {
		if s := &f.syncs[i]; s.host == host || s.host == 0 || host == 0 {
			out = append(out, mark{moment: s.moment, code: signature.SyncLoopActive})
		}
	}
	for i := range f.bursts {
		b := &f.bursts[i]
		code := f.code(b)
		if code != signature.NodeReady && code != signature.RuntimeModulesStarted || !b.of(host) {
			continue
		}
		for _, m := range []*moment{&b.first, &b.last} {
			if t, ok := m.at(); ok && (code != signature.NodeReady || !f.failingAt(host, t)) {
				m.source = b.source
				out = append(out, mark{moment: *m, code: code})
			}
		}
	}
	return out
}

// failingAt reports whether the runtime fails right before and after an instant, or right before the end of what is known.
func (f *facts) failingAt(host uint16, at int64) bool {
	before, after := false, false
	for _, b := range f.around(host, at-failingNear, at+failingNear) {
		last, _ := b.last.at()
		switch f.code(b) {
		case signature.RelistFailed, signature.RuntimeIsDown, signature.SanityCheckFailed:
			before = before || b.first.inner <= at
			after = after || last >= at
		}
	}
	ends := len(f.reach) == 0 || f.reach[len(f.reach)-1] <= at
	return before && (after || ends)
}

// firstMark returns the first mark between two readings of the clock that ends an episode of this kind. marks are by clock.
func firstMark(marks []mark, after, before int64, startup bool) (mark, bool) {
	for i := sort.Search(len(marks), func(i int) bool { return marks[i].clock > after }); i < len(marks) && marks[i].clock < before; i++ {
		if startup || marks[i].code != signature.RuntimeModulesStarted {
			return marks[i], true
		}
	}
	return mark{}, false
}

// recover says in an episode whether and when it ended.
func (f *facts) recover(e *Episode, g *grouping, r *run, s span, marks []mark) {
	if !s.timed {
		f.recoverUntimed(e, g, r)
		return
	}
	next := g.next(r, s)
	before, beforeClock := int64(math.MaxInt64), int64(math.MaxInt64)
	if next != nil {
		before, _ = next.at()
		beforeClock = next.clock
	}
	// The next trouble's anchor is a relist that was good: earlier than any record that the loop wrote about it.
	var relisted *time.Time
	if next != nil && next.kind&hasAge != 0 && next.anchor(before) > s.end {
		relisted = timeOf(next.anchor(before))
	}
	if m, ok := firstMark(marks, s.clockEnd, beforeClock, e.Kind == Startup || s.last.kind&never != 0); ok {
		e.Recovered, e.RecoveredAt, e.RecoveredBy = true, m.instant(), m.code
		if relisted != nil && e.RecoveredAt != nil && relisted.Before(*e.RecoveredAt) {
			e.RecoveredAt, e.RecoveredBy = relisted, signature.PLEGNotHealthy
		}
		return
	}
	if skips := f.regular(g, r); !skips {
		return
	}
	// When the next skip line was due, the loop was past it.
	due := s.end + int64(5*time.Second/time.Microsecond)
	if stepped(e) || f.dropped(s.last.host, s.end, due+silence) { // then later stamps are not later records
		return
	}
	if f.livesOn(s.last, due+silence, before, next) {
		e.Recovered, e.RecoveredAt = true, timeOf(due)
	}
}

// next returns the first unhealthy record after an episode, nil if there is none.
func (g *grouping) next(r *run, s span) *rec {
	for i := r.recs[len(r.recs)-1] + 1; i < len(g.recs); i++ {
		if n := &g.recs[i]; n.timed && n.clock > s.clockEnd {
			return n
		}
	}
	return nil
}

// regular reports whether an episode ends in skip lines in their usual order, so that their end means something.
func (f *facts) regular(g *grouping, r *run) bool {
	n := 0
	for i := len(r.recs) - 1; i >= 0 && n < 3; i-- {
		rec := &g.recs[r.recs[i]]
		if rec.kind&condition != 0 {
			continue
		}
		n++
		if i > 0 && rec.timed && rec.clock-g.recs[r.recs[i-1]].clock > 8*second {
			return false
		}
	}
	return n == 3
}

// dropped reports whether journald says that it left out records between two instants, or soon after: it says so with the
// next record that it lets pass.
func (f *facts) dropped(host uint16, from, to int64) bool {
	return slices.ContainsFunc(f.around(host, from, to), func(b *burst) bool { return f.code(b) == signature.LogsSuppressed })
}

// livesOn reports whether the process of a record goes on writing after an instant, without an unhealthy record, or
// whether its next unhealthy record is of a later relist.
func (f *facts) livesOn(last *rec, after, before int64, next *rec) bool {
	if last.pid == 0 {
		return false
	}
	end, _ := last.at()
	if next != nil && next.pid == last.pid && next.kind&hasAge != 0 && next.anchor(before) > end {
		return true
	}
	for _, b := range f.around(last.host, after, before) {
		if t, _ := b.last.at(); b.pid == last.pid && t >= after && t < before {
			return true
		}
	}
	return slices.ContainsFunc(f.sights[last.source], func(m moment) bool {
		t, ok := m.at()
		return ok && t >= after && t < before && m.boot == last.boot && m.has(innerKnown)
	})
}

// recoverUntimed looks for a mark behind the last record in the text, where nothing has a time.
func (f *facts) recoverUntimed(e *Episode, g *grouping, r *run) {
	last := &g.recs[r.recs[len(r.recs)-1]]
	for i := range f.bursts {
		b := &f.bursts[i]
		code := f.code(b)
		ends := code == signature.NodeReady || code == signature.RuntimeModulesStarted && last.kind&never != 0
		if ends && b.source == last.source && b.first.seq > last.seq && !b.first.has(resolved) && b.pid != 0 {
			e.Recovered, e.RecoveredBy = true, code
			return
		}
	}
}

// restarts lists the starts and stops of kubelet and runtime inside an episode.
func (f *facts) restarts(g *grouping, r *run, s span, host uint16) []Event {
	var out []Event
	if s.timed {
		for _, b := range f.around(host, s.start, s.end+1) {
			switch f.code(b) {
			case signature.KubeletStarted, signature.RuntimeStarted, signature.RuntimeStopped,
				signature.UnitStarted, signature.UnitStopped, signature.UnitRestarted, signature.WatchdogTimeout, signature.UnitFailed:
				e := f.event(b)
				if n := len(out); n > 0 && out[n-1].Code == e.Code && e.At.Sub(*out[n-1].At) < 10*time.Second {
					out[n-1].Count += e.Count // one start writes several records
					continue
				}
				out = append(out, e)
			}
		}
	}
	started := slices.ContainsFunc(out, func(e Event) bool { return e.Lane == string(signature.Kubelet) && e.Marker == string(signature.Start) })
	for n := 1; n < len(r.recs) && !started; n++ {
		a, b := &g.recs[r.recs[n-1]], &g.recs[r.recs[n]]
		if a.pid != b.pid && a.pid != 0 && b.pid != 0 && a.source == b.source {
			out = append(out, Event{
				At: b.instant(), Count: 1, Lane: string(signature.Kubelet), Code: signature.KubeletStarted, Marker: string(signature.Restart),
				What: "another kubelet process writes from here on", Subject: "kubelet",
			})
			started = true
		}
	}
	if s.anyPending && !s.neverOnly && !started {
		for _, i := range r.recs {
			if rec := &g.recs[i]; rec.kind&pending != 0 && rec.kind&hasAge != 0 {
				ev := Event{
					Count: 1, Lane: string(signature.Kubelet), Code: signature.KubeletStarted, Marker: string(signature.Restart), Subject: "kubelet",
					What: "the kubelet was started again before the anchor: it has had a relist, but no status of the runtime yet",
				}
				if t, ok := rec.at(); ok {
					ev.At = timeOf(rec.anchor(t))
				}
				out = append(out, ev)
				break
			}
		}
	}
	return out
}
