package journal

import (
	"cmp"
	"maps"
	"slices"
	"unique"
)

// How far, in µs, time must go backwards in a text to be a step of the clock, and not lines that changed places.
const (
	stepBack     = 90 * second // between any two records: split streams and interleaved writers differ by seconds
	stepBackSame = 2 * second  // between unhealthy records of one process, which klog writes one after the other
)

// sequence gives the unhealthy records of one host, and the marks, their clock and puts them in its order. stamps are
// the resolved timestamps of all sources, by source, in the order of the text; descending holds which sources are
// newest first.
func sequence(all []*unhealthy, marks []mark, stamps map[uint16][]timestamp, descending map[uint16]bool) []*unhealthy {
	bySource := map[uint16][]item{}
	for _, u := range all {
		bySource[u.source] = append(bySource[u.source], item{timestamp: &u.timestamp, unhealthy: u})
	}
	for i := range marks {
		bySource[marks[i].source] = append(bySource[marks[i].source],
			item{timestamp: &marks[i].timestamp, mark: &marks[i]})
	}
	boots := bootOffsets(all, stamps)
	var out []*unhealthy
	step := int32(0)
	for _, s := range slices.Sorted(maps.Keys(bySource)) {
		u := unwrapper{items: bySource[s], boots: boots, step: &step}
		for i := range stamps[s] {
			u.items = append(u.items, item{timestamp: &stamps[s][i]})
		}
		slices.SortStableFunc(u.items, func(a, b item) int { return cmp.Compare(a.seq, b.seq) })
		if descending[s] {
			slices.Reverse(u.items)
		}
		out = append(out, u.run()...)
	}
	slices.SortStableFunc(marks, func(a, b mark) int { return cmp.Compare(a.clock, b.clock) })
	slices.SortStableFunc(out, func(a, b *unhealthy) int {
		if !a.timed || !b.timed {
			return 0
		}
		return cmp.Compare(a.clock, b.clock)
	})
	return out
}

// A bootKey names a monotonic clock: that of a boot, or of a source whose boot is unknown.
type bootKey struct {
	boot   unique.Handle[string]
	source uint16
}

func keyOf(m *timestamp) bootKey {
	if m.boot != (unique.Handle[string]{}) {
		return bootKey{boot: m.boot}
	}
	return bootKey{source: m.source + 1}
}

// bootOffsets returns wall clock minus monotonic clock at the start of each boot that was seen.
func bootOffsets(all []*unhealthy, stamps map[uint16][]timestamp) map[bootKey]int64 {
	first, out := map[bootKey]int64{}, map[bootKey]int64{}
	see := func(m *timestamp) {
		t, ok := m.at()
		if !ok || m.mono == 0 {
			return
		}
		k := keyOf(m)
		if mono, ok := first[k]; !ok || m.mono < mono {
			first[k], out[k] = m.mono, t-m.mono
		}
	}
	for _, u := range all {
		see(&u.timestamp)
	}
	for _, list := range stamps {
		for i := range list {
			see(&list[i])
		}
	}
	// A monotonic clock that contradicts the records was made up, as by a converter. Two records that have one anchor
	// by the wall clock show that the age grew as time did; a true monotonic clock agrees.
	last := map[bootKey]*unhealthy{}
	for _, u := range all {
		t, ok := u.at()
		if !ok || u.mono == 0 {
			continue
		}
		k := keyOf(&u.timestamp)
		p := last[k]
		last[k] = u
		if p == nil || p.pid != u.pid || u.kind&p.kind&hasAge == 0 {
			continue
		}
		grown, passed := (u.age-p.age)/1000, u.mono-p.mono
		if abs(u.anchor(t)-p.anchor(p.inner)) <= anchorTolerance && abs(grown-passed) > second {
			delete(out, k)
		}
	}
	return out
}

// An item is something with a time in the order of a text: an unhealthy record, a mark of recovery, or only a stamp.
type item struct {
	*timestamp
	unhealthy *unhealthy
	mark      *mark
}

// An unwrapper gives the records of one source their clock.
type unwrapper struct {
	items []item
	boots map[bootKey]int64
	step  *int32

	shift, high int64 // what is added to the wall clock; the highest clock so far
	seen        bool
	latest      int64 // clock of the latest unhealthy record
	pid         int32 // its process
}

func (u *unwrapper) run() []*unhealthy {
	var out []*unhealthy
	for i, it := range u.items {
		t, ok := it.at()
		clock := t
		if off, mono := u.boots[keyOf(it.timestamp)]; mono && it.mono != 0 {
			clock = it.mono + off
		} else if ok {
			clock = u.clock(i, t)
		}
		switch {
		case it.unhealthy != nil:
			it.unhealthy.clock, it.unhealthy.timed, it.unhealthy.step = clock, ok, *u.step
			out = append(out, it.unhealthy)
		case it.mark != nil:
			it.mark.clock = clock
		}
	}
	return out
}

// clock takes steps back out of the wall clock.
func (u *unwrapper) clock(i int, t int64) int64 {
	record := u.items[i].unhealthy
	back := u.seen && t+u.shift < u.high-stepBack && u.stays(i)
	back = back || record != nil && u.pid != 0 && record.pid == u.pid && t+u.shift < u.latest-stepBackSame
	if back {
		u.shift = u.high + 1 - t // later than all before, by how much is unknown
		*u.step++
	}
	if !u.seen || t+u.shift > u.high {
		u.high, u.seen = t+u.shift, true
	}
	if record != nil {
		u.latest, u.pid = t+u.shift, record.pid
	}
	return t + u.shift
}

// stays reports whether the next records agree that time went back.
func (u *unwrapper) stays(i int) bool {
	for j, n := i+1, 0; j < len(u.items) && n < 3; j++ {
		if t, ok := u.items[j].at(); ok {
			n++
			if t+u.shift >= u.high-stepBack {
				return false
			}
		}
	}
	return true
}
