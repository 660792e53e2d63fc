package journal

import (
	"math"
	"slices"

	"github.com/kdiag/kdiag/journal/signature"
)

const (
	// notReadyPause is how far apart, in µs, records of one reason may lie. The kubelet asks for the runtime's status
	// every 5 s (updateRuntimeUp in pkg/kubelet/kubelet.go) and its loop skips as often.
	notReadyPause = 30 * second
	// statusFails is how long, in µs, before its first record the runtime can have failed for the kubelet to call it
	// down: 30 s, and the 2 min that a hung call waits.
	statusFails = 150 * second
	// failingPause is how long, in µs, nothing may fail for the failure to be over. Relists that fail at once do so
	// each second, and a loop that does no work logs it every 5 s (relistPeriod and syncLoop in
	// pkg/kubelet/kubelet.go): two lines may be missing.
	failingPause = 15 * second
	// failingFrom is how many records are no accident.
	failingFrom = 3
)

// streaks returns the times, after an instant, in which records of some codes follow each other with no longer pause
// between them. A later record of one of the codes in ends ends a streak; open reports whether none ended the last one.
func (h *history) streaks(host string, from, pause int64, codes, ends []string) (all []*episodeBuilder, open bool) {
	var e *episodeBuilder
	for i := range h.bursts[:h.timed] {
		b := &h.bursts[i]
		switch {
		case !b.last.known || !b.of(host) || b.last.at < from:
		case slices.Contains(codes, b.Code):
			if !open || b.first.at > e.end+pause {
				e = &episodeBuilder{code: b.Code, timed: true, start: b.first.at}
				all, open = append(all, e), true
			}
			e.end, e.lines, e.source = max(e.end, b.last.at), e.lines+int(b.Count), b.source
		case open && b.last.at > e.end && slices.Contains(ends, b.Code):
			open = false
		}
	}
	return all, open
}

// streakEpisode makes an episode of a streak.
func (h *history) streakEpisode(kind, host string, b *episodeBuilder) *Episode {
	e := b.episode()
	e.Kind, e.Host, e.Seconds = kind, Clean(host, 253), float64(b.end-b.start)/1e6
	return &e
}

// notReady adds the times in which a node was NotReady though PLEG was well: the kubelet wrote that the node became so
// while it logged one of the reasons. A kubelet that has just started does not count until its loop runs.
func (h *history) notReady(host string, episodes []Episode) []Episode {
	times := map[string][]int64{}
	for i := range h.bursts[:h.timed] {
		if b := &h.bursts[i]; b.last.known && b.of(host) {
			times[b.Code] = append(times[b.Code], b.first.at, b.last.at)
		}
	}
	within := func(code string, from, to int64) int {
		return slices.IndexFunc(times[code], func(t int64) bool { return t >= from && t <= to })
	}
	for _, code := range []string{signature.RuntimeIsDown, signature.RuntimeNotReadyReported, signature.NetworkNotReady} {
		all, _ := h.streaks(host, math.MinInt64, notReadyPause, []string{code}, nil)
		for _, b := range all {
			covered := slices.ContainsFunc(episodes, func(e Episode) bool {
				from, to, ok := e.Span()
				return ok && e.Kind == Incident && from.UnixMicro() <= b.end && to.UnixMicro() >= b.start
			})
			started := within(signature.SyncLoopStarted, b.start-startupLasts, b.end)
			starting := started >= 0 && b.end-b.start < startupLasts && !slices.ContainsFunc(
				[]string{signature.SyncLoopActive, signature.RuntimeModulesStarted, signature.NodeReady},
				func(code string) bool { return within(code, times[signature.SyncLoopStarted][started], b.start) >= 0 })
			if !covered && !starting && within(signature.NodeNotReady, b.start-second, b.end+second) >= 0 {
				ready := times[signature.NodeReady]
				if code == signature.RuntimeIsDown { // the loop skips meanwhile
					ready = slices.Sorted(slices.Values(slices.Concat(ready, times[signature.SyncLoopActive])))
				}
				episodes = append(episodes, *h.notReadyEpisode(host, b, ready))
			}
		}
	}
	slices.SortStableFunc(episodes, func(a, b Episode) int { return byTime(a.Start, b.Start, 0) })
	return episodes
}

// notReadyEpisode makes an episode of a time in which the node was NotReady. It ends with the next of the times at
// which the node was ready, or where the log goes on without the reason.
func (h *history) notReadyEpisode(host string, b *episodeBuilder, ready []int64) *Episode {
	e := h.streakEpisode(Incident, host, b)
	e.NotReady = b.code
	to := h.sources[b.source].To
	if i := slices.IndexFunc(ready, func(t int64) bool { return t >= b.end }); i >= 0 {
		e.Recovered, e.RecoveredAt, e.RecoveredBy = true, timeOf(ready[i]), signature.NodeReady
	} else if to != nil && to.UnixMicro() > b.end+notReadyPause {
		e.Recovered, e.RecoveredAt = true, timeOf(b.end+backoffMost/1000)
	}
	if b.anchor, b.anchored = b.start, true; b.code == signature.RuntimeIsDown {
		b.anchor -= statusFails
	}
	e.Context = h.contextOf(host, b, math.MinInt64, e.RecoveredAt)
	return e
}

// failing returns the failure that continues to the end of the logs and has not made PLEG unhealthy: relists that do
// not get their lists, or a loop that does no work. It returns nil while an incident of the host goes on. NodeReady and
// a loop at work end a failure: the kubelet logs them only when nothing stands against it.
func (h *history) failing(host string, episodes []Episode) *Episode {
	past := int64(math.MinInt64)
	if n := len(episodes); n > 0 && episodes[n-1].Kind == Incident {
		if !episodes[n-1].Recovered {
			return nil
		}
		if at := episodes[n-1].RecoveredAt; at != nil {
			past = at.UnixMicro()
		}
	}
	all, open := h.streaks(host, past, failingPause, []string{signature.RelistFailed, signature.RuntimeIsDown},
		[]string{signature.NodeReady, signature.SyncLoopActive})
	if !open {
		return nil
	}
	b := all[len(all)-1]
	over := func(t int64) bool { return h.window.clamp(t) > b.end+failingPause }
	to := h.sources[b.source].To
	if b.lines < failingFrom || to == nil || over(to.UnixMicro()) ||
		slices.ContainsFunc(h.stamps[b.source], func(t timestamp) bool { return over(t.at) }) {
		return nil
	}
	e := h.streakEpisode(Failing, host, b)
	e.Context = h.contextOf(host, b, past, nil)
	return e
}
