package journal

import (
	"slices"
	"time"

	"github.com/kdiag/kdiag/journal/signature"
)

const (
	// failingPause is how long, in µs, nothing may fail for the failing to be over. Relists that fail at once do so
	// each second, and a loop that does no work says so every 5 s (relistPeriod and syncLoop in
	// pkg/kubelet/kubelet.go): two lines may be missing.
	failingPause = 15 * second
	// failingFrom is how many records are no accident.
	failingFrom = 3
)

// failing finds what fails at the end of what was read, before it makes PLEG unhealthy by its age, or beside that:
// relists that do not get their lists, and a loop that does no work. It returns nil where an incident that has not
// ended says so, or nothing fails. ends holds up to when each source was read.
func (h *history) failing(host string, incidents []Episode, ends []*time.Time) *Episode {
	if n := len(incidents); n > 0 && incidents[n-1].Kind == Incident && !incidents[n-1].Recovered {
		return nil
	}
	in, records, source := interval{timed: true}, int64(0), uint16(0)
	for i := range h.bursts[:h.timed] {
		b := &h.bursts[i]
		last, ok := b.last.at()
		if !ok || !b.of(host) || b.Code != signature.RelistFailed && b.Code != signature.RuntimeIsDown {
			continue
		}
		if records == 0 || b.first.inner > in.end+failingPause {
			in.start, in.end, records = b.first.inner, last, 0
		}
		in.end, records, source = max(in.end, last), records+b.Count, b.source
	}
	if records < failingFrom || ends[source] == nil || ends[source].UnixMicro() > in.end+failingPause {
		return nil
	}
	return &Episode{
		Kind: Failing, Start: timeOf(in.start), End: timeOf(in.end), Seconds: float64(in.end-in.start) / 1e6,
		Lines: int(records),
		Host:  Clean(host, 253), Causes: []Cause{}, Surroundings: h.surroundings(host, &episodeBuilder{}, in),
	}
}

// ends returns up to when each source was read: a journal by its entries, a text by the last stamp in it, both no
// farther than was asked for.
func ends(sources []*logSource, until time.Time) []*time.Time {
	out := make([]*time.Time, len(sources))
	for i, s := range sources {
		if s.Format == formatJournal {
			out[i] = s.To
		}
		for _, m := range s.matches.stamps {
			if t, ok := s.cal.instant(m); ok {
				out[i] = later(out[i], timeOf(t))
			}
		}
		if out[i] != nil && !until.IsZero() && out[i].After(until) {
			out[i] = &until
		}
	}
	return out
}

// stillFailing returns what fails at the end on the host where it began last; nil if nothing does.
func (h *history) stillFailing(hosts []string, episodes []Episode, ends []*time.Time) *Episode {
	var newest *Episode
	for _, host := range hosts {
		own := slices.DeleteFunc(slices.Clone(episodes), func(e Episode) bool { return e.Host != Clean(host, 253) })
		if e := h.failing(host, own, ends); e != nil && (newest == nil || e.Start.After(*newest.Start)) {
			newest = e
		}
	}
	return newest
}
