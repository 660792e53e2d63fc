package journal

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/journal/signature"
)

// assemble makes the report.
func assemble(sources []*source, opts *Options) *Report {
	h := newHistory(sources, opts)
	r := &Report{
		APIVersion: APIVersion, Kind: "JournalReport", GeneratedAt: opts.Now().UTC(), Zone: h.zone, Notes: []string{},
		Episodes: []Episode{}, Signatures: h.counts(), Events: h.events(), Sources: []Source{},
		MemoryKills: h.memoryKills(), Errors: h.errorGroups(),
		Unreadable: []Unreadable{}, Problems: []string{},
	}
	for _, host := range h.hosts {
		episodes := h.notReady(host, h.episodes(host))
		r.Episodes = append(r.Episodes, episodes...)
		if e := h.failing(host, episodes); e != nil && (r.Failing == nil || e.Start.After(*r.Failing.Start)) {
			r.Failing = e
		}
	}
	slices.SortStableFunc(r.Episodes, func(a, b Episode) int { return byTime(a.Start, b.Start, 0) })
	if len(h.hosts) == 1 {
		r.Host = Clean(h.hosts[0], 253)
	}
	r.Notes = append(r.Notes, flaps(r.Episodes)...)
	h.describe(r)
	if slices.ContainsFunc(h.bursts, func(b Burst) bool { return b.Code == signature.LogsSuppressed }) {
		r.Notes = append(
			r.Notes,
			"journald suppressed records of a unit that wrote too many: there are holes in what was read",
		)
	}
	return r
}

// episodes finds the episodes of one host.
func (h *history) episodes(host string) []Episode {
	all := slices.DeleteFunc(slices.Clone(h.unhealthy), func(u *unhealthyRecord) bool { return u.host != host })
	marks := h.marksOf(host)
	descending := func(source uint16) bool { return h.sources[source].hint.descending }
	g := group(sequence(all, marks, descending), func(from, to int64) bool {
		_, ok := firstMark(marks, from, to, false)
		return ok
	})
	g.chain()
	past := int64(math.MinInt64) // when the last incident ended
	var out []Episode
	for _, b := range g.episodes {
		e := b.episode()
		e.Host = Clean(host, 253)
		e.Reasons = b.reasons()
		h.recover(&e, b, g.next(b), marks)
		e.Restarts = h.restarts(b, host)
		if e.Kind == Startup && b.timed {
			e.StartedBy = h.startedBy(host, b.start)
		}
		if e.Kind == Incident {
			e.Context = h.contextOf(host, b, past, e.RecoveredAt)
			if past = b.end; e.RecoveredAt != nil {
				past = e.RecoveredAt.UnixMicro()
			}
			for _, s := range b.stalls {
				if s.relists != nil && len(*s.relists) > len(e.Context.Relists) {
					e.Context.Relists = *s.relists
				}
			}
		}
		out = append(out, e)
	}
	return out
}

// reasons collects the reasons that the records list beside PLEG, in order of appearance.
func (e *episodeBuilder) reasons() []string {
	var out []string
	for i, u := range e.recs {
		if i > 0 && u.reasons == e.recs[i-1].reasons {
			continue
		}
		for reason := range strings.SplitSeq(u.reasons.Value(), separator) {
			if reason = Clean(reason, 200); reason != "" && !slices.Contains(out, reason) {
				out = append(out, reason)
			}
		}
	}
	return out
}

// describe fills in the sources and their totals, with how their times were understood.
func (h *history) describe(r *Report) {
	for _, l := range h.sources {
		s := l.Source
		if s.Format != formatJournal {
			s.Zone, s.Year = l.cal.describe()
			if l.cal.assumed && len(l.matches.unhealthy)+len(l.matches.bursts) > 0 {
				r.Notes = append(r.Notes, s.Name+": time zone assumed: "+l.cal.hint.loc.String()+
					" ("+l.cal.location().String()+")")
			}
			if s.Year != "" && s.Year != "written" && len(l.matches.unhealthy) > 0 {
				r.Notes = append(r.Notes, s.Name+": year "+s.Year)
			}
		}
		r.Lines += s.Lines
		r.Bytes += s.Bytes
		r.Unparsed += s.Unparsed
		r.From, r.To = earlier(r.From, s.From), later(r.To, s.To)
		r.Sources = append(r.Sources, s)
	}
}

// Episodes are flapping from this many on, if each returns after the median interval give or take this share of it.
const (
	flapsFrom   = 3
	flapsSpread = 0.4
	flapsApart  = time.Hour // farther apart, returning is chance, or a daily job that the times show by themselves
)

// flaps numbers incidents that return at a regular interval, and returns a note about each series.
func flaps(episodes []Episode) []string {
	var notes []string
	for from, i := 0, 1; i <= len(episodes); i++ {
		series := episodes[from:i]
		if i < len(episodes) && sameSeries(series, &episodes[i]) {
			continue
		}
		if from = i; len(series) < flapsFrom {
			continue
		}
		for k := range series {
			series[k].Flaps = k + 1
		}
		every := series[len(series)-1].Start.Sub(*series[0].Start) / time.Duration(len(series)-1)
		notes = append(notes, fmt.Sprintf("flapping: %d episodes, one every ~%s; for a person this is one incident",
			len(series), every.Round(time.Second)))
	}
	return notes
}

// sameSeries reports whether an episode goes on with a series at about its interval.
func sameSeries(series []Episode, next *Episode) bool {
	first, last := &series[0], &series[len(series)-1]
	if last.Kind != Incident || next.Kind != Incident || last.Start == nil || next.Start == nil ||
		last.Host != next.Host || last.NotReady != next.NotReady {
		return false
	}
	d := next.Start.Sub(*last.Start)
	if len(series) == 1 {
		return d > 0 && d <= flapsApart
	}
	mean := last.Start.Sub(*first.Start) / time.Duration(len(series)-1)
	return d > 0 && d <= flapsApart && math.Abs(float64(d-mean)) <= flapsSpread*float64(max(d, mean))
}
