package journal

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// The kubelet begins a relist this long after the one before has ended (relistPeriod of wait.Until in
// pkg/kubelet/kubelet.go), in µs.
const relistPeriod = second

// directSlack is how long, in µs, after the last unhealthy record of a stall the next anchor may lie with no good relist
// in between: the record comes up to 5 s before the relist ends, then the pause of relistPeriod passes.
const directSlack = 6*second + 500_000

// How near, in µs, the length of a relist must be to a multiple of the calls' deadline for hung calls to account for it:
// the other inspections take some time too.
const (
	multipleBelow = second
	multipleAbove = 5 * second
)

// relists are how long relists took, in µs: the time from one anchor to the next, less the pause between them.
type relists struct{ lengths []int64 }

func (l relists) n() int { return len(l.lengths) }

// hungCalls returns how many deadlines of a call a relist took, 0 if that does not account for its length.
func hungCalls(length int64) int {
	d := rpcTimeout.Microseconds()
	n := (length + multipleBelow) / d
	if n < 1 || n > maxHungCalls || length-n*d > multipleAbove {
		return 0
	}
	return int(n)
}

// hung reports whether hung calls account for the length of each relist. Two that agree by chance are one in 400.
func (l relists) hung() bool {
	return l.n() >= 2 && !slices.ContainsFunc(l.lengths, func(d int64) bool { return hungCalls(d) == 0 })
}

// scattered reports whether relists take long, each for another time, so that no deadline accounts for them.
func (l relists) scattered() bool {
	if l.n() < 2 || l.hung() {
		return false
	}
	odd := 0
	for _, d := range l.lengths {
		if hungCalls(d) == 0 {
			odd++
		}
	}
	return 2*odd > l.n()
}

// text words the lengths.
func (l relists) text() string {
	list := slices.Sorted(slices.Values(l.lengths))
	least, most := list[0], list[len(list)-1]
	span := tenth(least)
	if most-least >= second {
		span += " to " + tenth(most)
	}
	text := fmt.Sprintf("%d relists in a row took %s", l.n(), span)
	if !l.hung() {
		return text + ", by the time from anchor to anchor"
	}
	var counts []string
	for _, d := range list {
		if n := fmt.Sprint(hungCalls(d)); !slices.Contains(counts, n) {
			counts = append(counts, n)
		}
	}
	return text + ", by the time from anchor to anchor: " + strings.Join(counts, " or ") + " calls that waited for their 2 min deadline"
}

// tenth writes µs as seconds.
func tenth(us int64) string {
	s := math.Round(float64(us)/1e5) / 10
	return fmt.Sprintf("%g s", s)
}

// maxChain bounds how many relists are judged together.
const maxChain = 64

// chains returns for each stall the lengths of the relists that followed each other directly, of the chain that it belongs
// to. Short stalls that return are one trouble, and only together do they show what shape it has.
func (g *grouping) chains() []relists {
	var order []int
	for i := range g.stalls {
		if st := &g.stalls[i]; st.timed && len(st.recs) > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(g.stalls[a].anchor, g.stalls[b].anchor) })
	out := make([]relists, len(g.stalls))
	for from := 0; from < len(order); {
		var chain relists
		to := from + 1
		for ; to < len(order) && to-from < maxChain; to++ {
			length, ok := g.direct(order[to-1], order[to])
			if !ok {
				break
			}
			chain.lengths = append(chain.lengths, length)
		}
		for _, i := range order[from:to] {
			out[i] = chain
		}
		from = to
	}
	return out
}

// of returns the longest chain that stalls of a run belong to.
func (r *run) of(chains []relists) relists {
	var best relists
	for _, i := range r.stalls {
		if chains[i].n() > best.n() {
			best = chains[i]
		}
	}
	return best
}

// direct returns how long the relist took that a stall is about, if the next stall's relist began right after it.
func (g *grouping) direct(i, next int) (int64, bool) {
	a, b := &g.stalls[i], &g.stalls[next]
	from, to := &g.recs[a.recs[len(a.recs)-1]], &g.recs[b.recs[0]]
	if from.pid != to.pid || from.source != to.source || from.step != to.step {
		return 0, false
	}
	if wait := b.anchor - from.clock; wait < -second || wait > directSlack { // stamps may count whole seconds
		return 0, false
	}
	return b.anchor - a.anchor - relistPeriod, true
}
