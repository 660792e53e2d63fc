package journal

import (
	"cmp"
	"slices"
)

// How far, in µs, time must go backwards in a text to be a step of the clock, and not lines that changed places.
const (
	stepBack     = 90 * second // between any two records: split streams and interleaved writers differ by seconds
	stepBackSame = 2 * second  // between unhealthy records of one process, which klog writes one after the other
)

// A rec is one unhealthy record on the axis on which gaps are measured.
type rec struct {
	*plegHit
	// clock is the record's time in µs with the steps of the wall clock taken out as far as they are known: by the
	// monotonic clock where a journal gives it, else by time that goes backwards in the text.
	clock int64
	timed bool
	// step numbers the stretches of a text between steps back. The time that really passed at a step is unknown.
	step int32
}

// sequence puts the unhealthy records of one host in order, and gives the marks their clock too. sights are the resolved
// stamps of all sources, by source, in the order of the text; descending tells which sources are newest first.
func sequence(hits []*plegHit, marks []mark, sights map[uint16][]moment, descending map[uint16]bool) []rec {
	bySource := map[uint16][]item{}
	for _, h := range hits {
		bySource[h.source] = append(bySource[h.source], item{m: &h.moment, hit: h})
	}
	for i := range marks {
		bySource[marks[i].source] = append(bySource[marks[i].source], item{m: &marks[i].moment, mark: &marks[i]})
	}
	sources := make([]uint16, 0, len(bySource))
	for s := range bySource {
		sources = append(sources, s)
	}
	slices.Sort(sources)
	boots := bootOffsets(hits, sights)
	recs := make([]rec, 0, len(hits))
	step := int32(0)
	for _, s := range sources {
		u := unwrapper{items: bySource[s], boots: boots, step: &step}
		u.order(sights[s], descending[s])
		recs = append(recs, u.run()...)
	}
	slices.SortStableFunc(marks, func(a, b mark) int { return cmp.Compare(a.clock, b.clock) })
	slices.SortStableFunc(recs, func(a, b rec) int {
		if !a.timed || !b.timed {
			return 0
		}
		return cmp.Compare(a.clock, b.clock)
	})
	return recs
}

// A bootKey names a run of a monotonic clock: a boot, or a source whose boot is unknown.
type bootKey struct{ boot, source uint16 }

func keyOf(m *moment) bootKey {
	if m.boot != 0 {
		return bootKey{boot: m.boot}
	}
	return bootKey{source: m.source + 1}
}

// bootOffsets returns wall clock minus monotonic clock at the start of each boot that was seen.
func bootOffsets(hits []*plegHit, sights map[uint16][]moment) map[bootKey]int64 {
	type origin struct{ mono, offset int64 }
	first := map[bootKey]origin{}
	see := func(m *moment) {
		t, ok := m.at()
		if !ok || m.mono == 0 {
			return
		}
		k := keyOf(m)
		if o, ok := first[k]; !ok || m.mono < o.mono {
			first[k] = origin{m.mono, t - m.mono}
		}
	}
	for _, h := range hits {
		see(&h.moment)
	}
	for _, list := range sights {
		for i := range list {
			see(&list[i])
		}
	}
	out := make(map[bootKey]int64, len(first))
	for k, o := range first {
		out[k] = o.offset
	}
	for k := range implausible(hits) {
		delete(out, k)
	}
	return out
}

// implausible finds monotonic clocks that contradict the records: made up, as by a converter, or of another machine. By
// the wall clock two records have one anchor, so the age grew as time did; a true monotonic clock must say the same.
func implausible(hits []*plegHit) map[bootKey]bool {
	bad := map[bootKey]bool{}
	last := map[bootKey]*plegHit{}
	for _, h := range hits {
		t, ok := h.at()
		if !ok || h.mono == 0 {
			continue
		}
		k := keyOf(&h.moment)
		p := last[k]
		last[k] = h
		if p == nil || p.pid != h.pid {
			continue
		}
		u, _ := p.at()
		grown, passed := (h.age-p.age)/1000, h.mono-p.mono
		if h.kind&p.kind&hasAge != 0 && abs(h.anchor(t)-p.anchor(u)) <= anchorTolerance && abs(grown-passed) > second {
			bad[k] = true
		}
	}
	return bad
}

// An item is something with a time in the order of a text: an unhealthy record, a mark of recovery, or only a stamp.
type item struct {
	m    *moment
	hit  *plegHit
	mark *mark
}

// An unwrapper gives the records of one source their clock.
type unwrapper struct {
	items []item
	boots map[bootKey]int64
	step  *int32

	shift, high, latest int64 // what is added to the wall clock; the highest clock so far; that of the latest unhealthy record
	seen                bool
	pid                 int32
}

// order puts all that has a stamp into the order in which it was written.
func (u *unwrapper) order(sights []moment, descending bool) {
	for i := range sights {
		u.items = append(u.items, item{m: &sights[i]})
	}
	slices.SortStableFunc(u.items, func(a, b item) int { return cmp.Compare(a.m.seq, b.m.seq) })
	if descending {
		slices.Reverse(u.items)
	}
}

func (u *unwrapper) run() []rec {
	var recs []rec
	for i, it := range u.items {
		t, ok := it.m.at()
		clock := t
		if off, mono := u.boots[keyOf(it.m)]; mono && it.m.mono != 0 {
			clock = it.m.mono + off
		} else if ok {
			clock = u.clock(i, t)
		}
		switch {
		case it.hit != nil:
			recs = append(recs, rec{plegHit: it.hit, clock: clock, timed: ok, step: *u.step})
		case it.mark != nil:
			it.mark.clock = clock
		}
	}
	return recs
}

// clock takes steps back out of the wall clock.
func (u *unwrapper) clock(i int, t int64) int64 {
	it := u.items[i]
	back := u.seen && t+u.shift < u.high-stepBack && u.stays(i)
	if it.hit != nil {
		back = back || u.pid != 0 && it.hit.pid == u.pid && t+u.shift < u.latest-stepBackSame
	}
	if back {
		u.shift = u.high + 1 - t // later than all before, by how much is unknown
		*u.step++
	}
	if !u.seen || t+u.shift > u.high {
		u.high, u.seen = t+u.shift, true
	}
	if it.hit != nil {
		u.latest, u.pid = t+u.shift, it.hit.pid
	}
	return t + u.shift
}

// stays reports whether the next records agree that time went back.
func (u *unwrapper) stays(i int) bool {
	for j, n := i+1, 0; j < len(u.items) && n < 3; j++ {
		if t, ok := u.items[j].m.at(); ok {
			n++
			if t+u.shift >= u.high-stepBack {
				return false
			}
		}
	}
	return true
}

// dedupe drops records that a second source repeats: the same stamp, process and age. It returns those that remain, in
// the order given.
func dedupe(hits []*plegHit) []*plegHit {
	type key struct {
		age int64
		pid int32
		at  int64
	}
	type place struct {
		source uint16
		at     int64
	}
	seen := map[key][]place{}
	kept := hits[:0]
	for _, h := range hits {
		t, ok := h.at()
		if !ok {
			kept = append(kept, h)
			continue
		}
		k := key{age: h.age, pid: h.pid}
		if h.kind&hasAge == 0 {
			k.at = t
		}
		again := slices.ContainsFunc(seen[k], func(p place) bool { return p.source != h.source && abs(p.at-t) <= 2*second })
		if again {
			continue
		}
		seen[k] = append(seen[k], place{h.source, t})
		kept = append(kept, h)
	}
	return kept
}
