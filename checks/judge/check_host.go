package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

func judgePressure(f *facts.Facts, p host.Pressure) checks.Result {
	l := f.Limits.Node
	var lines []string
	status := checks.StatusOK
	add := func(what string, value, limit float64) {
		lines = append(lines, fmt.Sprintf("%s %.0f%%", what, value))
		if value >= limit {
			status = checks.StatusWarning
		}
	}
	if p.CPU != nil {
		add("cpu some", p.CPU.Some.Avg10, l.CPUSome)
	}
	if p.Memory != nil {
		add("memory full", p.Memory.Full.Avg10, l.MemoryFull)
	}
	if p.IO != nil {
		add("io full", p.IO.Full.Avg10, l.IOFull)
	}
	if len(lines) == 0 {
		return skipped("this kernel does not account for pressure (PSI)")
	}
	return result(status, "last 10 s: %s", strings.Join(lines, ", "))
}

func judgeMemory(f *facts.Facts, m host.Memory) checks.Result {
	if m.Total == 0 {
		return unknown("/proc/meminfo has no MemTotal")
	}
	r := ok("%s of %s available", units.Size(m.Available), units.Size(m.Total))
	if f.Pressure.MemoryLow {
		r.Status = checks.StatusWarning
	}
	return r
}

func judgeSpace(_ *facts.Facts, all []host.Space) checks.Result  { return judgeSpaces(all, false) }
func judgeInodes(_ *facts.Facts, all []host.Space) checks.Result { return judgeSpaces(all, true) }

// judgeSpaces is ok only when each file system that matters has answered.
func judgeSpaces(spaces []host.Space, inodes bool) checks.Result {
	least, tight, counted := 1.0, host.Space{}, 0
	for _, s := range spaces {
		if s.Err != "" || s.Hung {
			return unknown("the file system of %s was not read: %s", facts.Shortage{Space: s}.Name(),
				cmp.Or(facts.Clean(s.Err), "no reply"))
		}
		free, total := s.Free, s.Size
		if inodes {
			free, total = s.InodesFree, s.Inodes
		}
		if s.ReadOnly || total == 0 {
			continue
		}
		if counted++; facts.Share(free, total) <= least {
			least, tight = facts.Share(free, total), s
		}
	}
	switch {
	case counted > 0:
		return ok("%s, least free: %s on %s", units.Count(counted, "file system"), units.Percent(least),
			facts.Clean(tight.Mount))
	case inodes && len(spaces) > 0:
		return skipped("no writable file system has a fixed number of inodes")
	}
	return unknown("no figures of %s", units.Count(len(spaces), "file system"))
}

func judgeWrites(f *facts.Facts, _ []host.Writes) checks.Result {
	all := f.Disk.Writes
	if len(all) == 0 {
		return unknown("no write was timed")
	}
	if i := slices.IndexFunc(all, func(l facts.WriteLatency) bool { return l.Writes.Err != "" }); i >= 0 {
		return unknown("%s", all[i].Line())
	}
	return ok("%s", all[0].Line())
}

func judgeDisks(f *facts.Facts, disks []host.Disk) checks.Result {
	if len(disks) == 0 {
		return unknown("no disk was seen")
	}
	if slow := f.Disk.Slow; len(slow) > 0 && facts.Needed(slow[0].Folders) {
		return warning("%s", causes.DiskLine(slow[0]))
	}
	slowest := slices.MaxFunc(disks, func(a, b host.Disk) int { return cmp.Compare(facts.Await(a), facts.Await(b)) })
	return ok("%s, slowest: %s with %s per request", units.Count(len(disks), "disk"), facts.Clean(slowest.Name),
		units.Duration(facts.Await(slowest)))
}

func judgeMounts(f *facts.Facts, t host.MountTable) checks.Result {
	slow := slowMount(f, t)
	switch {
	case slow != "":
		return warning("%s", slow)
	case len(t.Hidden) > 0:
		return warning("%s", hiddenMounts(f, t))
	case t.Total == 0:
		return unknown("no mount was seen")
	case t.Left > 0:
		return unknown("%s of %s not probed; the others answered", units.Number(t.Left), units.Count(t.Total, "mount"))
	}
	return ok("%s; %s probed, all answered", units.Count(t.Total, "mount"), units.Number(len(t.Probed)))
}

// slowMount describes the first mount that is slow; empty where none is.
func slowMount(f *facts.Facts, t host.MountTable) string {
	i := slices.IndexFunc(t.Probed, func(m host.Mount) bool { return m.Slow() })
	if i < 0 {
		return ""
	}
	return causes.MountLine(f, t.Probed[i])
}

// hiddenMounts names the mounts that others hide.
func hiddenMounts(f *facts.Facts, t host.MountTable) string {
	m := t.Hidden[0]
	line := fmt.Sprintf("%s%s is hidden under a mount on %s: unmounting it, and removing its pod, fails with EBUSY",
		facts.Clean(m.Point), facts.OwnerSuffix(f, host.Owner{PodUID: m.PodUID}), facts.Clean(m.Under))
	if more := len(t.Hidden) - 1; more > 0 {
		line += "; " + units.Count(more, "mount") + " more"
	}
	return line
}

func judgePIDs(_ *facts.Facts, p host.PIDs) checks.Result {
	if p.Tasks <= 0 || p.PIDMax == 0 {
		return unknown("number or limit of threads unknown")
	}
	return ok("%s threads, kernel.pid_max", facts.UsageText(host.Usage{Current: uint64(p.Tasks), Max: p.PIDMax}))
}

func judgeFiles(_ *facts.Facts, files host.Files) checks.Result {
	if len(files.Processes) == 0 {
		return unknown("no process of the runtime or the kubelet could be read")
	}
	most := slices.MaxFunc(files.Processes,
		func(a, b host.ProcessFiles) int { return cmp.Compare(facts.Used(a.Usage), facts.Used(b.Usage)) })
	return ok("most open files: %s (pid %d) with %s", facts.Clean(most.Name), most.PID,
		facts.UsageText(most.Usage))
}

func judgeInotify(f *facts.Facts, n host.Inotify) checks.Result {
	switch {
	case n.MaxInstances == 0:
		return unknown("inotify limits unknown")
	case n.Unread > 0:
		return unknown("incomplete: %s could not be read", units.Count(n.Unread, "process"))
	}
	return ok("root has %s instances, %s watches", facts.UsageText(f.Usage.InotifyInstances),
		facts.UsageText(f.Usage.InotifyWatches))
}

func judgeConntrack(f *facts.Facts, c host.Conntrack) checks.Result {
	if c.Max == 0 {
		return skipped("connections are not tracked on this node")
	}
	r := ok("%s entries", facts.UsageText(c.Usage))
	if severity, high := facts.Rank(f.Limits.Node, facts.Used(c.Usage)); high {
		r.Status = checks.Status(severity)
	}
	return r
}

func judgeCgroups(_ *facts.Facts, g host.Cgroups) checks.Result {
	if g.Total == 0 {
		return unknown("no control group was seen")
	}
	if g.Version == 2 {
		return ok("%s, %s dying", units.Count(g.Total, "control group"), units.Number(max(g.Dying, 0)))
	}
	return ok("%s", units.Count(g.Total, "control group"))
}

func judgeClock(_ *facts.Facts, c host.Clock) checks.Result {
	switch {
	case c == host.Clock{}:
		return unknown("the clock was not read")
	case !c.Synchronised:
		return warning("clock not NTP-synchronised (false alarm possible: chrony without rtcsync)")
	}
	return ok("NTP-synchronised, estimated error at most %s", units.Duration(c.MaxError))
}

func judgeSystemdAnswer(_ *facts.Facts, s host.Systemd) checks.Result {
	if !s.Answered {
		return unknown("systemd was not asked")
	}
	return ok("systemd %s answers in %s; it is %s", facts.Clean(s.Version), units.Duration(s.Took),
		cmp.Or(facts.Clean(s.State), "in no known state"))
}

func judgeSystemdUnits(_ *facts.Facts, s host.Systemd) checks.Result {
	switch {
	case !s.Answered:
		return unknown("systemd did not answer")
	case !s.Counted:
		return unknown("%s; their states were not counted", units.Count(s.Units, "unit"))
	}
	return ok("%s, %s, %s inactive, %s", units.Count(s.Units, "unit"), units.Count(s.Scopes, "scope"),
		units.Number(s.Inactive), units.Count(s.Jobs, "job"))
}

func judgeRuntimeUnit(f *facts.Facts, s host.Systemd) checks.Result {
	u := f.Target.RuntimeUnit
	switch {
	case causes.UnitDown(u) && f.Calls.Connected:
		return skipped("%s, and the runtime answers: it runs in another way", causes.UnitLine(f, u))
	case causes.UnitDown(u):
		return critical("%s", causes.UnitLine(f, u))
	}
	return readUnit(f, s, u)
}

func judgeKubeletUnit(f *facts.Facts, s host.Systemd) checks.Result { return readUnit(f, s, s.Kubelet) }

// readUnit is the result for a unit that no cause calls down.
func readUnit(f *facts.Facts, s host.Systemd, u *host.Unit) checks.Result {
	if !s.Answered {
		return unknown("systemd did not answer")
	}
	if u == nil || u.Load == "not-found" {
		return skipped("systemd has no such unit")
	}
	line, up := causes.UnitLine(f, u), f.Now.Sub(u.Since)
	settled := up >= facts.LoopFresh || u == f.KubeletState.Unit && facts.LoopOver(f, up)
	switch {
	case u.Active == "activating" || u.Active == "deactivating":
		return warning("%s", line)
	case u.Restarts >= facts.LoopRestarts && !u.Since.IsZero() && !settled:
		return warning("%s: it does not stay up", line)
	case causes.UnitDown(u):
		return skipped("%s: it is not in use here", line)
	}
	return ok("%s", line)
}

func readProcesses(f *facts.Facts) checks.Result {
	switch {
	case f.Target.Simulated:
		return skipped("the runtime is simulated and has no processes")
	case f.HostMissing != "":
		return unknown("processes were not read: %s", facts.Clean(f.HostMissing))
	case len(f.Processes) == 0:
		return skipped("no process of a runtime was seen on this host")
	}
	out := ok("%s of the runtime, none stopped or stuck", units.Count(len(f.Processes), "process"))
	for _, p := range f.Processes {
		stopped, asleep, age := facts.IsStopped(&p), facts.IsUninterruptible(&p), facts.AgeOf(f, p)
		line := fmt.Sprintf("%s (%s): %s", facts.ProcessLabel(p), p.Role, facts.StateOf(p))
		switch {
		case p.Role == host.RoleRuntime && (stopped || asleep && p.Lasting):
			return critical("%s", line)
		case out.Status != checks.StatusOK:
		case stopped || asleep:
			out = warning("%s", line)
		case p.State != 'Z' && (p.Role == host.RoleOCI || p.Role == host.RoleCNI) && age >= facts.StuckWork:
			out = warning("%s (%s) has been running for %s", facts.ProcessLabel(p), p.Role, units.Duration(age))
		}
	}
	return out
}

// notesOnOthers names stuck processes of other runtimes on this host: no problem of the one that was asked.
func notesOnOthers(f *facts.Facts) (notes []string) {
	for _, p := range f.Others {
		line := fmt.Sprintf("of another runtime, not %s: %s", f.Target.Name, facts.ProcessLabel(p))
		age := facts.AgeOf(f, p)
		switch {
		case len(notes) == facts.MostNamed:
		case facts.IsStopped(&p):
			notes = append(notes, line+" is "+facts.StateOf(p))
		case p.Work != "" && age >= facts.LastingWork:
			notes = append(notes, line+" has been running for "+units.Duration(age))
		}
	}
	return notes
}

func judgeTasks(f *facts.Facts, t host.Tasks) checks.Result {
	if i := slices.IndexFunc(t.Blocked, func(b host.BlockedTask) bool { return facts.IsOurs(b.Owner) }); i >= 0 {
		return warning("%s; look again: a busy disk does so too", causes.TaskLine(f, t.Blocked[i]))
	}
	return ok("%s, none of a container or the runtime in uninterruptible sleep in two looks",
		units.Count(t.Threads, "thread"))
}

func judgeZombies(f *facts.Facts, t host.Tasks) checks.Result {
	if len(t.ZombiesByParent) == 0 || t.Zombies == 0 {
		return ok("no zombies")
	}
	p := t.ZombiesByParent[0]
	r := ok("%s, most under %s (pid %d)%s, which does not wait for its children", units.Count(t.Zombies, "zombie"),
		facts.Clean(p.Name), p.PID, facts.OwnerSuffix(f, p.Owner))
	if p.Count >= f.Limits.Node.Zombies {
		r.Status = checks.StatusWarning
	}
	return r
}

func judgeShims(f *facts.Facts, _ host.Tasks) checks.Result {
	shims := units.Count(len(facts.ProcessesOf(f, host.RoleShim)), "shim")
	gap := f.Shims.Gap
	switch {
	case f.HostMissing != "":
		return unknown("processes were not read: %s", facts.Clean(f.HostMissing))
	case len(facts.ProcessesOf(f, host.RoleShim)) == 0:
		return skipped("no shim was seen on this host")
	case !f.Shims.Compared:
		return unknown("%s, none stopped; the lists of the kubelet's runtime, to compare with, did not come whole",
			shims)
	case len(gap.Shimless) > 0:
		return warning("the sandbox of %s is ready, and no shim of it was seen",
			facts.OwnerLabel(f, host.Owner{ObjectID: gap.Shimless[0].ID}))
	}
	return ok("%s, none of this runtime's stopped", shims)
}
