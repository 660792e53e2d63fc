package journal

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/kdiag/kdiag/journal/signature"
)

// A part is one source as it was read, with what is known of its stamps.
type part struct {
	source Source
	store  *store
	hint   calendarHint
	texts  []dated
	cal    *calendar

	blind   bool // it was read, and tells nothing
	skipped bool // a journal file that by its header holds nothing of the time asked for
}

// facts are the hits of all sources with their times resolved.
type facts struct {
	pool       *pool
	catalogue  map[string]signature.Signature
	pleg       []*plegHit
	bursts     []burst // by time; those without a time last, in the order of the text
	syncs      []syncHit
	sights     map[uint16][]moment
	descending map[uint16]bool
	zone       *time.Location // of the clock that the logs were written by, as far as one is known; else UTC
	timed      int            // bursts with a time
	reach      []int64        // see index
	window     limits         // that was asked for
	outside    int64          // unhealthy records without a time, left out because a range of time was asked for
}

// catalogueByCode returns all signatures by their code.
func catalogueByCode() map[string]signature.Signature {
	m := map[string]signature.Signature{}
	for _, s := range signature.Catalogue() {
		m[s.Code] = s
	}
	return m
}

// gather resolves the times of all parts and puts their hits together. The stores stay as they are if keep is set, so that
// more can be added to them later.
func gather(parts []*part, p *pool, since, until time.Time, keep bool) *facts {
	f := &facts{pool: p, catalogue: catalogueByCode(), sights: map[uint16][]moment{}, descending: map[uint16]bool{}}
	calendars(parts)
	f.window = limits{since: since, until: until}
	for i, part := range parts {
		s := uint16(i)
		f.descending[s] = part.hint.descending
		f.take(part, s, f.window, keep)
	}
	f.zone = logZone(parts)
	f.hosts()
	slices.SortStableFunc(f.pleg, func(a, b *plegHit) int {
		ta, aok := a.at()
		tb, bok := b.at()
		if !aok || !bok {
			return 0
		}
		return cmp.Compare(ta, tb)
	})
	f.pleg = dedupe(f.pleg)
	slices.SortStableFunc(f.bursts, func(a, b burst) int {
		ta, aok := a.first.at()
		tb, bok := b.first.at()
		switch {
		case aok && bok:
			return cmp.Compare(ta, tb)
		case aok:
			return -1
		case bok:
			return 1
		}
		return cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(a.first.seq, b.first.seq))
	})
	f.index()
	slices.SortStableFunc(f.syncs, func(a, b syncHit) int { return cmp.Compare(a.inner, b.inner) })
	return f
}

// calendars builds the calendar of each part. A part whose stamps say no zone takes that of the others, if they agree.
func calendars(parts []*part) {
	var zone *int64
	agree := true
	build := func(p *part) { p.cal = newCalendar(p.store.sights, p.texts, p.hint) }
	for _, p := range parts {
		build(p)
		if z := p.cal.zone; z.known {
			if zone != nil && *zone != z.main {
				agree = false
			}
			zone = &z.main
		}
	}
	if zone == nil || !agree {
		return
	}
	for _, p := range parts {
		if p.cal.assumed {
			p.hint.zone, p.hint.zoneHow = zone, "by the other sources"
			build(p)
		}
	}
}

// logZone returns the zone of the first source that has one, for words about times of day. Journals count in UTC.
func logZone(parts []*part) *time.Location {
	for _, p := range parts {
		if p.source.Format == formatJournal {
			continue
		}
		zone, _, _ := p.cal.describe()
		at, err := time.Parse("-07:00", zone[:min(len(zone), len("+08:00"))])
		if err != nil {
			continue
		}
		if _, offset := at.Zone(); offset != 0 {
			return time.FixedZone("", offset)
		}
		break
	}
	return time.UTC
}

// limits is the range of time that was asked for.
type limits struct{ since, until time.Time }

func (l limits) open() bool { return l.since.IsZero() && l.until.IsZero() }

// admits reports whether a moment is in the range. What has no time is only in an open one.
func (l limits) admits(m *moment) bool {
	t, ok := m.at()
	switch {
	case !ok:
		return l.open()
	case !l.since.IsZero() && t < l.since.UnixMicro():
		return false
	}
	return l.until.IsZero() || t <= l.until.UnixMicro()
}

// take resolves the hits of one part.
func (f *facts) take(p *part, source uint16, window limits, keep bool) {
	sights, pleg, bursts := p.store.sights, p.store.pleg, p.store.bursts
	if keep {
		sights, pleg, bursts = slices.Clone(sights), slices.Clone(pleg), slices.Clone(bursts)
	}
	resolve := func(m *moment) {
		m.source = source
		if m.has(resolved) {
			return
		}
		t, ok := p.cal.instant(*m)
		if !ok {
			return
		}
		if late := m.outer - t; m.mono != 0 && m.has(outerKnown|outerYear|outerZone) && late > 0 && late <= latenessMost {
			m.mono = max(1, m.mono-late) // the monotonic stamp is as late as the outer one
		}
		m.inner, m.outer, m.flags = t, 0, m.flags|resolved
	}
	for i := range sights {
		resolve(&sights[i])
	}
	if !window.until.IsZero() { // what comes after the end of the range is not known, to recovery either
		sights = slices.DeleteFunc(slices.Clone(sights), func(m moment) bool {
			t, ok := m.at()
			return ok && t > window.until.UnixMicro()
		})
	}
	f.sights[source] = sights
	for i := range pleg {
		h := &pleg[i]
		resolve(&h.moment)
		if window.admits(&h.moment) {
			f.pleg = append(f.pleg, h)
		} else if !h.has(resolved) {
			f.outside++
		}
	}
	for _, b := range mergeBursts(bursts, p.store.gap) {
		resolve(&b.first)
		resolve(&b.last)
		b.source = source
		if window.admits(&b.last) || window.admits(&b.first) {
			if t, ok := b.last.at(); ok && !window.until.IsZero() && t > window.until.UnixMicro() {
				b.last.inner = window.until.UnixMicro() // the burst goes on behind the range
			}
			f.bursts = append(f.bursts, b)
		}
	}
	for _, s := range p.store.syncs {
		resolve(&s.moment)
		if s.has(resolved) && window.admits(&s.moment) {
			f.syncs = append(f.syncs, s)
		}
	}
}

// hosts lets records that name no host belong to the only host that the others name, and takes a host's short and long
// name for the same.
func (f *facts) hosts() {
	byShort := map[string]uint16{}
	alias := map[uint16]uint16{}
	see := func(h uint16) {
		if _, ok := alias[h]; ok || h == 0 {
			return
		}
		short := f.pool.nameOf(h)
		if _, err := netip.ParseAddr(short); err != nil {
			short, _, _ = strings.Cut(strings.ToLower(short), ".")
		}
		if _, ok := byShort[short]; !ok {
			byShort[short] = h
		}
		alias[h] = byShort[short]
	}
	for _, h := range f.pleg {
		see(h.host)
	}
	for i := range f.bursts {
		see(f.bursts[i].host)
	}
	if len(byShort) == 1 {
		for _, only := range byShort {
			alias[0] = only
		}
	}
	for _, h := range f.pleg {
		h.host = alias[h.host]
	}
	for i := range f.bursts {
		f.bursts[i].host = alias[f.bursts[i].host]
	}
	for i := range f.syncs {
		if a, ok := alias[f.syncs[i].host]; ok {
			f.syncs[i].host = a
		}
	}
}

// code returns the signature code of a burst.
func (f *facts) code(b *burst) string { return f.pool.nameOf(b.code) }

// of reports whether a burst belongs to a host, as far as it says one.
func (b *burst) of(host uint16) bool { return b.host == host || b.host == 0 || host == 0 }

// index prepares around: reach[i] is the latest end of the bursts up to i.
func (f *facts) index() {
	f.timed = sort.Search(len(f.bursts), func(i int) bool { return !f.bursts[i].first.has(resolved) })
	f.reach = make([]int64, f.timed)
	latest := int64(math.MinInt64)
	for i := range f.reach {
		last, _ := f.bursts[i].last.at()
		latest = max(latest, last, f.bursts[i].first.inner)
		f.reach[i] = latest
	}
}

// around returns the bursts of one host that touch a range of time, by their beginning.
func (f *facts) around(host uint16, from, to int64) []*burst {
	var out []*burst
	for i := sort.Search(f.timed, func(i int) bool { return f.reach[i] >= from }); i < f.timed && f.bursts[i].first.inner <= to; i++ {
		b := &f.bursts[i]
		if last, _ := b.last.at(); b.of(host) && max(b.first.inner, last) >= from {
			out = append(out, b)
		}
	}
	return out
}
