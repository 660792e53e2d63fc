package judge

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

func hostMemory() Check {
	return Check{
		ID:    "host.memory",
		Title: "memory is available",
		Text:  "Reads MemAvailable of /proc/meminfo against a tenth of all, or 4 GiB if that is less, and against the kubelet's memory.available (100Mi unless set). The kubelet counts by its root control group, which differs by what can be reclaimed.",
		read: func(f *facts.Facts) checks.Result {
			return readReading(f, func(n *facts.Node) facts.Reading[host.Memory] { return n.Memory }, func(v0 host.Memory) checks.Result { return judgeMemory(f, v0) })
		},
	}
}

func judgeMemory(f *facts.Facts, m host.Memory) checks.Result {
	if m.Total == 0 {
		return result(checks.StatusUnknown, "/proc/meminfo does not say how much there is")
	}
	line := units.Size(m.Available) + " of " + units.Size(m.Total) + " available"
	if m.SwapTotal > 0 {
		line += ", " + units.Size(m.SwapTotal-min(m.SwapFree, m.SwapTotal)) + " of " + units.Size(m.SwapTotal) + " swap used"
	}
	if f.Pressure.MemoryLow {
		line += causes.OfCulprit(causes.MemoryHolders(f))
	}
	switch severity, short := f.Pressure.MemorySeverity, f.Pressure.MemoryShort; {
	case short && severity == checks.Critical && f.Pressure.MemoryLow:
		return result(checks.StatusCritical, "%s", line)
	case f.Pressure.MemoryLow:
		return result(checks.StatusWarning, "%s", line)
	}
	return result(checks.StatusOK, "%s", line)
}
