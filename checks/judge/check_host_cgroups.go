package judge

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

func hostCgroups() Check {
	return Check{
		ID:    "host.cgroups",
		Title: "there are not too many control groups",
		Text:  "Counts control groups, and those that are removed and still held by memory (dying). A full node has 500 to 1,500; from 10,000 on the kubelet and systemd crawl, and at 65,535 no pod starts.",
		read: func(f *facts.Facts) checks.Result {
			return readReading(f, func(n *facts.Node) facts.Reading[host.Cgroups] { return n.Cgroups }, func(v0 host.Cgroups) checks.Result { return judgeCgroups(f, v0) })
		},
	}
}

func judgeCgroups(f *facts.Facts, g host.Cgroups) checks.Result {
	l := f.Limits.Node
	line := units.Count(g.Total, "control group")
	if g.Dying >= 0 && g.Version == 2 {
		line += ", " + units.Number(g.Dying) + " dying"
	}
	switch {
	case g.Version == 2 && f.Usage.CgroupIDs >= l.CgroupsCritical:
		return result(checks.StatusCritical, "%s", line)
	case g.Total >= l.Cgroups, g.Dying >= l.DyingCgroups:
		return result(checks.StatusWarning, "%s", line)
	case g.Total == 0:
		return result(checks.StatusUnknown, "no control group was seen")
	}
	return result(checks.StatusOK, "%s", line)
}
