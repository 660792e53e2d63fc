package stacks

import (
	"cmp"
	"slices"

	"github.com/kdiag/kdiag/checks"
)

// Compare returns what changed between two dumps of one process, without the idle crowd. It is pure.
func Compare(before, after *Dump) *checks.StackChanges {
	c := &checks.StackChanges{Still: []checks.StackChange{}, Growing: []checks.StackChange{}}
	if from, to := before.Source.CapturedAt, after.Source.CapturedAt; from != nil && to != nil {
		c.Seconds = new(to.Sub(*from).Seconds())
	}
	was := map[string]int{}
	for _, w := range newAnalysis(0, before).groups() {
		was[w.key] = w.Count
	}
	a := newAnalysis(0, after)
	a.still = byID(before)
	for i := range after.Goroutines {
		if _, ok := a.still[after.Goroutines[i].ID]; !ok {
			c.New++
		}
	}
	c.Gone = len(a.still) - (len(after.Goroutines) - c.New)
	all := a.groups()
	slices.SortStableFunc(all, func(x, y *group) int { return cmp.Compare(longest(y), longest(x)) })
	for _, w := range all {
		change := checks.StackChange{State: w.State, On: w.On, Before: was[w.key], After: w.Count, Stack: w.Stack}
		for _, i := range w.members {
			if a.stands(i) {
				change.Same++
			}
		}
		if change.Same > 0 {
			c.Still = append(c.Still, change)
		}
		if change.After > change.Before {
			c.Growing = append(c.Growing, change)
		}
	}
	slices.SortStableFunc(c.Growing, func(x, y checks.StackChange) int {
		return cmp.Compare(y.After-y.Before, x.After-x.Before)
	})
	return c
}

func longest(w *group) float64 {
	if w.MaxSeconds == nil {
		return 0
	}
	return *w.MaxSeconds
}
