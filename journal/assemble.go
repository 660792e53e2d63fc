package journal

import (
	"cmp"
	"slices"
	"time"

	"github.com/kdiag/kdiag/journal/signature"
)

// assemble makes the report of what was read.
func assemble(parts []*part, p *pool, opts *Options, keep bool) *Report {
	f := gather(parts, p, opts.Since, opts.Until, keep)
	r := &Report{
		APIVersion: APIVersion, Kind: "JournalReport", GeneratedAt: opts.now().UTC(),
		Episodes: []Episode{}, Signatures: []Count{}, Events: []Event{}, Sources: []Source{}, Unreadable: []Unreadable{},
	}
	hosts := f.hostList()
	for _, h := range hosts {
		r.Episodes = append(r.Episodes, f.episodes(h)...)
	}
	slices.SortStableFunc(r.Episodes, func(a, b Episode) int {
		switch {
		case a.Start == nil && b.Start == nil:
			return 0
		case a.Start == nil:
			return 1
		case b.Start == nil:
			return -1
		}
		return a.Start.Compare(*b.Start)
	})
	if len(hosts) == 1 {
		r.Host = clean(p.nameOf(hosts[0]), 253)
	}
	r.Notes = append(r.Notes, flaps(r.Episodes)...)
	r.Signatures = f.counts(parts)
	r.Events = f.events(r.Episodes)
	r.Failing = f.stillFailing(hosts, r.Episodes, f.ends(parts, opts.Until))
	sources(r, parts, f, opts.Since)
	r.Notes = append(r.Notes, f.notes()...)
	if r.Notes == nil {
		r.Notes = []string{}
	}
	return r
}

// hostList returns the hosts of the unhealthy records, else of all, sorted.
func (f *facts) hostList() []uint16 {
	had := map[uint16]bool{}
	for _, h := range f.pleg {
		had[h.host] = true
	}
	if len(had) == 0 {
		for i := range f.bursts {
			had[f.bursts[i].host] = true
		}
	}
	out := make([]uint16, 0, len(had))
	for h := range had {
		out = append(out, h)
	}
	slices.SortFunc(out, func(a, b uint16) int { return cmp.Compare(f.pool.nameOf(a), f.pool.nameOf(b)) })
	return out
}

// episodes finds the episodes of one host.
func (f *facts) episodes(host uint16) []Episode {
	var hits []*plegHit
	for _, h := range f.pleg {
		if h.host == host {
			hits = append(hits, h)
		}
	}
	if len(hits) == 0 {
		return nil
	}
	marks := f.marks(host)
	g := group(sequence(hits, marks, f.sights, f.descending))
	startup := g.settle(func(from, to int64) bool {
		_, ok := firstMark(marks, from, to, false)
		return ok
	})
	chains := g.chains()
	var out []Episode
	for i := range g.runs {
		r := &g.runs[i]
		if len(r.recs) == 0 {
			continue
		}
		s := g.span(r)
		e := g.episode(r, s)
		if startup[i] {
			e.Kind = Startup
		}
		e.Host = clean(f.pool.nameOf(host), 253)
		e.Reasons = f.reasons(g, r)
		f.recover(&e, g, r, s, marks)
		e.Restarts = f.restarts(g, r, s, host)
		if e.Kind == Incident {
			c := f.newCase(&e, host, s, g, r)
			c.relists = r.of(chains)
			e.Causes = c.causes()
			e.Culprits = f.culprits(c.bursts)
		}
		out = append(out, e)
	}
	return out
}

// reasons collects what the records list beside PLEG, in order of appearance.
func (f *facts) reasons(g *grouping, r *run) []string {
	var out []string
	had := map[uint16]bool{}
	for _, i := range r.recs {
		n := g.recs[i].reasons
		if had[n] {
			continue
		}
		had[n] = true
		for _, reason := range splitReasons(f.pool.nameOf(n)) {
			if reason = clean(reason, 200); reason != "" && !slices.Contains(out, reason) {
				out = append(out, reason)
			}
		}
	}
	return out
}

// notes words what limits the answer.
func (f *facts) notes() []string {
	var out []string
	for i := range f.bursts {
		if f.code(&f.bursts[i]) == signature.LogsSuppressed {
			out = append(out, "journald suppressed records of a unit that wrote too many: there are holes in what was read")
			break
		}
	}
	if f.outside > 0 {
		out = append(out, "unhealthy records without a time were left out, because a range of time was asked for: "+times(f.outside))
	}
	return out
}

// sources fills in what was read, with how times were understood. What a text or the kernel's buffer holds of the time before the range was
// passed over, and the range is what was read of it, also when nothing was written since.
func sources(r *Report, parts []*part, f *facts, since time.Time) {
	noted := map[string]bool{}
	note := func(s string) {
		if s != "" && !noted[s] {
			noted[s] = true
			r.Notes = append(r.Notes, s)
		}
	}
	for i, p := range parts {
		s := p.source
		if p.cal != nil && s.Format != formatJournal {
			var text string
			if s.Zone, s.Year, text = p.cal.describe(); text != "" && len(p.store.pleg)+len(p.store.bursts) > 0 {
				note(s.Name + ": " + text)
			}
			if s.Year != "" && s.Year != "written" && len(p.store.pleg) > 0 {
				note(s.Name + ": no year is written; taken " + s.Year)
			}
		}
		for _, m := range f.sights[uint16(i)] {
			if t, ok := m.at(); ok && s.Format != formatJournal {
				if !since.IsZero() {
					t = max(t, since.UnixMicro())
				}
				s.From, s.To = earlier(s.From, timeOf(t)), later(s.To, timeOf(t))
			}
		}
		if p.store.dropped > 0 {
			note(s.Name + ": more unhealthy records than can be kept one by one; they are counted, but some stalls may be missing")
		}
		r.Lines += s.Lines
		r.Bytes += s.Bytes
		r.Unparsed += s.Unparsed
		r.From, r.To = earlier(r.From, s.From), later(r.To, s.To)
		r.Sources = append(r.Sources, s)
	}
	if f.startsInTrouble(r) {
		note("what was read begins inside an episode: its first records may be missing")
	}
}

// startsInTrouble reports whether the first episode was under way when the log begins.
func (f *facts) startsInTrouble(r *Report) bool {
	if len(r.Episodes) == 0 || r.From == nil || r.Episodes[0].Start == nil || r.Episodes[0].Kind != Incident {
		return false
	}
	e := &r.Episodes[0]
	first := f.pleg[0]
	return e.Start.Sub(*r.From) < 10*time.Second && first.kind&hasAge != 0 && !first.fresh()
}
