package journal

import (
	"cmp"
	"slices"
)

// Bounds of what one store keeps.
const (
	maxPLEG   = 250_000 // of 64 bytes; a day of the kubelet's 5 s cadence is 17,280
	maxBursts = 200_000
	maxSync   = 100_000
	maxSights = 4_096
)

// burstGap is how near, in µs, records of the same kind must follow each other to be one burst.
const burstGap = 10_000_000

// A store holds the hits of one source in bounded memory.
type store struct {
	pleg     []plegHit
	bursts   []burst
	open     map[burstKey]int // the latest burst of each kind
	gap      int64            // µs within which records join a burst; grows when there are too many
	syncs    []syncHit
	sights   []moment // a thinned sample of all stamps that were seen
	sightGap uint32   // every n-th stamp is kept
	sighted  uint32
	examples map[uint16]example
	dropped  int64 // PLEG records that could not be kept one by one any more, though counted
}

// An example is the first record of a code in a source.
type example struct {
	at   moment
	text string
}

func newStore() *store {
	return &store{open: map[burstKey]int{}, gap: burstGap, sightGap: 1, examples: map[uint16]example{}}
}

// addPLEG keeps an unhealthy record.
func (s *store) addPLEG(h plegHit) {
	if len(s.pleg) >= maxPLEG {
		s.thin()
	}
	s.pleg = append(s.pleg, h)
}

// thin drops records from the middle of stalls: first and last say all of a stall, the rest only counts. When the
// records belong to no common stall, as only hostile input does, the older half is folded into its neighbours anyway.
func (s *store) thin() {
	fold := func(same func(a, b *plegHit) bool) {
		kept := s.pleg[:0]
		for i, h := range s.pleg {
			if n := len(kept); n >= 2 && i+1 < len(s.pleg) && same(&kept[n-1], &h) && same(&kept[n-2], &kept[n-1]) {
				kept[n-2].lines += kept[n-1].lines
				kept[n-1] = h
				continue
			}
			kept = append(kept, h)
		}
		s.pleg = kept
	}
	fold(sameStall)
	if len(s.pleg) > maxPLEG/2 {
		s.dropped++
		fold(func(a, b *plegHit) bool { return a.source == b.source && b.seq%4 != 0 })
	}
	for len(s.pleg) > maxPLEG*3/4 { // or the next record would come here again
		kept := s.pleg[:0]
		for i, h := range s.pleg {
			if i%2 == 1 {
				kept[len(kept)-1].lines += h.lines
				continue
			}
			kept = append(kept, h)
		}
		s.pleg = kept
	}
}

// sameStall reports whether two records of one source in a row plainly have one anchor.
func sameStall(a, b *plegHit) bool {
	ta, aok := a.raw()
	tb, bok := b.raw()
	if !aok || !bok || a.pid != b.pid || a.host != b.host || a.kind != b.kind || a.source != b.source || a.kind&hasAge == 0 {
		return false
	}
	d := a.anchor(ta) - b.anchor(tb)
	return d >= -anchorTolerance && d <= anchorTolerance
}

// addSync keeps a proof that the loop runs.
func (s *store) addSync(h syncHit) {
	if len(s.syncs) < maxSync {
		s.syncs = append(s.syncs, h)
	}
}

// sight keeps one of every so many stamps, the first and the latest always.
func (s *store) sight(m moment) {
	if m.flags == 0 && m.mono == 0 {
		return
	}
	s.sighted++
	if n := len(s.sights); n > 1 && s.sighted%s.sightGap != 1%s.sightGap {
		s.sights[n-1] = m // the last place always holds the latest
		return
	}
	if len(s.sights) >= maxSights {
		kept := s.sights[:1]
		for i := 2; i < len(s.sights); i += 2 {
			kept = append(kept, s.sights[i])
		}
		s.sights = kept
		s.sightGap *= 2
	}
	s.sights = append(s.sights, m)
}

// add counts one record of any other kind.
func (s *store) add(k burstKey, m moment, seconds float32) {
	if i, ok := s.open[k]; ok && s.bursts[i].takes(m, s.gap) {
		b := &s.bursts[i]
		b.count++
		b.seconds = max(b.seconds, seconds)
		if before(m, b.first) {
			b.first = m
		} else if !before(m, b.last) {
			b.last = m
		}
		return
	}
	if len(s.bursts) >= maxBursts {
		for len(s.bursts) > maxBursts/2 && s.gap < 1<<60 {
			s.gap *= 6
			s.bursts = mergeBursts(s.bursts, s.gap)
		}
		if len(s.bursts) > maxBursts/2 { // as many kinds as bursts: give up telling objects apart
			for i := range s.bursts {
				s.bursts[i].subject, s.bursts[i].detail, s.bursts[i].pid = 0, 0, 0
			}
			s.bursts = mergeBursts(s.bursts, s.gap)
		}
		clear(s.open)
		for i, b := range s.bursts {
			s.open[b.burstKey] = i
		}
	}
	s.open[k] = len(s.bursts)
	s.bursts = append(s.bursts, burst{burstKey: k, first: m, last: m, count: 1, seconds: seconds})
}

// takes reports whether a record joins the burst.
func (b *burst) takes(m moment, gap int64) bool {
	t, ok := m.raw()
	lo, lok := b.first.raw()
	hi, hok := b.last.raw()
	if !ok || !lok || !hok {
		return !ok && !lok && m.boot == b.first.boot
	}
	return m.boot == b.first.boot && t >= lo-gap && t <= hi+gap
}

// before compares two moments of one source by their stamps, else by their place.
func before(a, b moment) bool {
	ta, aok := a.raw()
	tb, bok := b.raw()
	if aok && bok && ta != tb {
		return ta < tb
	}
	return a.seq < b.seq
}

// mergeBursts joins bursts of one kind that lie within gap of each other. The result is ordered by kind, then time.
func mergeBursts(all []burst, gap int64) []burst {
	slices.SortStableFunc(all, func(a, b burst) int {
		if c := cmpKey(a.burstKey, b.burstKey); c != 0 {
			return c
		}
		switch {
		case before(a.first, b.first):
			return -1
		case before(b.first, a.first):
			return 1
		}
		return 0
	})
	kept := all[:0]
	for _, b := range all {
		if n := len(kept); n > 0 && kept[n-1].burstKey == b.burstKey && kept[n-1].takes(b.first, gap) {
			k := &kept[n-1]
			k.count += b.count
			k.seconds = max(k.seconds, b.seconds)
			if !before(b.last, k.last) {
				k.last = b.last
			}
			continue
		}
		kept = append(kept, b)
	}
	return kept
}

func cmpKey(a, b burstKey) int {
	return cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(a.host, b.host), cmp.Compare(a.code, b.code), cmp.Compare(a.subject, b.subject),
		cmp.Compare(a.detail, b.detail), cmp.Compare(a.pid, b.pid), cmp.Compare(a.side, b.side))
}
