package checks

import (
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

func hostCgroups() Check {
	return Check{
		ID:    "host.cgroups",
		Title: "there are not too many control groups",
		Text:  "Counts control groups, and those that are removed and still held by memory (dying). A full node has 500 to 1,500; from 10,000 on the kubelet and systemd crawl, and at 65,535 no pod starts.",
		read: func(f *Facts) Result {
			return readLook(f, func(n *Node) Look[host.Cgroups] { return n.Cgroups }, f.judgeCgroups)
		},
	}
}

func (f *Facts) judgeCgroups(g host.Cgroups) Result {
	l := f.nodeLimits()
	line := units.Count(g.Total, "control group")
	if g.Dying >= 0 && g.Version == 2 {
		line += ", " + units.Number(g.Dying) + " dying"
	}
	switch {
	case g.Version == 2 && f.cgroupIDs() >= l.CgroupsCritical:
		return result(StatusCritical, "%s", line)
	case g.Total >= l.Cgroups, g.Dying >= l.DyingCgroups:
		return result(StatusWarning, "%s", line)
	case g.Total == 0:
		return result(StatusUnknown, "no control group was seen")
	}
	return result(StatusOK, "%s", line)
}
