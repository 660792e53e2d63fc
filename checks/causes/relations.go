package causes

import (
	"slices"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/journal/signature"
	"github.com/kdiag/kdiag/plegbench"
)

// A condition is what the facts must show for one cause to be the root of another.
type condition = func(*facts.Facts) bool

// some holds when one of a list is such.
func some[T any](list func(*facts.Facts) []T, such func(*facts.Facts, T) bool) condition {
	return func(f *facts.Facts) bool { return slices.ContainsFunc(list(f), func(x T) bool { return such(f, x) }) }
}

var (
	runtimeDiskFull   = some(fullDisks, holds(host.FolderRuntime))
	kubeletDiskFull   = some(fullDisks, holds(host.FolderKubelet))
	runtimeInodesGone = some(withoutInodes, holds(host.FolderRuntime))
	kubeletInodesGone = some(withoutInodes, holds(host.FolderKubelet))
)

func fullDisks(f *facts.Facts) []facts.Shortage { return f.Disk.Short }

func withoutInodes(f *facts.Facts) []facts.Shortage { return f.Disk.ShortInodes }

// holds is for full file systems with a folder of the role.
func holds(role string) func(*facts.Facts, facts.Shortage) bool {
	return func(_ *facts.Facts, s facts.Shortage) bool {
		return s.Full && slices.ContainsFunc(s.Space.Folders, func(o host.Folder) bool { return o.Role == role })
	}
}

func diskFails(f *facts.Facts) bool { return len(f.Disk.Failing) > 0 }

// diskStands holds when a disk is so slow, or fails so, that calls hang on it. A mount that hangs explains hung calls
// better than a slow disk does.
func diskStands(f *facts.Facts) bool {
	slow := slices.ContainsFunc(f.Disk.Writes, func(w facts.WriteLatency) bool {
		severity, _ := w.Severity(f.Limits.Node)
		return severity == checks.Critical
	})
	return (slow || diskFails(f)) && len(f.Disk.DeadMounts) == 0
}

var (
	// anyMountHangs is enough for the kubelet, which asks every mount for its size, and for tasks of any user.
	anyMountHangs = some(silentMounts, func(_ *facts.Facts, m host.Mount) bool { return m.Hung })
	// usedMountHangs is for mounts that the runtime or a pod uses.
	usedMountHangs = some(silentMounts, func(_ *facts.Facts, m host.Mount) bool { return m.Hung && hurts(m) })
	// podMountHangs is for those of a pod whose status calls hang, or of no known pod.
	podMountHangs = some(silentMounts, func(f *facts.Facts, m host.Mount) bool {
		ofPod := func(i plegbench.Inspection) bool { return i.Pod.UID == m.PodUID }
		hungs := f.Sweep.Hung
		return m.Hung && hurts(m) && (len(hungs) == 0 || m.PodUID == "" || slices.ContainsFunc(hungs, ofPod))
	})
)

func silentMounts(f *facts.Facts) []host.Mount { return f.Disk.SilentMounts }

// mountHoldsStart excludes a kubelet that ended: one that a mount holds cannot end until systemd gives up on it.
func mountHoldsStart(f *facts.Facts) bool {
	return anyMountHangs(f) && (f.Agent.Unit == nil || f.Agent.Unit.Result == "timeout")
}

func memoryIsLow(f *facts.Facts) bool { return f.Pressure.MemoryLow }

// thrashes is what a hang needs, where low memory alone makes calls slow.
func thrashes(f *facts.Facts) bool {
	return f.Pressure.MemoryLow && f.Pressure.MemorySeverity == checks.Critical
}

func oomHitRuntime(f *facts.Facts) bool { return oomHits(f, facts.RoleRuntime) }

func oomHitKubelet(f *facts.Facts) bool { return oomHits(f, facts.RoleKubelet) }

func oomHitShim(f *facts.Facts) bool { return oomHits(f, facts.RoleShim) }

func runtimeStarved(f *facts.Facts) bool {
	return f.Pressure.Crowded || throttledBut(f, host.RoleKubelet, 0)
}

func kubeletStarved(f *facts.Facts) bool {
	return f.Pressure.Crowded || throttledBut(f, host.RoleRuntime, 0)
}

func runtimeHardlyRuns(f *facts.Facts) bool {
	return throttledBut(f, host.RoleKubelet, f.Limits.Node.ThrottledCritical)
}

// throttledBut reports whether a group other than that of one daemon is throttled in at least such a share of its
// periods.
func throttledBut(f *facts.Facts, other host.Role, least float64) bool {
	return slices.ContainsFunc(f.Pressure.Throttled, func(t host.Throttling) bool {
		return t.Role != other && facts.ThrottledShare(t) >= least
	})
}

func runtimeCannotFork(f *facts.Facts) bool { return cannotFork(f, facts.RoleKubelet) }

func kubeletCannotFork(f *facts.Facts) bool { return cannotFork(f, facts.RoleRuntime) }

// cannotFork reports whether the node, all pods' parent group or a daemon's group other than one is at its limit.
func cannotFork(f *facts.Facts, other facts.Role) bool {
	return slices.ContainsFunc(f.Usage.PIDs, func(l facts.PIDLimit) bool {
		g := host.FrozenCgroup{Path: l.Group.Path, Owner: l.Group.Owner}
		return !l.Pod && l.Share >= f.Limits.Node.LimitCritical && facts.CgroupRole(g) != other &&
			!facts.HoldsAllPods(g)
	})
}

func runtimeOutOfFiles(f *facts.Facts) bool { return outOfFiles(f, host.RoleRuntime) }

func kubeletOutOfFiles(f *facts.Facts) bool { return outOfFiles(f, host.RoleKubelet) }

func outOfFiles(f *facts.Facts, role host.Role) bool {
	return facts.Used(f.Seen.Files.Value.System) >= f.Limits.Node.LimitCritical ||
		slices.ContainsFunc(f.Usage.Files, func(p host.ProcessFiles) bool { return p.Role == role })
}

// inotifyGone holds when too little is left for a daemon that starts. What runs already is not affected.
func inotifyGone(f *facts.Facts) bool {
	short := func(u host.Usage) bool { return u.Max > 0 && u.Current+inotifyOfStart > u.Max }
	return short(f.Usage.InotifyInstances) || short(f.Usage.InotifyWatches)
}

// livingCgroups holds when there are enough living control groups to slow down whoever reads them; dying ones cost
// memory only.
func livingCgroups(f *facts.Facts) bool { return f.Seen.Cgroups.Value.Total >= f.Limits.Node.Cgroups }

var (
	runtimeTaskStuck = some(stuckTasks, byRole(host.RoleRuntime))
	kubeletTaskStuck = some(stuckTasks, byRole(host.RoleKubelet))
	pluginTaskStuck  = some(stuckTasks, byRole(host.RoleCNI))
	shimTaskStuck    = some(stuckTasks,
		func(f *facts.Facts, t host.BlockedTask) bool { return servedByStopped(f, t.ObjectID) })
	taskHoldsCall = some(stuckTasks, func(f *facts.Facts, t host.BlockedTask) bool {
		_, ok := facts.HeldBy(f, t)
		return ok
	})
	waitsForDisk  = some(stuckTasks, waiting(facts.WaitDisk, facts.WaitUnmount, facts.WaitUnknown))
	waitsForMount = some(stuckTasks,
		waiting(facts.WaitNetworkFS, facts.WaitFUSE, facts.WaitUnmount, facts.WaitUnknown))
	kernelNamesTask = some(stuckTasks, func(f *facts.Facts, t host.BlockedTask) bool {
		return slices.ContainsFunc(f.Log.HungTasks, func(k facts.LogTask) bool {
			return k.PID > 0 && (k.PID == t.PID || k.PID == t.TID)
		})
	})
)

func taskWaitsForDisk(f *facts.Facts) bool { return diskStands(f) && waitsForDisk(f) }

func taskWaitsForMount(f *facts.Facts) bool { return anyMountHangs(f) && waitsForMount(f) }

// waiting is for tasks that wait for one of the kinds.
func waiting(kinds ...facts.Wait) func(*facts.Facts, host.BlockedTask) bool {
	return func(_ *facts.Facts, t host.BlockedTask) bool { return slices.Contains(kinds, facts.WaitOf(t)) }
}

func stuckTasks(f *facts.Facts) []host.BlockedTask { return f.Tasks.Stuck }

// byRole is for tasks of the role.
func byRole(role host.Role) func(*facts.Facts, host.BlockedTask) bool {
	return func(_ *facts.Facts, t host.BlockedTask) bool { return t.Role == role }
}

// servedByStopped reports whether a stopped shim serves an object.
func servedByStopped(f *facts.Facts, id string) bool {
	return id != "" && slices.ContainsFunc(f.Shims.Stopped, func(p host.Process) bool { return p.ObjectID == id })
}

var shimHoldsCall = some(stoppedShims,
	func(f *facts.Facts, p host.Process) bool { return ownerHangs(f, facts.OwnerOf(p)) })

func stoppedShims(f *facts.Facts) []host.Process { return f.Shims.Stopped }

// ownerHangs reports whether the status of an object or pod hangs.
func ownerHangs(f *facts.Facts, o host.Owner) bool {
	_, ok := facts.HungObjectOf(f, o)
	return ok
}

func shimHoldsList(f *facts.Facts) bool {
	return shimHoldsCall(f) || len(f.Shims.Stopped) > 0 && len(f.Sweep.Hung) == 0
}

var (
	runtimeFrozen = some(frozenGroups, frozenRole(facts.RoleRuntime))
	kubeletFrozen = some(frozenGroups, frozenRole(facts.RoleKubelet))
	objectFrozen  = some(frozenGroups, func(f *facts.Facts, g host.FrozenCgroup) bool { return ownerHangs(f, g.Owner) })
	taskInFreeze  = some(frozenGroups, func(f *facts.Facts, g host.FrozenCgroup) bool {
		inIt := func(t host.BlockedTask) bool { return t.ObjectID != "" && t.ObjectID == g.ObjectID }
		return slices.ContainsFunc(f.Tasks.Stuck, inIt)
	})
	shimInFreeze = some(frozenGroups,
		func(f *facts.Facts, g host.FrozenCgroup) bool { return servedByStopped(f, g.ObjectID) })
)

// frozenGroups are the groups that stand still with those that are frozen.
func frozenGroups(f *facts.Facts) []host.FrozenCgroup {
	var all []host.FrozenCgroup
	for _, z := range f.Tasks.Frozen {
		all = append(all, z.Held...)
	}
	return all
}

func frozenRole(r facts.Role) func(*facts.Facts, host.FrozenCgroup) bool {
	return func(_ *facts.Facts, g host.FrozenCgroup) bool { return facts.CgroupRole(g) == r }
}

func freezeHoldsCall(f *facts.Facts) bool {
	return slices.ContainsFunc(f.Tasks.Frozen, facts.Freeze.HoldsAllPods) || objectFrozen(f)
}

func systemdStartsContainers(f *facts.Facts) bool { return f.Systemd.Driver == "systemd" }

func runcWaitsForSystemd(f *facts.Facts) bool {
	return f.Systemd.Driver != "cgroupfs" && len(facts.OldProcesses(f, host.RoleOCI, facts.LongOCI)) > 0
}

// manySmallEntries: where single entries are large, fewer containers do not help.
func manySmallEntries(f *facts.Facts) bool { return !f.Lists.LargeEntries }

// mostAreDead holds when what no longer runs is most of what the runtime holds.
func mostAreDead(f *facts.Facts) bool {
	return 2*(f.Lists.Census.Exited+f.Lists.Census.DeadSandboxes) > f.Lists.Objects
}

// kubeletFindsNoRuntime: a kubelet that starts without a runtime ends itself at once.
func kubeletFindsNoRuntime(f *facts.Facts) bool {
	return f.Measurement != nil && !f.Target.OtherEndpoint &&
		(f.Measurement.Connect.State == crictl.ConnectMissing || f.Measurement.Connect.State == crictl.ConnectRefused)
}

// kubeletNeverCameUp: a kubelet that was up waits for a runtime without standing still.
func kubeletNeverCameUp(f *facts.Facts) bool { return f.Agent.NeverCameUp != nil }

func endedByWatchdog(f *facts.Facts) bool { return f.Log.Watchdog }

// systemdGaveUp holds when a loop of restarts ended in a unit that systemd does not start any more.
func systemdGaveUp(f *facts.Facts) bool {
	return f.Agent.Unit != nil && f.Agent.Unit.Active == "failed"
}

func clientIsInvalid(f *facts.Facts) bool {
	return invalidCertificate(f, facts.ClientCertificate) != nil
}

// endsByCredentials holds when the kubelet's last error is about its credentials.
func endsByCredentials(f *facts.Facts) bool {
	c := facts.Logged(f, signature.KubeletFatal)
	return clientIsInvalid(f) && c != nil && facts.ContainsAny(c.Example, []string{"bootstrap", "certificate", "x509"})
}

// serverNotAway excludes an API server that kdiag does not reach either: that has another reason.
func serverNotAway(f *facts.Facts) bool { return !f.Seen.Server.OK || f.Seen.Server.Value.Reachable }

func clientRefused(f *facts.Facts) bool { return clientIsInvalid(f) && serverNotAway(f) }

// reachedBetweenLives: an invalid certificate is refused in every life of the kubelet.
func reachedBetweenLives(f *facts.Facts) bool {
	return f.Seen.Server.Value.Reachable && !clientRefused(f)
}

// nobodyRenewsLease: the lease has its own loop, so only a process that does not run stops it.
func nobodyRenewsLease(f *facts.Facts) bool {
	return serverNotAway(f) && (f.Agent.Stopped != nil || f.Agent.NeverCameUp != nil)
}

func validByServerClock(f *facts.Facts) bool {
	c := invalidCertificate(f, facts.ClientCertificate)
	return !f.Seen.Server.Value.SkewKnown || c != nil && byWrongClock(f, *c)
}

func serverCertificateRefused(f *facts.Facts) bool {
	return facts.Logged(f, signature.CertificateExpired) != nil || f.Seen.Server.Value.TLSError != ""
}

func daemonIsStopped(f *facts.Facts) bool {
	p := f.Target.Daemon.Process
	return p != nil && facts.IsStopped(p)
}

func shimIsStopped(f *facts.Facts) bool { return len(f.Shims.Stopped) > 0 }

func kubeletIsStopped(f *facts.Facts) bool { return f.Agent.Stopped != nil }

func kubeletStoppedInOrder(f *facts.Facts) bool { return stoppedInOrder(f.Agent.Unit) }

func runtimeStoppedInOrder(f *facts.Facts) bool { return stoppedInOrder(f.Target.RuntimeUnit) }

func stoppedInOrder(u *host.Unit) bool {
	return u != nil && u.Active == "inactive" && u.Result == "success"
}

func sameRuntime(f *facts.Facts) bool { return f.Log.SameRuntime }

func killedBeforePLEG(f *facts.Facts) bool { return f.Log.SameRuntime && f.Log.OOMBeforePLEG }

func kubeletCannotList(f *facts.Facts) bool {
	return f.Log.SameRuntime && f.Lists.SizeKnown && f.Lists.Size.Over()
}
