package journal

import (
	"slices"
	"time"

	"github.com/kdiag/kdiag/journal/signature"
)

const (
	// failingPause is how long, in µs, nothing may fail for the failing to be over. Relists that fail at once do so each second, and a loop
	// that does no work says so every 5 s (relistPeriod and syncLoop in pkg/kubelet/kubelet.go): two lines may be missing.
	failingPause = 15 * second
	// failingFrom is how many records are no accident.
	failingFrom = 3
)

// failing finds what fails at the end of what was read, before it makes PLEG unhealthy by its age, or beside that: relists that do not get
// their lists, and a loop that does no work. It returns nil where an incident that has not ended says so, or nothing fails. ends tells up to
// when each source was read.
func (f *facts) failing(host uint16, incidents []Episode, ends []*time.Time) *Episode {
	if n := len(incidents); n > 0 && incidents[n-1].Kind == Incident && !incidents[n-1].Recovered {
		return nil
	}
	s, records, source := span{timed: true}, 0, uint16(0)
	for i := range f.bursts[:f.timed] {
		b := &f.bursts[i]
		if code := f.code(b); !b.of(host) || code != signature.RelistFailed && code != signature.RuntimeIsDown {
			continue
		}
		first, _ := b.first.at()
		last, ok := b.last.at()
		if !ok {
			continue
		}
		if records == 0 || first > s.end+failingPause {
			s.start, s.end, records = first, last, 0
		}
		s.end, records, source = max(s.end, last), records+int(b.count), b.source
	}
	if records < failingFrom || ends[source] == nil || ends[source].UnixMicro() > s.end+failingPause {
		return nil
	}
	e := &Episode{
		Kind: Failing, Start: timeOf(s.start), End: timeOf(s.end), Seconds: float64(s.end-s.start) / 1e6, Lines: records,
		Host: clean(f.pool.nameOf(host), 253),
	}
	s.clockStart, s.clockEnd = s.start, s.end
	c := f.newCase(e, host, s, &grouping{}, &run{})
	e.Causes, e.Culprits = c.causes(), f.culprits(c.bursts)
	return e
}

// ends returns up to when each source was read: a journal by its entries, a text by the last stamp in it, both no farther than was asked for.
func (f *facts) ends(parts []*part, until time.Time) []*time.Time {
	out := make([]*time.Time, len(parts))
	for i, p := range parts {
		if p.source.Format == formatJournal {
			out[i] = p.source.To
		}
		for _, m := range p.store.sights {
			if t, ok := p.cal.instant(m); ok {
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
func (f *facts) stillFailing(hosts []uint16, episodes []Episode, ends []*time.Time) *Episode {
	var newest *Episode
	for _, h := range hosts {
		name := clean(f.pool.nameOf(h), 253)
		own := slices.DeleteFunc(slices.Clone(episodes), func(e Episode) bool { return e.Host != name })
		if e := f.failing(h, own, ends); e != nil && (newest == nil || e.Start.After(*newest.Start)) {
			newest = e
		}
	}
	return newest
}
