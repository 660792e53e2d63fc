package judge

import (
	"fmt"
	"slices"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

// hostProcessChecks are the checks of processes, tasks and control groups.
func hostProcessChecks() []Check {
	return []Check{
		{
			ID:    "host.processes",
			Title: "no process of the runtime is stopped or stuck",
			Text: "Reads the state of the runtime daemon, shims, OCI runtimes, CNI plugins and the kubelet from " +
				"/proc. Stopped ones do not serve, ones in uninterruptible sleep wait for " +
				"a disk or a mount, and a runc at work for more than ten seconds is stuck.",
			read: readHostProcesses,
		},
		{
			ID:    "host.tasks",
			Title: "no task of a container or the runtime is stuck in the kernel",
			Text: "Looks twice for threads in uninterruptible sleep. In one look only they use a busy disk; in " +
				"both, and in the same place, they are a warning; with a second witness (the kernel's report, a " +
				"mount that does not answer, a hung " +
				"call about the same pod) they are stuck.",
			read: reading(func(n *facts.Node) facts.Reading[host.Tasks] { return n.Tasks }, judgeHostTasks),
		},
		{
			ID:    "host.zombies",
			Title: "no process collects dead children",
			Text: "Counts zombies by their parent. Each takes a process id until its parent waits for it; a " +
				"container whose first process does not wait fills the limit of its pod, and a shim or kubelet " +
				"that does not wait fills the node's. " +
				"A thousand is a warning.",
			read: reading(func(n *facts.Node) facts.Reading[host.Tasks] { return n.Tasks }, judgeHostZombies),
		},
		{
			ID:    "host.shims",
			Title: "shims run, and match what the runtime lists",
			Text: "Compares the shims among the processes with the sandboxes and containers in the runtime's " +
				"lists. A stopped shim of this runtime is a warning; a shim that is not listed may be left over, " +
				"or docker's, nerdctl's or podman's; a ready sandbox " +
				"without a shim is dead and nobody has noticed.",
			read: reading(func(n *facts.Node) facts.Reading[host.Tasks] { return n.Tasks }, judgeHostShims),
		},
		{
			ID:    "host.freezer",
			Title: "no control group of a pod, the runtime or the kubelet is frozen",
			Text: "Looks for frozen control groups with tasks. CRI cannot pause a container, so a frozen group " +
				"of a pod is what a failed runc or a person left behind. Groups of users' sessions are not counted.",
			read: reading(func(n *facts.Node) facts.Reading[host.Cgroups] { return n.Cgroups }, judgeHostFreezer),
		},
		{
			ID:    "host.throttling",
			Title: "runtime and kubelet are not throttled",
			Text: "Reads cpu.stat of the control groups of the runtime and the kubelet, and of those above them, " +
				"twice. A quota there (CPUQuota in a unit, or a limit on system.slice) makes every answer wait; a " +
				"quarter of the periods is a warning.",
			read: reading(func(n *facts.Node) facts.Reading[host.Cgroups] { return n.Cgroups }, judgeHostThrottling),
		},
	}
}

func readHostProcesses(f *facts.Facts) checks.Result {
	if f.Target.Simulated {
		return result(checks.StatusSkipped, "the runtime is simulated and has no processes")
	}
	if f.HostMissing != "" {
		return result(checks.StatusUnknown, "processes were not read: %s", facts.Clean(f.HostMissing))
	}
	if len(f.Processes) == 0 {
		return result(checks.StatusSkipped, "no process of a runtime was seen on this host")
	}
	status, worst := checks.StatusOK, ""
	note := func(s checks.Status, p host.Process, what string) {
		if worst == "" || s == checks.StatusCritical && status != checks.StatusCritical {
			status, worst = s, fmt.Sprintf("%s (%s) %s", facts.ProcessLabel(p), p.Role, what)
		}
	}
	all := slices.DeleteFunc(slices.Clone(f.Processes),
		func(p host.Process) bool { return facts.IsStopped(&p) && facts.IsForeignShim(f, p) })
	for _, p := range all {
		switch {
		case p.Role == host.RoleRuntime && !isOther(f, p) &&
			(facts.IsStopped(&p) || facts.IsUninterruptible(&p) && p.Lasting):
			note(checks.StatusCritical, p, "is "+facts.StateOf(p))
		case facts.IsStopped(&p):
			note(checks.StatusWarning, p, "is "+facts.StateOf(p))
		case facts.IsUninterruptible(&p):
			note(checks.StatusWarning, p, "is in "+facts.StateOf(p))
		case p.Role == host.RoleOCI && facts.AgeOf(f, p) >= facts.LongOCI, p.Role == host.RoleCNI &&
			facts.AgeOf(f, p) >= f.Limits.CNIPluginTooLong:
			note(checks.StatusWarning, p, "has been at work for "+units.Duration(facts.AgeOf(f, p)))
		}
	}
	if worst != "" {
		return result(status, "%s", worst)
	}
	return result(checks.StatusOK, "%s of the runtime, none stopped or stuck",
		units.Plural(len(all), "1 process", units.Number(len(all))+" processes"))
}

// isOther reports whether a runtime is not the one that was asked and answered: a node may have docker's besides.
func isOther(f *facts.Facts, p host.Process) bool {
	m := f.Measurement
	return m != nil && m.Status != nil && m.Connect.PeerPID > 1 && m.Connect.PeerPID != p.PID
}

func judgeHostTasks(f *facts.Facts, t host.Tasks) checks.Result {
	lasting := len(t.Blocked) + t.BlockedMore
	if i := slices.IndexFunc(t.Blocked, func(b host.BlockedTask) bool { return facts.IsOurs(b.Owner) }); i >= 0 {
		line := fmt.Sprintf("%s was in uninterruptible sleep in two looks", causes.TaskName(f, t.Blocked[i]))
		if at := facts.WaitsIn(t.Blocked[i]); at != "" {
			line += ", in " + at
		}
		return result(checks.StatusWarning, "%s; look again: a busy disk does so too", line)
	}
	if lasting > 0 {
		return result(checks.StatusOK,
			"%s, %s in uninterruptible sleep in two looks, none of a container or the runtime", units.Count(t.Threads,
				"thread"), units.Number(lasting))
	}
	return result(checks.StatusOK, "%s, none in uninterruptible sleep in two looks; %s in one",
		units.Count(t.Threads, "thread"), units.Number(t.BlockedMoments))
}

func judgeHostZombies(f *facts.Facts, t host.Tasks) checks.Result {
	if limit := f.Limits.Node.Zombies; limit > 0 && len(t.ZombiesByParent) > 0 && t.ZombiesByParent[0].Count >= limit {
		p := t.ZombiesByParent[0]
		return result(checks.StatusWarning, "%s (pid %d)%s does not wait for its children: %s", facts.Clean(p.Name),
			p.PID, facts.OwnerSuffix(f, p.Owner), units.Count(p.Count, "zombie"))
	}
	if len(t.ZombiesByParent) == 0 || t.Zombies == 0 {
		return result(checks.StatusOK, "no zombies")
	}
	p := t.ZombiesByParent[0]
	return result(checks.StatusOK, "%s, most under %s (pid %d)", units.Count(t.Zombies, "zombie"),
		facts.Clean(p.Name), p.PID)
}

func judgeHostShims(f *facts.Facts, _ host.Tasks) checks.Result {
	shims := len(facts.ProcessesOf(f, host.RoleShim))
	gap, compared := f.Shims.Gap, f.Shims.Compared
	foreign := f.Shims.EveryStopped // none of this runtime is stopped
	switch {
	case f.HostMissing != "":
		return result(checks.StatusUnknown, "processes were not read: %s", facts.Clean(f.HostMissing))
	case shims == 0:
		return result(checks.StatusSkipped, "no shim was seen on this host")
	case !compared && f.Target.OtherEndpoint:
		return result(checks.StatusUnknown,
			"%s, none stopped; not compared with the lists, which are of another runtime than the kubelet's", units.Count(shims, "shim"))
	case !compared:
		return result(checks.StatusUnknown,
			"%s, none stopped; the runtime's lists, to compare with, did not come whole", units.Count(shims, "shim"))
	case len(gap.Shimless) > 0:
		return result(checks.StatusWarning, "the sandbox of %s is ready, and no shim of it was seen",
			facts.OwnerLabel(f, host.Owner{ObjectID: gap.Shimless[0].ID}))
	case len(foreign) > 0:
		return result(checks.StatusOK,
			"%s, none of this runtime's stopped; %s stopped, another tool's or left over: the runtime does not "+
				"list what %s serves",
			units.Count(shims, "shim"), units.Plural(len(foreign), "one is",
				units.Number(len(foreign))+" are"), facts.ProcessLabel(foreign[0]))
	case len(gap.Orphans) > 0:
		return result(checks.StatusOK,
			"%s, none stopped; %s the runtime does not list, another tool's or left over: %s", units.Count(shims,
				"shim"), units.Number(len(gap.Orphans)), facts.ProcessLabel(gap.Orphans[0]))
	}
	return result(checks.StatusOK, "%s, none stopped, all listed", units.Count(shims, "shim"))
}

func judgeHostFreezer(f *facts.Facts, c host.Cgroups) checks.Result {
	if len(c.Frozen) > 0 {
		return result(checks.StatusOK, "%s frozen, none of a pod, the runtime or the kubelet",
			units.Plural(len(c.Frozen), "1 group is", units.Number(len(c.Frozen))+" groups are"))
	}
	return result(checks.StatusOK, "no control group is frozen")
}

func judgeHostThrottling(f *facts.Facts, c host.Cgroups) checks.Result {
	if len(c.Throttled) == 0 {
		return result(checks.StatusOK, "no quota on the CPU of the runtime or the kubelet")
	}
	return result(checks.StatusOK, "%s with a quota, none throttled to speak of",
		units.Count(len(c.Throttled), "group"))
}
