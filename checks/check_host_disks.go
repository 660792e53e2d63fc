package checks

import (
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

func hostDisks() Check {
	return Check{
		ID:    "host.disks",
		Title: "requests to the disks are answered quickly",
		Text: "Looks at /proc/diskstats twice: the mean time of a request, how busy each disk is and what is in flight. A disk of the node's whose requests take 100 ms is a warning. One that is busy all the time and answers " +
			"quickly is well: modern disks work in parallel.",
		read: func(f *Facts) Result {
			return readLook(f, func(n *Node) Look[[]host.Disk] { return n.Disks }, f.judgeDisks)
		},
	}
}

func (f *Facts) judgeDisks(disks []host.Disk) Result {
	if len(disks) == 0 {
		return result(StatusUnknown, "no disk was seen")
	}
	if slow := f.slowDisks(); len(slow) > 0 {
		status := StatusOK
		if needed(slow[0].Folders) {
			status = StatusWarning
		}
		return result(status, "%s", diskLine(slow[0]))
	}
	slowest := disks[0]
	for _, d := range disks {
		if await(d) > await(slowest) {
			slowest = d
		}
	}
	return result(StatusOK, "%s, the slowest is %s with %s for a request", units.Count(len(disks), "disk"), clean(slowest.Name), units.Duration(await(slowest)))
}
