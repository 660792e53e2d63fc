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

// marksOf returns the records of one host that can end an episode. sequence gives them their clock.
func (h *history) marksOf(host string) []recoveryMark {
	var out []recoveryMark
	for i := range h.bursts {
		b := &h.bursts[i]
		switch b.Code {
		case signature.SyncLoopActive, signature.NodeReady, signature.RuntimeModulesStarted:
		default:
			continue
		}
		for _, t := range []timestamp{b.first, b.last} {
			if t.known && b.of(host) {
				out = append(out, recoveryMark{timedRecord{timestamp: t, mark: true}, b.Code})
			}
		}
	}
	return out
}

// firstMark returns the first mark between two readings of the clock that ends an episode of this kind. marks are by
// clock.
func firstMark(marks []recoveryMark, after, before int64, startup bool) (recoveryMark, bool) {
	first := sort.Search(len(marks), func(i int) bool { return marks[i].clock > after })
	for _, m := range marks[first:] {
		if m.clock >= before {
			break
		}
		if startup || m.code != signature.RuntimeModulesStarted {
			return m, true
		}
	}
	return recoveryMark{}, false
}

// recover fills in whether and when an episode ended. next is the first unhealthy record after it, or nil.
func (h *history) recover(e *Episode, b *episodeBuilder, next *unhealthyRecord, marks []recoveryMark) {
	last := b.recs[len(b.recs)-1]
	if !b.timed {
		return
	}
	before, clock, anchor := int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MinInt64)
	if next != nil {
		before, clock = next.at, next.clock
		if next.kind&hasAge != 0 {
			anchor = next.anchor(before)
		}
	}
	if m, ok := firstMark(marks, b.clockEnd, clock, b.startup || last.kind&never != 0); ok {
		e.Recovered, e.RecoveredAt, e.RecoveredBy = true, m.time(), m.code
		// The next stall's anchor is a relist that was good: earlier than any record that the loop wrote about it.
		if anchor > b.end && anchor < m.at {
			e.RecoveredAt, e.RecoveredBy = timeOf(anchor), signature.PLEGNotHealthy
		}
		return
	}
	due := b.end + last.scaled(backoffMost)/1000 // when the next skip line was due, the loop was past it
	silent := due + last.scaled(quiet)
	// After a step of the clock, later stamps are not later records. journald reports records that it dropped with
	// the next one that it keeps.
	dropped := func(b *Burst) bool { return b.Code == signature.LogsSuppressed }
	relisted := next != nil && next.pid == last.pid && anchor > last.at
	if last.pid != 0 && b.endsInSkips() && !stepped(e) &&
		!slices.ContainsFunc(h.around(last.host, b.end, silent), dropped) &&
		(relisted || h.livesOn(last, silent, before)) {
		e.Recovered, e.RecoveredAt = true, timeOf(due)
	}
}

// endsInSkips reports whether an episode ends in skip lines in their usual order, so that their end means something.
func (e *episodeBuilder) endsInSkips() bool {
	n := 0
	for i := len(e.recs) - 1; i >= 0 && n < 3; i-- {
		u := e.recs[i]
		if u.kind&condition != 0 {
			continue
		}
		if n++; i > 0 && u.known && u.clock-e.recs[i-1].clock > 8*second {
			return false
		}
	}
	return n == 3
}

// livesOn reports whether the process of a record goes on writing between two instants.
func (h *history) livesOn(last *unhealthyRecord, after, before int64) bool {
	within := func(t *timestamp) bool { return t.at >= after && t.at < before && h.window.side(t.at) == 0 }
	return slices.ContainsFunc(h.around(last.host, after, before), func(b *Burst) bool {
		return b.PID == last.pid && within(&b.last)
	}) || slices.ContainsFunc(h.stamps[last.source], func(t timestamp) bool { return within(&t) && t.inner.Known })
}

// startedBy returns why a kubelet started, by systemd's records of the two minutes before; empty if unknown.
func (h *history) startedBy(host string, at int64) string {
	why := ""
	for _, b := range h.around(host, at-2*minute, at) {
		switch {
		case b.Code == signature.MachineBooted:
			why = "the machine booted"
		case b.Call().Role != RoleKubelet:
		case b.Code == signature.UnitStopped:
			why = "stopped and started on request"
		case b.Code == signature.UnitFailed, b.Code == signature.UnitRestarted:
			return "started again after it had failed"
		}
	}
	return why
}

// restarts lists the starts and stops of kubelet and runtime inside an episode.
func (h *history) restarts(e *episodeBuilder, host string) []Event {
	var out []Event
	started := false
	if e.timed {
		for _, b := range h.around(host, e.start, e.end+1) {
			switch b.Code {
			case signature.KubeletStarted, signature.RuntimeStarted, signature.RuntimeStopped,
				signature.UnitStarted, signature.UnitStopped, signature.UnitRestarted, signature.WatchdogTimeout,
				signature.UnitFailed:
				ev := b.event(h.catalogue[b.Code])
				started = started || ev.Lane == string(signature.Kubelet) && ev.Marker == string(signature.Start)
				if n := len(out); n > 0 && out[n-1].Code == ev.Code && ev.At.Sub(*out[n-1].At) < 10*time.Second {
					out[n-1].Count += ev.Count // one start writes several records
					continue
				}
				out = append(out, ev)
			}
		}
	}
	for n := 1; n < len(e.recs) && !started; n++ {
		if a, b := e.recs[n-1], e.recs[n]; a.pid != b.pid && a.pid != 0 && b.pid != 0 && a.source == b.source {
			return append(out, Event{
				At: b.time(), Count: 1, Lane: string(signature.Kubelet), Code: signature.KubeletStarted,
				Marker: string(signature.Restart), Subject: "kubelet",
				What: "another kubelet process writes from here on",
			})
		}
	}
	return out
}
