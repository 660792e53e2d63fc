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
)

// reasonsNotReady are the records of what makes a node NotReady while PLEG is well.
var reasonsNotReady = []string{signature.RuntimeIsDown, signature.RuntimeNotReadyReported, signature.NetworkNotReady}

// A notReadyBuilder is a time in which records of one reason follow each other.
type notReadyBuilder struct {
	episodeBuilder
	code   string
	source uint16
}

// notReady adds the times in which a node was NotReady though PLEG was well: the kubelet wrote that the node became so
// while it logged one of the reasons. A kubelet that has just started does not count until its loop runs.
func (h *history) notReady(host string, episodes []Episode) []Episode {
	times := map[string][]int64{}
	open := map[string]*notReadyBuilder{}
	var all []*notReadyBuilder
	for i := range h.bursts[:h.timed] {
		b := &h.bursts[i]
		switch {
		case !b.last.known || !b.of(host):
		case slices.Contains(reasonsNotReady, b.Code):
			e := open[b.Code]
			if e == nil || b.first.at > e.end+notReadyPause {
				e = &notReadyBuilder{code: b.Code, source: b.source}
				e.timed, e.start = true, b.first.at
				open[b.Code] = e
				all = append(all, e)
			}
			e.end, e.lines = max(e.end, b.last.at), e.lines+int(b.Count)
		default:
			times[b.Code] = append(times[b.Code], b.first.at, b.last.at)
		}
	}
	slices.SortStableFunc(all, func(a, b *notReadyBuilder) int {
		return slices.Index(reasonsNotReady, a.code) - slices.Index(reasonsNotReady, b.code)
	})
	within := func(code string, from, to int64) int {
		return slices.IndexFunc(times[code], func(t int64) bool { return t >= from && t <= to })
	}
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
			ends := times[signature.NodeReady]
			if b.code == signature.RuntimeIsDown { // the loop skips meanwhile
				ends = slices.Sorted(slices.Values(slices.Concat(ends, times[signature.SyncLoopActive])))
			}
			episodes = append(episodes, h.notReadyEpisode(host, b, ends))
		}
	}
	slices.SortStableFunc(episodes, func(a, b Episode) int { return byTime(a.Start, b.Start, 0) })
	return episodes
}

// notReadyEpisode makes an episode of a time in which the node was NotReady. It ends with the next of the times at
// which it was well, or where the log goes on without the reason.
func (h *history) notReadyEpisode(host string, b *notReadyBuilder, well []int64) Episode {
	e := b.episode()
	e.Host, e.Seconds, e.NotReady = Clean(host, 253), float64(b.end-b.start)/1e6, b.code
	to := h.sources[b.source].To
	if i := slices.IndexFunc(well, func(t int64) bool { return t >= b.end }); i >= 0 {
		e.Recovered, e.RecoveredAt, e.RecoveredBy = true, timeOf(well[i]), signature.NodeReady
	} else if to != nil && to.UnixMicro() > b.end+notReadyPause {
		e.Recovered, e.RecoveredAt = true, timeOf(b.end+backoffMost/1000)
	}
	if b.anchor, b.anchored = b.start, true; b.code == signature.RuntimeIsDown {
		b.anchor -= statusFails
	}
	e.Surroundings = h.surroundings(host, &b.episodeBuilder, math.MinInt64, e.RecoveredAt)
	return e
}
