package fleet

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/kdiag/kdiag/checks"
)

const (
	leastGroup  = 3    // nodes of a group that is compared
	significant = 0.01 // the largest p of what is shown
	mostCommon  = 5    // properties of a group
)

// A property is a value that nodes may have in common.
type property struct{ key, value string }

// properties returns what a node may have in common with others. Values that are not set are none.
func (a *analysis) properties(n *Node) (all []property) {
	old := a.At.Sub(n.Created)
	age := "7 days or more"
	switch {
	case n.Created.IsZero():
		age = ""
	case old < time.Hour:
		age = "under an hour"
	case old < 24*time.Hour:
		age = "an hour to a day"
	case old < 7*24*time.Hour:
		age = "1 to 7 days"
	}
	all = []property{
		{"runtime", n.Info.ContainerRuntimeVersion},
		{"kernel", n.Info.KernelVersion},
		{"kubelet", n.Info.KubeletVersion},
		{"os", n.Info.OSImage},
		{"zone", label(n, zones)},
		{"instance type", label(n, types)},
		{"pool", label(n, pools)},
		{"owner", n.Owner},
		{"age", age},
	}
	for _, set := range n.DaemonSets {
		all = append(all, property{"daemonset", set})
	}
	return slices.DeleteFunc(all, func(p property) bool { return p.value == "" })
}

// count returns how many of some nodes have each property.
func (a *analysis) count(nodes []illness) map[property]int {
	counts := map[property]int{}
	for _, n := range nodes {
		for _, p := range a.properties(n.Node) {
			counts[p]++
		}
	}
	return counts
}

// common returns what a group has in common that the nodes that are not sick have less often, the least likely by
// chance first. Values that one node alone or all nodes have are not compared, as they cannot be significant.
func (a *analysis) common(sick []illness, healthy map[property]int) []checks.FleetCommon {
	type finding struct {
		checks.FleetCommon
		log float64 // of p, which may be too small for a float64
	}
	in, rest := len(sick), len(a.well)
	if in < leastGroup || rest == 0 {
		return []checks.FleetCommon{}
	}
	counts := a.count(sick)
	all := maps.Clone(healthy)
	for p, n := range counts {
		all[p] += n
	}
	maps.DeleteFunc(all, func(_ property, n int) bool { return n == 1 || n == in+rest })
	var found []finding
	for p, n := range all {
		here, there := counts[p], n-counts[p]
		log := fisher(here, in, there, rest) + math.Log(float64(len(all)))
		if here*rest <= there*in || log > math.Log(significant) {
			continue
		}
		found = append(found, finding{checks.FleetCommon{
			Key: p.key, Value: p.value, P: math.Exp(log), InGroup: checks.FleetShare{Nodes: here, Of: in},
			Elsewhere: checks.FleetShare{Nodes: there, Of: rest},
		}, log})
	}
	slices.SortFunc(found, func(x, y finding) int {
		return cmp.Or(cmp.Compare(x.log, y.log), y.InGroup.Nodes-x.InGroup.Nodes, cmp.Compare(x.Key, y.Key),
			cmp.Compare(x.Value, y.Value))
	})
	out := []checks.FleetCommon{}
	for _, f := range found[:min(len(found), mostCommon)] {
		out = append(out, f.FleetCommon)
	}
	return out
}

// fisher is Fisher's exact test, one-sided: the natural logarithm of the probability that of a+b nodes with a property
// a or more fall into a group of in, if they are drawn without regard to it out of in+rest.
func fisher(a, in, b, rest int) float64 {
	drawn := a + b
	total := choose(in+rest, drawn)
	sum, largest := 0.0, math.Inf(-1) // of e^(term-largest)
	for k := max(a, drawn-rest); k <= min(in, drawn); k++ {
		term := choose(in, k) + choose(rest, drawn-k) - total
		switch {
		case term > largest:
			sum, largest = sum*math.Exp(largest-term)+1, term
		case term < largest-50: // the terms fall from here on; those that are left are below the precision
			return largest + math.Log(sum)
		default:
			sum += math.Exp(term - largest)
		}
	}
	return min(largest+math.Log(sum), 0)
}

// choose is the natural logarithm of the number of ways to draw k out of n.
func choose(n, k int) float64 {
	gamma := func(n int) float64 {
		v, _ := math.Lgamma(float64(n) + 1)
		return v
	}
	return gamma(n) - gamma(k) - gamma(n-k)
}
