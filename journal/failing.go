package journal

import (
	"math"

	"github.com/kdiag/kdiag/journal/signature"
)

const (
	// failingPause is how long, in µs, nothing may fail for the failing to be over. Relists that fail at once do so
	// each second, and a loop that does no work logs it every 5 s (relistPeriod and syncLoop in
	// pkg/kubelet/kubelet.go): two lines may be missing.
	failingPause = 15 * second
	// failingFrom is how many records are no accident.
	failingFrom = 3
)

// failing finds what fails at the end of what was read, before it makes PLEG unhealthy by its age, or beside that:
// relists that do not get their lists, and a loop that does no work. It returns nil where an incident of the host has
// not ended, or nothing fails. NodeReady and a loop at work end it: a kubelet writes them only when nothing stands
// against it.
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
	e := episodeBuilder{timed: true}
	source := uint16(0)
	for i := range h.bursts[:h.timed] {
		b := &h.bursts[i]
		switch {
		case !b.last.known || !b.of(host) || b.last.at < past:
		case b.Code == signature.NodeReady, b.Code == signature.SyncLoopActive:
			if b.last.at > e.end {
				e.lines = 0
			}
		case b.Code == signature.RelistFailed, b.Code == signature.RuntimeIsDown:
			if e.lines == 0 || b.first.at > e.end+failingPause {
				e.start, e.end, e.lines = b.first.at, b.last.at, 0
			}
			e.end, e.lines, source = max(e.end, b.last.at), e.lines+int(b.Count), b.source
		}
	}
	if e.lines < failingFrom {
		return nil
	}
	for _, t := range h.stamps[source] {
		if h.window.clamp(t.at) > e.end+failingPause {
			return nil
		}
	}
	if to := h.sources[source].To; to == nil || h.window.clamp(to.UnixMicro()) > e.end+failingPause {
		return nil
	}
	out := e.episode()
	out.Kind, out.Host, out.Seconds = Failing, Clean(host, 253), float64(e.end-e.start)/1e6
	out.Surroundings = h.surroundings(host, &e, past, nil)
	return &out
}
