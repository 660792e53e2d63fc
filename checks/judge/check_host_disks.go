package judge

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

func hostDisks() Check {
	return Check{
		ID:    "host.disks",
		Title: "requests to the disks are answered quickly",
		Text: "Looks at /proc/diskstats twice: the mean time of a request, how busy each disk is and what is in flight. A disk of the node's whose requests take 100 ms is a warning. One that is busy all the time and answers " +
			"quickly is well: modern disks work in parallel.",
		read: func(f *facts.Facts) checks.Result {
			return readReading(f, func(n *facts.Node) facts.Reading[[]host.Disk] { return n.Disks }, func(v0 []host.Disk) checks.Result { return judgeDisks(f, v0) })
		},
	}
}

func judgeDisks(f *facts.Facts, disks []host.Disk) checks.Result {
	if len(disks) == 0 {
		return result(checks.StatusUnknown, "no disk was seen")
	}
	if slow := f.Disk.Slow; len(slow) > 0 {
		status := checks.StatusOK
		if facts.Needed(slow[0].Folders) {
			status = checks.StatusWarning
		}
		return result(status, "%s", facts.DiskLine(slow[0]))
	}
	slowest := disks[0]
	for _, d := range disks {
		if facts.Await(d) > facts.Await(slowest) {
			slowest = d
		}
	}
	return result(checks.StatusOK, "%s, the slowest is %s with %s for a request", units.Count(len(disks), "disk"), facts.Clean(slowest.Name), units.Duration(facts.Await(slowest)))
}
