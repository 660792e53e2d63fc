package facts

import (
	"cmp"
	"slices"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/host"
)

func ThrottledShare(t host.Throttling) float64 { return Share(min(t.Throttled, t.Periods), t.Periods) }

// throttled returns the control groups of runtime and kubelet, and those above them, that were kept from running for much of the time, the worst first.
func throttled(f *Facts) []host.Throttling {
	l := f.Limits.Node
	var out []host.Throttling
	for _, t := range f.Seen.Cgroups.Value.Throttled {
		if t.PodUID == "" && t.Periods >= l.ThrottledPeriods && ThrottledShare(t) >= l.Throttled {
			out = append(out, t)
		}
	}
	slices.SortStableFunc(out, func(a, b host.Throttling) int { return cmp.Compare(ThrottledShare(b), ThrottledShare(a)) })
	return out
}

// crowded reports whether tasks wait for a CPU most of the time, for a minute at least.
func crowded(f *Facts) bool {
	p, l := f.Seen.Pressure.Value.CPU, f.Limits.Node
	return p != nil && p.Some.Avg10 >= l.CPUSome && p.Some.Avg60 >= l.CPUSome
}

// memoryLow reports whether little of the node's memory is available.
func memoryLow(f *Facts) bool {
	l, m := f.Limits.Node, f.Seen.Memory.Value
	least, _ := EvictionBelow(f, "memory.available", m.Total)
	return m.Total > 0 && (Share(m.Available, m.Total) < l.MemoryLow && m.Available < l.MemoryLowBytes || m.Available < least)
}

// memoryRank is how severe the shortage is; false when there is none.
func memoryRank(f *Facts) (checks.Severity, bool) {
	l, n := f.Limits.Node, f.Seen
	m, full := n.Memory.Value, 0.0
	if p := n.Pressure.Value.Memory; p != nil {
		full = min(p.Full.Avg10, max(p.Full.Avg60, p.Full.Avg10/2)) // a spike of a second is none
	}
	least, _ := EvictionBelow(f, "memory.available", m.Total)
	evicting := m.Total > 0 && m.Available < least
	low := m.Total == 0 || f.Pressure.MemoryLow // without meminfo pressure must do
	switch {
	case low && full >= l.MemoryFullCritical, evicting && full >= l.MemoryFull:
		return checks.Critical, true
	case low && full >= l.MemoryFull, full >= l.MemoryFullCritical, evicting:
		return checks.Warning, true
	}
	return "", false
}
