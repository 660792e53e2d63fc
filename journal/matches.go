package journal

import (
	"cmp"
	"slices"
)

// Bounds of what is kept of one source.
const (
	maxUnhealthy = 200_000 // of about 110 bytes; a day of the kubelet's 5 s cadence is 17,280
	maxBursts    = 100_000
	maxMarks     = 100_000
	maxStamps    = 4_096
)

// burstGap is how near, in µs, records of the same kind must follow each other to be one burst.
const burstGap = 10 * second

// The matches of one source, in bounded memory.
type matches struct {
	unhealthy []unhealthy
	bursts    []Burst
	open      map[burstKey]int // the latest burst of each kind
	gap       int64            // µs within which records join a burst; grows when there are too many
	marks     []mark           // proofs that the sync loop runs, next to unhealthy records
	stamps    []timestamp      // a thinned sample of all timestamps that were seen
	every     uint32           // every n-th timestamp is kept
	seen      uint32           // timestamps
	examples  map[string]example
	dropped   bool // unhealthy records could not be kept one by one any more; they are counted
}

// An example is the first record of a code in a source.
type example struct {
	at   timestamp
	text string
}

func newMatches() *matches {
	return &matches{open: map[burstKey]int{}, gap: burstGap, every: 1, examples: map[string]example{}}
}

// addUnhealthy keeps an unhealthy record.
func (s *matches) addUnhealthy(h unhealthy) {
	if len(s.unhealthy) >= maxUnhealthy {
		s.thin()
	}
	s.unhealthy = append(s.unhealthy, h)
}

// thin drops records from the middle of stalls: first and last say all of a stall, the rest only counts. When the
// records belong to no common stall, as only hostile input does, every other one is folded into its neighbour.
func (s *matches) thin() {
	kept := s.unhealthy[:0]
	for i, h := range s.unhealthy {
		n := len(kept)
		if n >= 2 && i+1 < len(s.unhealthy) && sameStall(&kept[n-1], &h) && sameStall(&kept[n-2], &kept[n-1]) {
			kept[n-2].lines += kept[n-1].lines
			kept[n-1] = h
			continue
		}
		kept = append(kept, h)
	}
	for len(kept) > maxUnhealthy/2 {
		s.dropped = true
		all := kept
		kept = all[:0]
		for i, h := range all {
			if i%2 == 1 {
				kept[len(kept)-1].lines += h.lines
				continue
			}
			kept = append(kept, h)
		}
	}
	s.unhealthy = kept
}

// sameStall reports whether two records of one source in a row plainly have one anchor.
func sameStall(a, b *unhealthy) bool {
	ta, aok := a.raw()
	tb, bok := b.raw()
	return aok && bok && a.pid == b.pid && a.host == b.host && a.kind == b.kind && a.source == b.source &&
		a.kind&hasAge != 0 && abs(a.anchor(ta)-b.anchor(tb)) <= anchorTolerance
}

// addMark keeps a proof that the loop runs.
func (s *matches) addMark(m mark) {
	if len(s.marks) < maxMarks {
		s.marks = append(s.marks, m)
	}
}

// stamp keeps one of every so many timestamps, the first and the latest always.
func (s *matches) stamp(m timestamp) {
	if m.flags == 0 && m.mono == 0 {
		return
	}
	s.seen++
	if n := len(s.stamps); n > 1 && s.seen%s.every != 1%s.every {
		s.stamps[n-1] = m // the last place always holds the latest
		return
	}
	if len(s.stamps) >= maxStamps {
		kept := s.stamps[:1]
		for i := 2; i < len(s.stamps); i += 2 {
			kept = append(kept, s.stamps[i])
		}
		s.stamps = kept
		s.every *= 2
	}
	s.stamps = append(s.stamps, m)
}

// add counts one record of any other kind.
func (s *matches) add(k burstKey, m timestamp, seconds float64) {
	one := Burst{burstKey: k, first: m, last: m, Count: 1, Seconds: seconds}
	if i, ok := s.open[k]; ok && s.bursts[i].near(m, s.gap) {
		s.bursts[i].join(&one)
		return
	}
	if len(s.bursts) >= maxBursts {
		s.shrink()
	}
	s.open[k] = len(s.bursts)
	s.bursts = append(s.bursts, one)
}

// shrink halves the bursts: those farther and farther apart become one. As many kinds as bursts are no longer told
// apart by their objects.
func (s *matches) shrink() {
	for len(s.bursts) > maxBursts/2 {
		if s.gap *= 6; s.gap > 1<<60 {
			s.gap = 1 << 60
			for i := range s.bursts {
				k := &s.bursts[i].burstKey
				*k = burstKey{Code: k.Code, source: k.source, side: k.side}
			}
		}
		s.bursts = mergeBursts(s.bursts, s.gap)
	}
	clear(s.open)
	for i, b := range s.bursts {
		s.open[b.burstKey] = i
	}
}

// near reports whether a record lies within gap of the burst.
func (b *Burst) near(m timestamp, gap int64) bool {
	t, ok := m.raw()
	lo, lok := b.first.raw()
	hi, hok := b.last.raw()
	if !ok || !lok || !hok {
		return !ok && !lok && m.boot == b.first.boot
	}
	return m.boot == b.first.boot && t >= lo-gap && t <= hi+gap
}

// join adds the records of another burst of the same kind.
func (b *Burst) join(o *Burst) {
	b.Count += o.Count
	b.Seconds = max(b.Seconds, o.Seconds)
	if before(o.first, b.first) {
		b.first = o.first
	}
	if !before(o.last, b.last) {
		b.last = o.last
	}
}

// mergeBursts joins bursts of one kind that lie within gap of each other.
func mergeBursts(all []Burst, gap int64) []Burst {
	order := map[burstKey]int{}
	for _, b := range all {
		if _, ok := order[b.burstKey]; !ok {
			order[b.burstKey] = len(order)
		}
	}
	slices.SortStableFunc(all, func(a, b Burst) int {
		if a.burstKey == b.burstKey && before(a.first, b.first) {
			return -1
		}
		if a.burstKey == b.burstKey && before(b.first, a.first) {
			return 1
		}
		return cmp.Compare(order[a.burstKey], order[b.burstKey])
	})
	kept := all[:0]
	for i := range all {
		if n := len(kept); n > 0 && kept[n-1].burstKey == all[i].burstKey && kept[n-1].near(all[i].first, gap) {
			kept[n-1].join(&all[i])
			continue
		}
		kept = append(kept, all[i])
	}
	return kept
}
