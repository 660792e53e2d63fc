package causes

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
)

// CgroupsLeaked is the code of this cause.
const CgroupsLeaked = "CgroupsLeaked"

var cgroupsLeaked = Definition{
	Code:      CgroupsLeaked,
	Claims:    []string{"host.cgroups"},
	Recognise: recogniseCgroupsLeaked,
}

func recogniseCgroupsLeaked(f *facts.Facts) *Finding {
	l, g := f.Limits.Node, f.Seen.Cgroups.Value
	if g.Total < l.Cgroups && g.Dying < l.DyingCgroups && f.Usage.CgroupIDs < l.CgroupsCritical {
		return nil
	}
	var e checks.Evidence
	severity := checks.Warning
	summary := fmt.Sprintf("%s: a full node has 500 to 1,500", units.Count(g.Total, "control group"))
	Addf(&e.For, "%s (version %d)", units.Count(g.Total, "control group"), g.Version)
	if g.Dying >= l.DyingCgroups {
		summary = fmt.Sprintf("%s removed and still held by memory that was charged to them", units.Plural(g.Dying, "1 control group is", units.Number(g.Dying)+" control groups are"))
	}
	switch {
	case g.Dying > 0:
		Addf(&e.For, "%s removed and not let go yet (dying)", units.Plural(g.Dying, "1 is", units.Number(g.Dying)+" are"))
	case g.Dying < 0 && g.Version == 2:
		Addf(&e.Missing, "how many are dying: this kernel does not say")
	}
	switch ids := f.Usage.CgroupIDs; {
	case ids < l.CgroupsCritical:
	case g.Version == 1: // as many of them may be dying
		summary = fmt.Sprintf("%s, living and dying: before Linux 4.8 each takes one of 65,535 ids", units.Count(ids, "memory control group"))
		Addf(&e.For, "%s: no pod can be started when all ids are taken", units.Count(ids, "memory control group"))
		Addf(&e.Missing, "how many of them are dying: from Linux 4.8 on those need no id")
	default:
		severity = checks.Critical
		summary = fmt.Sprintf("%s of the 65,535 that the kernel has ids for", units.Count(ids, "memory control group"))
		Addf(&e.For, "%s: at 65,535 no pod can be started", units.Count(ids, "memory control group"))
	}
	names := slices.SortedFunc(maps.Keys(g.ByController), func(a, b string) int {
		return cmp.Or(cmp.Compare(g.ByController[b], g.ByController[a]), cmp.Compare(a, b))
	})
	for _, name := range names[:min(len(names), facts.MostNamed)] {
		Addf(&e.For, "%s for the controller %s", units.Number(g.ByController[name]), facts.Clean(name))
	}
	if m := f.Seen.Memory.Value; m.SlabUnreclaimable > 1<<30 {
		Addf(&e.For, "%s of kernel memory that cannot be reclaimed (SUnreclaim)", units.Size(m.SlabUnreclaimable))
	}
	if s := f.Seen.Systemd.Value; s.Inactive >= l.LeakedUnits && l.LeakedUnits > 0 {
		Addf(&e.For, "%s of systemd are loaded and dead", units.Count(s.Inactive, "unit"))
	}
	missing(f.Seen.Cgroups, &e, "all control groups")
	c := newFinding(severity, checks.Strong, summary, e)
	c.Subject = &checks.Subject{Kind: "Node", Name: "control groups"}
	c.Advise = func(string) []checks.NextStep {
		var s Steps
		s.Add(checks.TouchesNothing, "cat /proc/cgroups; cat /sys/fs/cgroup/cgroup.stat", "How many are there now, and how many are dying?")
		s.Add(checks.TouchesNothing, "find /sys/fs/cgroup -maxdepth 4 -type d | cut -d/ -f5-6 | sort | uniq -c | sort -rn | head", "Below which parent, so who makes them?")
		s.Add(checks.TouchesNothing, "systemctl list-units --all --no-legend --type=scope | wc -l", "Are they scopes that systemd has not let go?")
		s.Add(checks.TouchesScheduler, `kubectl cordon "$(hostname)"`, "Each new pod adds a handful.")
		s.Add(checks.TouchesNode, "systemctl reboot", "Frees all of them. Drain first; without a fix of whoever leaks they come back.")
		return s.Done()
	}
	return c
}
