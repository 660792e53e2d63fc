package causes

import (
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
)

// CgroupsLeaked is the code of this cause.
const CgroupsLeaked = "CgroupsLeaked"

func recogniseCgroupsLeaked(f *facts.Facts) *Finding {
	l, g := f.Limits.Node, f.Seen.Cgroups.Value
	ids := ifElse(g.Version == 1, g.ByController["memory"], g.Total) // dying ones too in version 1
	if g.Total < l.Cgroups && g.Dying < l.DyingCgroups && ids < l.CgroupsCritical {
		return nil
	}
	var e checks.Evidence
	severity := checks.Warning
	summary := textf("%s: a full node has 500 to 1,500", units.Count(g.Total, "control group"))
	Addf(&e.For, "%s (version %d), %d dying", units.Count(g.Total, "control group"), g.Version, max(g.Dying, 0))
	if g.Dying >= l.DyingCgroups {
		summary = units.Count(g.Dying, "control group") + " removed but still held by charged memory"
	}
	if ids >= l.CgroupsCritical {
		summary = textf("%s of the 65,535 that the kernel has ids for", units.Count(ids, "memory control group"))
		Addf(&e.For, "%s: no pod can start when all 65,535 ids are taken", units.Count(ids, "memory control group"))
		if g.Version == 1 { // as many of them may be dying
			Addf(&e.Missing, "how many of them are dying: from Linux 4.8 on those need no id")
		} else {
			severity = checks.Critical
		}
	}
	addMost(&e.For, "%s for the controller %s", g.ByController)
	addIf(strings.Contains(f.Seen.Cgroups.Missing, "no answer in time"), &e.For, "listing them did not end in time: %s",
		f.Seen.Cgroups.Why())
	return newFinding(severity, checks.Strong, summary, e, ofNode("control groups")).advise(func(s *Steps, _ string) {
		s.Look("grep -s . /proc/cgroups /sys/fs/cgroup/cgroup.stat", "Count them again, and the dying ones")
		s.Look("find /sys/fs/cgroup -maxdepth 4 -type d | cut -d/ -f5-6 | sort | uniq -c | sort -rn | head",
			"Find out which part of the tree they are in")
		s.cordon()
		s.Add(checks.TouchesNode, "systemctl reboot", "Reboot after a drain: frees all of them until the leak refills")
	})
}
