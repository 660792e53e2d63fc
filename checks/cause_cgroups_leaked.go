package checks

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/kdiag/kdiag/checks/units"
)

func cgroupsLeaked() Definition {
	return Definition{
		Code:  codeCgroupsLeaked,
		Title: "control groups pile up, living or dying",
		Means: "cAdvisor in the kubelet watches each control group and reads its figures, and systemd keeps a unit for those that it made. A full node has 500 to 1,500. Tens of thousands make the kubelet use whole CPUs and gigabytes " +
			"(kubernetes/kops#5916), and each read of /sys/fs/cgroup long.\n\n" +
			"Dying ones are removed by name and still held in the kernel by memory that was charged to them: page cache, kernel objects. They cost kernel memory and make every read of memory figures longer. Memory " +
			"control groups have 65,535 ids; kernels before 4.8 keep an id until the last page is gone, and then no pod starts: \"mkdir /sys/fs/cgroup/memory/...: no space left on device\" (moby/moby#29638).",
		Confirm: []string{
			"cat /proc/cgroups (num_cgroups: version 1 counts dying ones too); cat /sys/fs/cgroup/cgroup.stat (version 2).",
			"find /sys/fs/cgroup -maxdepth 4 -type d | cut -d/ -f5-6 | sort | uniq -c | sort -rn | head: below which parent?",
			"systemctl list-units --all --type=scope | wc -l: scopes that are left over?",
			"grep SUnreclaim /proc/meminfo: kernel memory that grows with them.",
		},
		Fix: []string{
			"See who makes them: a cron job that logs in, transient mounts of the kubelet under an old systemd (run-*.scope), a runtime that does not clean up.",
			"Living ones without processes can be removed: rmdir, from the leaves up; of systemd's scopes, systemctl stop.",
			"Dying ones are let go when their memory is reclaimed: echo 2 > /proc/sys/vm/drop_caches frees kernel objects, and costs seconds of stall on a large node.",
			"A newer kernel (4.8 and later let go of the id early, and each since reclaims more of what is left), or a reboot.",
		},
		Mistaken: "SystemdWedged: its own leak of units, with or without control groups. MemoryPressure without a process that holds the memory: it may be this.",
		Sources: []string{
			"kernel: Documentation/admin-guide/cgroup-v2.rst (cgroup.stat), mm/memcontrol.c (MEM_CGROUP_ID_MAX)",
			"moby/moby#29638, kubernetes/kubernetes#70324, #61937, kubernetes/kops#5916",
		},
		RootOf:    []string{codeSystemdWedged, codeCPUStarved, codeRuntimeSlow, codeKubeletStalled},
		recognise: recogniseCgroupsLeaked,
	}
}

// cgroupsLeakedExplains reports whether there are enough living ones to slow down whoever reads them; dying ones cost memory.
func cgroupsLeakedExplains(f *Facts, _ string) bool {
	return f.seen().Cgroups.Value.Total >= f.nodeLimits().Cgroups
}

// cgroupIDs is how many ids of memory control groups are taken, as far as can be known.
func (f *Facts) cgroupIDs() int {
	c := f.seen().Cgroups.Value
	if c.Version == 1 {
		return c.ByController["memory"] // dying ones too
	}
	return c.Total
}

func recogniseCgroupsLeaked(f *Facts) *Cause {
	l, g := f.nodeLimits(), f.seen().Cgroups.Value
	if g.Total < l.Cgroups && g.Dying < l.DyingCgroups && f.cgroupIDs() < l.CgroupsCritical {
		return nil
	}
	var e Evidence
	severity := Warning
	summary := fmt.Sprintf("%s: a full node has 500 to 1,500", units.Count(g.Total, "control group"))
	addf(&e.For, "%s (version %d)", units.Count(g.Total, "control group"), g.Version)
	if g.Dying >= l.DyingCgroups {
		summary = fmt.Sprintf("%s removed and still held by memory that was charged to them", verb(g.Dying, "1 control group is", units.Number(g.Dying)+" control groups are"))
	}
	switch {
	case g.Dying > 0:
		addf(&e.For, "%s removed and not let go yet (dying)", verb(g.Dying, "1 is", units.Number(g.Dying)+" are"))
	case g.Dying < 0 && g.Version == 2:
		addf(&e.Missing, "how many are dying: this kernel does not say")
	}
	switch ids := f.cgroupIDs(); {
	case ids < l.CgroupsCritical:
	case g.Version == 1: // as many of them may be dying
		summary = fmt.Sprintf("%s, living and dying: before Linux 4.8 each takes one of 65,535 ids", units.Count(ids, "memory control group"))
		addf(&e.For, "%s: no pod can be started when all ids are taken", units.Count(ids, "memory control group"))
		addf(&e.Missing, "how many of them are dying: from Linux 4.8 on those need no id")
	default:
		severity = Critical
		summary = fmt.Sprintf("%s of the 65,535 that the kernel has ids for", units.Count(ids, "memory control group"))
		addf(&e.For, "%s: at 65,535 no pod can be started", units.Count(ids, "memory control group"))
	}
	names := slices.SortedFunc(maps.Keys(g.ByController), func(a, b string) int {
		return cmp.Or(cmp.Compare(g.ByController[b], g.ByController[a]), cmp.Compare(a, b))
	})
	for _, name := range names[:min(len(names), topHeaps)] {
		addf(&e.For, "%s for the controller %s", units.Number(g.ByController[name]), clean(name))
	}
	if m := f.seen().Memory.Value; m.SlabUnreclaimable > 1<<30 {
		addf(&e.For, "%s of kernel memory that cannot be reclaimed (SUnreclaim)", units.Size(m.SlabUnreclaimable))
	}
	if s := f.seen().Systemd.Value; s.Inactive >= l.LeakedUnits && l.LeakedUnits > 0 {
		addf(&e.For, "%s of systemd are loaded and dead", units.Count(s.Inactive, "unit"))
	}
	f.seen().Cgroups.missing(&e, "all control groups")
	c := newCause(codeCgroupsLeaked, severity, Strong, summary, e)
	c.Subject = &Subject{Kind: "Node", Name: "control groups"}
	var s steps
	s.add(TouchesNothing, "cat /proc/cgroups; cat /sys/fs/cgroup/cgroup.stat", "How many are there now, and how many are dying?")
	s.add(TouchesNothing, "find /sys/fs/cgroup -maxdepth 4 -type d | cut -d/ -f5-6 | sort | uniq -c | sort -rn | head", "Below which parent, so who makes them?")
	s.add(TouchesNothing, "systemctl list-units --all --no-legend --type=scope | wc -l", "Are they scopes that systemd has not let go?")
	s.add(TouchesScheduler, `kubectl cordon "$(hostname)"`, "Each new pod adds a handful.")
	s.add(TouchesNode, "systemctl reboot", "Frees all of them. Drain first; without a fix of whoever leaks they come back.")
	c.NextSteps = s.done()
	return c
}
