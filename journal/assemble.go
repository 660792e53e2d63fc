package journal

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/journal/signature"
)

// assemble makes the report of what was read.
func assemble(sources []*logSource, opts *Options, keep bool) *Report {
	h := newHistory(sources, opts, keep)
	r := &Report{
		APIVersion: APIVersion, Kind: "JournalReport", GeneratedAt: opts.now().UTC(), Zone: h.zone, Notes: []string{},
		Episodes: []Episode{}, Signatures: []Count{}, Events: []Event{}, Sources: []Source{},
		Unreadable: []Unreadable{}, Problems: []string{},
	}
	hosts := h.hosts()
	for _, host := range hosts {
		r.Episodes = append(r.Episodes, h.episodes(host)...)
	}
	slices.SortStableFunc(r.Episodes, func(a, b Episode) int { return byTime(a.Start, b.Start, 0) })
	if len(hosts) == 1 {
		r.Host = Clean(hosts[0], 253)
	}
	r.Notes = append(r.Notes, flaps(r.Episodes)...)
	r.Signatures = h.counts(sources)
	r.Events = h.events()
	r.Failing = h.stillFailing(hosts, r.Episodes, ends(sources, opts.Until))
	h.describe(r, sources, opts.Since)
	if slices.ContainsFunc(h.bursts, func(b Burst) bool { return b.Code == signature.LogsSuppressed }) {
		r.Notes = append(r.Notes, "journald suppressed records of a unit that wrote too many: there are holes in what was read")
	}
	if h.outside > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("unhealthy records without a time were left out, because a range of time was asked for: %d", h.outside))
	}
	return r
}

// hosts returns the hosts of the unhealthy records, else of all, sorted.
func (h *history) hosts() []string {
	var out []string
	for _, u := range h.unhealthy {
		out = append(out, u.host)
	}
	if len(out) == 0 {
		for i := range h.bursts {
			out = append(out, h.bursts[i].host)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// episodes finds the episodes of one host.
func (h *history) episodes(host string) []Episode {
	all := slices.DeleteFunc(slices.Clone(h.unhealthy), func(u *unhealthy) bool { return u.host != host })
	marks := h.marksOf(host)
	g := group(sequence(all, marks, h.stamps, h.descending), func(from, to int64) bool {
		_, ok := firstMark(marks, from, to, false)
		return ok
	})
	relists := g.relists()
	var out []Episode
	for _, b := range g.episodes {
		in := b.interval()
		e := b.episode(in)
		e.Host = Clean(host, 253)
		e.Reasons = b.reasons()
		h.recover(&e, b, in, marks)
		e.Restarts = h.restarts(b, in, host)
		if e.Kind == Incident {
			e.Surroundings = h.surroundings(host, b, in)
			for _, s := range b.stalls {
				if len(relists[s]) > len(e.Surroundings.Relists) {
					e.Surroundings.Relists = relists[s]
				}
			}
		}
		out = append(out, e)
	}
	return out
}

// reasons collects what the records list beside PLEG, in order of appearance.
func (e *episodeBuilder) reasons() []string {
	var out []string
	last := ""
	for _, r := range e.recs {
		all := value(r.reasons)
		if all == last {
			continue
		}
		last = all
		for _, reason := range strings.Split(all, separator) {
			if reason = Clean(reason, 200); reason != "" && !slices.Contains(out, reason) {
				out = append(out, reason)
			}
		}
	}
	return out
}

// describe fills in what was read, with how times were understood. What a text or the kernel's buffer holds of the
// time before the range was passed over, and the range is what was read of it, also when nothing was written since.
func (h *history) describe(r *Report, sources []*logSource, since time.Time) {
	note := func(s string) {
		if !slices.Contains(r.Notes, s) {
			r.Notes = append(r.Notes, s)
		}
	}
	for i, l := range sources {
		s := l.Source
		if s.Format != formatJournal {
			var text string
			if s.Zone, s.Year, text = l.cal.describe(); text != "" &&
				len(l.matches.unhealthy)+len(l.matches.bursts) > 0 {
				note(s.Name + ": " + text)
			}
			if s.Year != "" && s.Year != "written" && len(l.matches.unhealthy) > 0 {
				note(s.Name + ": no year is written; taken " + s.Year)
			}
			for _, m := range h.stamps[uint16(i)] {
				if t, ok := m.at(); ok {
					if !since.IsZero() {
						t = max(t, since.UnixMicro())
					}
					s.From, s.To = earlier(s.From, timeOf(t)), later(s.To, timeOf(t))
				}
			}
		}
		if l.matches.dropped {
			note(s.Name + ": more unhealthy records than can be kept one by one; they are counted, but some stalls may be missing")
		}
		r.Lines += s.Lines
		r.Bytes += s.Bytes
		r.Unparsed += s.Unparsed
		r.From, r.To = earlier(r.From, s.From), later(r.To, s.To)
		r.Sources = append(r.Sources, s)
	}
	// The first episode was under way when the log began.
	if len(r.Episodes) > 0 && r.From != nil && r.Episodes[0].Start != nil && r.Episodes[0].Kind == Incident {
		first := h.unhealthy[0]
		if r.Episodes[0].Start.Sub(*r.From) < 10*time.Second && first.kind&hasAge != 0 && !first.fresh() {
			note("what was read begins inside an episode: its first records may be missing")
		}
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
	for i := 0; i < len(episodes); {
		j := i + 1
		for j < len(episodes) && sameSeries(episodes[i:j], &episodes[j]) {
			j++
		}
		n := j - i
		if n < flapsFrom || episodes[i].Kind != Incident {
			i++
			continue
		}
		for k := range n {
			episodes[i+k].Flaps = k + 1
		}
		every := (episodes[j-1].Start.Sub(*episodes[i].Start) / time.Duration(n-1)).Seconds()
		text := fmt.Sprintf("%.0f s", every)
		if every >= 90 {
			text = fmt.Sprintf("%.0f min", every/60)
		}
		notes = append(notes, fmt.Sprintf("flapping: %d episodes, one every ~%s; for a person this is one incident",
			n, text))
		i = j
	}
	return notes
}

// sameSeries reports whether an episode goes on with a series at about its interval.
func sameSeries(series []Episode, next *Episode) bool {
	last := &series[len(series)-1]
	if last.Kind != Incident || next.Kind != Incident || last.Start == nil || next.Start == nil ||
		last.Host != next.Host {
		return false
	}
	d := next.Start.Sub(*last.Start)
	if d <= 0 || d > flapsApart {
		return false
	}
	if len(series) == 1 {
		return true
	}
	mean := last.Start.Sub(*series[0].Start) / time.Duration(len(series)-1)
	return math.Abs(float64(d-mean)) <= flapsSpread*float64(max(d, mean))
}
