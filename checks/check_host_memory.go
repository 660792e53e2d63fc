package checks

import (
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

func hostMemory() Check {
	return Check{
		ID:    "host.memory",
		Title: "memory is available",
		Text:  "Reads MemAvailable of /proc/meminfo against a tenth of all, or 4 GiB if that is less, and against the kubelet's memory.available (100Mi unless set). The kubelet counts by its root control group, which differs by what can be reclaimed.",
		read: func(f *Facts) Result {
			return readLook(f, func(n *Node) Look[host.Memory] { return n.Memory }, f.judgeMemory)
		},
	}
}

func (f *Facts) judgeMemory(m host.Memory) Result {
	if m.Total == 0 {
		return result(StatusUnknown, "/proc/meminfo does not say how much there is")
	}
	line := units.Size(m.Available) + " of " + units.Size(m.Total) + " available"
	if m.SwapTotal > 0 {
		line += ", " + units.Size(m.SwapTotal-min(m.SwapFree, m.SwapTotal)) + " of " + units.Size(m.SwapTotal) + " swap used"
	}
	if f.memoryLow() {
		line += ofCulprit(f.memoryHolders())
	}
	switch severity, short := f.memoryRank(); {
	case short && severity == Critical && f.memoryLow():
		return result(StatusCritical, "%s", line)
	case f.memoryLow():
		return result(StatusWarning, "%s", line)
	}
	return result(StatusOK, "%s", line)
}
