package journal

import (
	"cmp"
	"fmt"
	"slices"
)

// latenessPunctual is how far an outer stamp may lie after the inner one, in µs, for the pair to fix the zone by itself.
// Outer stamps in whole seconds lie up to a second before; see earliness.
const (
	latenessPunctual = 3 * second
	latenessMost     = hour       // later than this, a line is rather of another zone
	earliness        = 2 * second // an outer stamp may seem earlier by truncation
)

// offsets are the differences from UTC that clocks have somewhere, in minutes, ascending.
func offsets() []int64 {
	all := []int64{-570, -210, 210, 270, 330, 345, 390, 525, 570, 630, 765, 825}
	for h := int64(-12); h <= 14; h++ {
		all = append(all, h*60)
	}
	slices.Sort(all)
	return all
}

// offsetAbove returns the smallest offset, in µs, that is at least diff, and how much larger it is. An outer stamp is never
// earlier than the inner one, so the difference inner minus outer is at most the zone: what it lacks is lateness.
func offsetAbove(table []int64, diff int64) (zone, late int64, ok bool) {
	i, _ := slices.BinarySearchFunc(table, diff-earliness, func(m, d int64) int { return cmp.Compare(m*minute, d) })
	if i == len(table) {
		return 0, 0, false
	}
	zone = table[i] * minute
	return zone, zone - diff, true
}

// zones is what pairs of stamps say of the zone that a program wrote its stamps in.
type zones struct {
	table  []int64
	known  bool
	main   int64         // µs east of UTC
	strong map[int64]int // zones that punctual pairs vote for, with their votes
	votes  int
	fixed  bool // the outer stamps contradict, and are not asked
}

// newZones decides over many pairs. diffs are inner stamps read as UTC, minus the instant of the outer stamp, in µs.
func newZones(diffs []int64) zones {
	z := zones{table: offsets(), strong: map[int64]int{}}
	best := int64(0)
	for _, d := range diffs {
		off, late, ok := offsetAbove(z.table, d)
		if !ok || d < -14*hour {
			continue
		}
		z.votes++
		if late <= latenessPunctual {
			z.strong[off]++
		}
		if z.votes == 1 || d > best {
			best = d
		}
	}
	if z.votes == 0 {
		return z
	}
	z.known = true
	most := 0
	for off, n := range z.strong {
		if n > most || n == most && off < z.main {
			z.main, most = off, n
		}
	}
	if most == 0 { // no line came in time: the least late one is nearest to the truth
		z.main, _, _ = offsetAbove(z.table, best)
	}
	return z
}

// of returns the zone of one pair. A punctual pair knows its own, so that daylight saving in the middle of a log is
// followed; a late one is read in the zone of the others.
func (z *zones) of(diff int64) int64 {
	own, late, ok := offsetAbove(z.table, diff)
	if !ok {
		return z.main
	}
	if late <= latenessPunctual && (own == z.main || z.strong[own] >= 2) {
		return own
	}
	if l := z.main - diff; l >= -earliness && l <= latenessMost {
		return z.main
	}
	return own
}

// zoneText writes an offset as +08:00.
func zoneText(us int64) string {
	sign := '+'
	if us < 0 {
		sign, us = '-', -us
	}
	return fmt.Sprintf("%c%02d:%02d", sign, us/hour, us%hour/minute)
}
