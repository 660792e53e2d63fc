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

// A history is the matches of all sources with their times resolved.
type history struct {
	catalogue  map[string]signature.Signature
	unhealthy  []*unhealthy
	bursts     []Burst // by time; those without a time last, in the order of the text
	marks      []mark  // proofs that the sync loop runs, by time
	stamps     map[uint16][]timestamp
	descending map[uint16]bool
	zone       *time.Location // of the clock that the logs were written by, as far as one is known; else UTC
	timed      int            // bursts with a time
	reach      []int64        // see index
	window     window         // that was asked for
	outside    int64          // unhealthy records without a time, left out because a range of time was asked for
}

// newHistory resolves the times of all sources and puts their matches together. The matches stay as they are if keep is
// set, so that more can be added to them later.
func newHistory(sources []*logSource, opts *Options, keep bool) *history {
	h := &history{
		catalogue: map[string]signature.Signature{}, stamps: map[uint16][]timestamp{}, descending: map[uint16]bool{},
		window: opts.window(),
	}
	for _, s := range signature.Catalogue() {
		h.catalogue[s.Code] = s
	}
	calendars(sources)
	for i, s := range sources {
		h.descending[uint16(i)] = s.hint.descending
		h.take(s, uint16(i), keep)
	}
	h.zone = logZone(sources)
	h.nameHosts()
	slices.SortStableFunc(h.unhealthy, func(a, b *unhealthy) int {
		ta, aok := a.at()
		tb, bok := b.at()
		if !aok || !bok {
			return 0
		}
		return cmp.Compare(ta, tb)
	})
	h.unhealthy = dedupe(h.unhealthy)
	slices.SortStableFunc(h.bursts, func(a, b Burst) int {
		return byTime(a.first.instant(), b.first.instant(),
			cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(a.first.seq, b.first.seq)))
	})
	h.index()
	slices.SortStableFunc(h.marks, func(a, b mark) int { return cmp.Compare(a.inner, b.inner) })
	return h
}

// byTime compares two times of which one or both may be missing: those come last. untimed is the order of two of them.
func byTime(a, b *time.Time, untimed int) int {
	switch {
	case a != nil && b != nil:
		return a.Compare(*b)
	case a != nil:
		return -1
	case b != nil:
		return 1
	}
	return untimed
}

// calendars builds the calendar of each source. One whose stamps name no zone takes that of the others, if they agree.
func calendars(sources []*logSource) {
	var zone *int64
	agree := true
	build := func(s *logSource) { s.cal = newCalendar(s.matches.stamps, s.texts, s.hint) }
	for _, s := range sources {
		build(s)
		if z := s.cal.zone; z.known {
			agree = agree && (zone == nil || *zone == z.main)
			zone = &z.main
		}
	}
	for _, s := range sources {
		if s.cal.assumed && zone != nil && agree {
			s.hint.zone, s.hint.zoneHow = zone, "by the other sources"
			build(s)
		}
	}
}

// logZone returns the zone of the first source that has one, for words about times of day. Journals count in UTC.
func logZone(sources []*logSource) *time.Location {
	for _, s := range sources {
		zone, _, _ := s.cal.describe()
		at, err := time.Parse("-07:00", zone[:min(len(zone), len("+08:00"))])
		if s.Format == formatJournal || err != nil {
			continue
		}
		if _, offset := at.Zone(); offset != 0 {
			return time.FixedZone("", offset)
		}
		break
	}
	return time.UTC
}

// A window is the range of time that was asked for.
type window struct{ since, until time.Time }

func (w window) open() bool { return w.since.IsZero() && w.until.IsZero() }

// side returns on which side of the window an instant lies: -1 before, 1 after, 0 within.
func (w window) side(us int64) int8 {
	switch {
	case !w.since.IsZero() && us < w.since.UnixMicro():
		return -1
	case !w.until.IsZero() && us > w.until.UnixMicro():
		return 1
	}
	return 0
}

// admits reports whether a timestamp is in the window. What has no time is only in an open one.
func (w window) admits(m *timestamp) bool {
	t, ok := m.at()
	return !ok && w.open() || ok && w.side(t) == 0
}

// take resolves the matches of one source.
func (h *history) take(s *logSource, source uint16, keep bool) {
	stamps, unhealthy, bursts := slices.Clone(s.matches.stamps), s.matches.unhealthy, s.matches.bursts
	if keep {
		unhealthy, bursts = slices.Clone(unhealthy), slices.Clone(bursts)
	}
	resolve := func(m *timestamp) {
		m.source = source
		t, ok := s.cal.instant(*m)
		if !ok || m.has(resolved) {
			return
		}
		if late := m.outer - t; m.mono != 0 && m.has(outerKnown|outerYear|outerZone) && late > 0 &&
			late <= latenessMost {
			m.mono = max(1, m.mono-late) // the monotonic stamp is as late as the outer one
		}
		m.inner, m.outer, m.flags = t, 0, m.flags|resolved
	}
	for i := range stamps {
		resolve(&stamps[i])
	}
	h.stamps[source] = slices.DeleteFunc(stamps, func(m timestamp) bool {
		t, ok := m.at()
		return ok && h.window.side(t) > 0 // what comes after the end of the range is not known, to recovery either
	})
	for i := range unhealthy {
		u := &unhealthy[i]
		resolve(&u.timestamp)
		if h.window.admits(&u.timestamp) {
			h.unhealthy = append(h.unhealthy, u)
		} else if !u.has(resolved) {
			h.outside++
		}
	}
	for _, b := range mergeBursts(bursts, s.matches.gap) {
		resolve(&b.first)
		resolve(&b.last)
		b.source, b.Title = source, h.catalogue[b.Code].Title
		if h.window.admits(&b.last) || h.window.admits(&b.first) {
			if t, ok := b.last.at(); ok && h.window.side(t) > 0 {
				b.last.inner = h.window.until.UnixMicro() // the burst goes on behind the range
			}
			h.bursts = append(h.bursts, b)
		}
	}
	for _, m := range s.matches.marks {
		resolve(&m.timestamp)
		if m.has(resolved) && h.window.admits(&m.timestamp) {
			h.marks = append(h.marks, m)
		}
	}
}

// nameHosts gives records that name no host the only host that the others name, and takes a host's short and long
// name for the same.
func (h *history) nameHosts() {
	byShort := map[string]string{}
	short := func(host string) string {
		if _, err := netip.ParseAddr(host); err == nil {
			return host
		}
		name, _, _ := strings.Cut(strings.ToLower(host), ".")
		return name
	}
	var all []*string
	for _, u := range h.unhealthy {
		all = append(all, &u.host)
	}
	for i := range h.bursts {
		all = append(all, &h.bursts[i].host)
	}
	for i := range h.marks {
		all = append(all, &h.marks[i].host)
	}
	for _, host := range all {
		if _, ok := byShort[short(*host)]; !ok && *host != "" {
			byShort[short(*host)] = *host
		}
	}
	only := ""
	if len(byShort) == 1 {
		for _, host := range byShort {
			only = host
		}
	}
	for _, host := range all {
		if *host != "" {
			*host = byShort[short(*host)]
		} else {
			*host = only
		}
	}
}

// index prepares around: reach[i] is the latest end of the bursts up to i.
func (h *history) index() {
	h.timed = sort.Search(len(h.bursts), func(i int) bool { return !h.bursts[i].first.has(resolved) })
	h.reach = make([]int64, h.timed)
	latest := int64(math.MinInt64)
	for i := range h.reach {
		last, _ := h.bursts[i].last.at()
		latest = max(latest, last, h.bursts[i].first.inner)
		h.reach[i] = latest
	}
}

// around returns the bursts of one host that touch a range of time, by their beginning.
func (h *history) around(host string, from, to int64) []*Burst {
	var out []*Burst
	for i := sort.Search(h.timed, func(i int) bool { return h.reach[i] >= from }); i < h.timed &&
		h.bursts[i].first.inner <= to; i++ {
		b := &h.bursts[i]
		if last, _ := b.last.at(); b.of(host) && max(b.first.inner, last) >= from {
			out = append(out, b)
		}
	}
	return out
}

// dedupe drops records that a second source repeats: the same stamp, process and age. It returns those that remain, in
// the order given.
func dedupe(all []*unhealthy) []*unhealthy {
	type key struct {
		age int64
		pid int32
		at  int64 // of records without an age
	}
	seen := map[key][]*unhealthy{}
	return slices.DeleteFunc(all, func(u *unhealthy) bool {
		t, ok := u.at()
		if !ok {
			return false
		}
		k := key{age: u.age, pid: u.pid}
		if u.kind&hasAge == 0 {
			k.at = t
		}
		if slices.ContainsFunc(seen[k], func(o *unhealthy) bool {
			return o.source != u.source && abs(o.inner-t) <= 2*second
		}) {
			return true
		}
		seen[k] = append(seen[k], u)
		return false
	})
}
