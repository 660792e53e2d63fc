package journal

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/kdiag/kdiag/journal/signature"
)

// A history is the matches of all sources with their times resolved.
type history struct {
	catalogue map[string]*signature.Signature
	sources   []*source
	stamps    [][]timestamp      // a sample of each source, in the order of the text
	unhealthy []*unhealthyRecord // by time, as far as they have one
	bursts    []Burst            // by time; those without a time last, in the order of the text
	hosts     []string           // sorted
	timed     int                // bursts with a time
	reach     []int64            // of each of these the latest end up to it
	zone      *time.Location     // of the clock that the logs were written by, as far as one is known; else UTC
	window    window             // that was asked for
	everySync bool
}

// newHistory resolves the times of all sources and puts copies of their matches together.
func newHistory(sources []*source, opts *Options) *history {
	h := &history{
		catalogue: map[string]*signature.Signature{}, sources: sources, window: opts.window(), zone: time.UTC,
		everySync: opts.everySync,
	}
	for _, s := range signature.Catalogue() {
		h.catalogue[s.Code] = &s
	}
	for _, s := range slices.Backward(sources) { // the first that shows a zone counts
		s.cal = newCalendar(s.matches.stamps, s.hint)
		if loc := s.cal.location(); loc != nil && s.Format != formatJournal { // journals count in UTC
			h.zone = loc
		}
	}
	for i, s := range sources {
		h.take(s, uint16(i))
	}
	h.nameHosts()
	slices.SortStableFunc(h.unhealthy, func(a, b *unhealthyRecord) int {
		if !a.known || !b.known {
			return 0
		}
		return cmp.Compare(a.at, b.at)
	})
	h.unhealthy = dedupe(h.unhealthy)
	slices.SortStableFunc(h.bursts, func(a, b Burst) int {
		return byTime(a.first.time(), b.first.time(),
			cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(a.first.seq, b.first.seq)))
	})
	h.timed = sort.Search(len(h.bursts), func(i int) bool { return !h.bursts[i].first.known })
	latest := int64(math.MinInt64)
	for _, b := range h.bursts[:h.timed] {
		latest = max(latest, b.first.at, b.last.at)
		h.reach = append(h.reach, latest)
	}
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

// clamp moves an instant to the end of the window beyond which it lies.
func (w window) clamp(us int64) int64 {
	switch w.side(us) {
	case -1:
		return w.since.UnixMicro()
	case 1:
		return w.until.UnixMicro()
	}
	return us
}

// admits reports whether a timestamp is in the window. A record without a time is only in an open one.
func (w window) admits(t *timestamp) bool {
	return !t.known && w.open() || t.known && w.side(t.at) == 0
}

// take resolves the times of one source's matches. The reported range is the time covered by reading, even where
// nothing was logged.
func (h *history) take(s *source, source uint16) {
	resolve := func(t timestamp) timestamp {
		t.source = source
		t.at, t.known = s.cal.instant(t)
		return t
	}
	if s.Format != formatJournal {
		s.From, s.To = nil, nil
	}
	stamps := make([]timestamp, 0, len(s.matches.stamps))
	for _, t := range s.matches.stamps {
		if t = resolve(t); !t.known {
			continue
		}
		stamps = append(stamps, t)
		if s.Format != formatJournal && h.window.side(t.at) <= 0 {
			at := timeOf(h.window.clamp(t.at))
			s.From, s.To = earlier(s.From, at), later(s.To, at)
		}
	}
	h.stamps = append(h.stamps, stamps)
	for _, u := range s.matches.unhealthy {
		if u.timestamp = resolve(u.timestamp); h.window.admits(&u.timestamp) {
			h.unhealthy = append(h.unhealthy, &u)
		}
	}
	for _, b := range s.matches.bursts {
		b.first, b.last, b.source, b.Title = resolve(b.first), resolve(b.last), source, h.catalogue[b.Code].Title
		if h.window.admits(&b.last) || h.window.admits(&b.first) {
			b.last.at = h.window.clamp(b.last.at) // the burst may go on behind the range
			h.bursts = append(h.bursts, b)
		}
	}
}

// nameHosts gives records that name no host the only host that the others name, and lists the hosts of the unhealthy
// records, else of all.
func (h *history) nameHosts() {
	var all []*string
	for _, u := range h.unhealthy {
		all = append(all, &u.host)
	}
	for i := range h.bursts {
		all = append(all, &h.bursts[i].host)
	}
	names := map[string]bool{}
	for i, host := range all {
		if names[*host] = true; i < len(h.unhealthy) || len(h.unhealthy) == 0 {
			h.hosts = append(h.hosts, *host)
		}
	}
	slices.Sort(h.hosts)
	h.hosts = slices.Compact(h.hosts)
	if delete(names, ""); len(names) == 1 {
		h.hosts = slices.Collect(maps.Keys(names))
		for _, host := range all {
			*host = h.hosts[0]
		}
	}
}

// around returns the bursts of one host that touch a range of time, by their beginning.
func (h *history) around(host string, from, to int64) []*Burst {
	var out []*Burst
	for i := sort.Search(h.timed, func(i int) bool { return h.reach[i] >= from }); i < h.timed &&
		h.bursts[i].first.at <= to; i++ {
		if b := &h.bursts[i]; b.of(host) && max(b.first.at, b.last.at) >= from {
			out = append(out, b)
		}
	}
	return out
}

// dedupe drops records that a second source repeats: the same stamp, process and age. It returns those that remain, in
// the order given.
func dedupe(all []*unhealthyRecord) []*unhealthyRecord {
	type key struct {
		age int64
		pid int32
		at  int64 // of records without an age
	}
	seen := map[key][]*unhealthyRecord{}
	return slices.DeleteFunc(all, func(u *unhealthyRecord) bool {
		k := key{age: u.age, pid: u.pid}
		if u.kind&hasAge == 0 {
			k.at = u.at
		}
		again := u.known && slices.ContainsFunc(seen[k], func(o *unhealthyRecord) bool {
			return o.known && o.source != u.source && abs(o.at-u.at) <= 2*second
		})
		if !again {
			seen[k] = append(seen[k], u)
		}
		return again
	})
}
