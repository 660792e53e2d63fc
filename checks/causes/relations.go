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

func runtimeDiskFull(f *facts.Facts) bool { return fullUnder(f.Disk.Short, host.FolderRuntime) }

func kubeletDiskFull(f *facts.Facts) bool { return fullUnder(f.Disk.Short, host.FolderKubelet) }

func runtimeInodesGone(f *facts.Facts) bool { return fullUnder(f.Disk.ShortInodes, host.FolderRuntime) }

func kubeletInodesGone(f *facts.Facts) bool { return fullUnder(f.Disk.ShortInodes, host.FolderKubelet) }

// fullUnder reports whether a full file system holds a folder of the role.
func fullUnder(short []facts.Shortage, role string) bool {
	return slices.ContainsFunc(short, func(s facts.Shortage) bool {
		return s.Full && slices.ContainsFunc(s.Space.Folders, func(o host.Folder) bool { return o.Role == role })
	})
}

func diskFails(f *facts.Facts) bool { return len(f.Disk.Failing) > 0 }

// diskStands reports whether a disk is so slow, or fails so, that calls hang on it. A mount that hangs explains hung calls
// better than a slow disk does.
func diskStands(f *facts.Facts) bool {
	slow := slices.ContainsFunc(f.Disk.Writes, func(w facts.WriteLatency) bool {
		severity, _ := w.Severity(f.Limits.Node)
		return severity == checks.Critical
	})
	return (slow || diskFails(f)) && len(f.Disk.DeadMounts) == 0
}

func taskWaitsForDisk(f *facts.Facts) bool {
	return diskStands(f) && someStuck(f, facts.WaitDisk, facts.WaitUnmount, facts.WaitUnknown)
}

// anyMountHangs is enough for the kubelet, which asks every mount for its size, and for tasks of any user.
func anyMountHangs(f *facts.Facts) bool {
	return slices.ContainsFunc(f.Disk.SilentMounts, func(m host.Mount) bool { return m.Hung })
}

// usedMountHangs reports whether a mount hangs that the runtime or a pod uses.
func usedMountHangs(f *facts.Facts) bool {
	return slices.ContainsFunc(f.Disk.SilentMounts, func(m host.Mount) bool { return m.Hung && Hurts(f, m) })
}

// podMountHangs reports whether a mount hangs of a pod whose status calls hang, or of no known pod.
func podMountHangs(f *facts.Facts) bool {
	hungs := f.Sweep.Hung
	return usedMountHangs(f) && (len(hungs) == 0 || slices.ContainsFunc(f.Disk.SilentMounts, func(m host.Mount) bool {
		return m.Hung && (m.PodUID == "" || slices.ContainsFunc(hungs, func(i plegbench.Inspection) bool { return i.Pod.UID == m.PodUID }))
	}))
}

func taskWaitsForMount(f *facts.Facts) bool {
	return anyMountHangs(f) && someStuck(f, facts.WaitNetworkFS, facts.WaitFUSE, facts.WaitUnmount, facts.WaitUnknown)
}

// mountHoldsStart excludes a kubelet that ended: one that a mount holds cannot end until systemd gives up on it.
func mountHoldsStart(f *facts.Facts) bool {
	u := f.Agent.Unit
	return anyMountHangs(f) && (u == nil || u.Result == "timeout")
}

func memoryIsLow(f *facts.Facts) bool { return f.Pressure.MemoryLow }

// thrashes is what a hang needs, where low memory alone makes calls slow.
func thrashes(f *facts.Facts) bool {
	severity, _ := f.Pressure.MemorySeverity, f.Pressure.MemoryShort
	return f.Pressure.MemoryLow && severity == checks.Critical
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

// throttledBut reports whether a group other than that of one daemon is throttled in at least such a share of its periods.
func throttledBut(f *facts.Facts, other host.Role, least float64) bool {
	return slices.ContainsFunc(f.Pressure.Throttled, func(t host.Throttling) bool { return t.Role != other && facts.ThrottledShare(t) >= least })
}

func runtimeCannotFork(f *facts.Facts) bool { return cannotFork(f, facts.RoleKubelet) }

func kubeletCannotFork(f *facts.Facts) bool { return cannotFork(f, facts.RoleRuntime) }

// cannotFork reports whether the node, all pods' parent group or a daemon's group other than one is at its limit.
func cannotFork(f *facts.Facts, other facts.Role) bool {
	return slices.ContainsFunc(f.Usage.PIDs, func(l facts.PIDLimit) bool {
		g := host.FrozenCgroup{Path: l.Group.Path, Owner: l.Group.Owner}
		return !l.Pod && l.Share >= f.Limits.Node.LimitCritical && facts.CgroupRole(g) != other && !facts.HoldsAllPods(g)
	})
}

func runtimeOutOfFiles(f *facts.Facts) bool { return outOfFiles(f, host.RoleRuntime) }

func kubeletOutOfFiles(f *facts.Facts) bool { return outOfFiles(f, host.RoleKubelet) }

func outOfFiles(f *facts.Facts, role host.Role) bool {
	return facts.Used(f.Seen.Files.Value.System) >= f.Limits.Node.LimitCritical ||
		slices.ContainsFunc(f.Usage.Files, func(p host.ProcessFiles) bool { return p.Role == role })
}

// inotifyGone reports whether too little is left for a daemon that starts. What runs already is not affected.
func inotifyGone(f *facts.Facts) bool {
	instances, watches := f.Usage.InotifyInstances, f.Usage.InotifyWatches
	short := func(u host.Usage) bool { return u.Max > 0 && u.Current+inotifyOfStart > u.Max }
	return short(instances) || short(watches)
}

// livingCgroups reports whether there are enough living control groups to slow down whoever reads them; dying ones cost memory only.
func livingCgroups(f *facts.Facts) bool { return f.Seen.Cgroups.Value.Total >= f.Limits.Node.Cgroups }

func stuckThat(f *facts.Facts, want func(host.BlockedTask) bool) bool {
	return slices.ContainsFunc(f.Tasks.Stuck, want)
}

func someStuck(f *facts.Facts, kinds ...facts.Wait) bool {
	return stuckThat(f, func(t host.BlockedTask) bool { return slices.Contains(kinds, facts.WaitOf(t)) })
}

func runtimeTaskStuck(f *facts.Facts) bool {
	return stuckThat(f, func(t host.BlockedTask) bool { return t.Role == host.RoleRuntime })
}

func kubeletTaskStuck(f *facts.Facts) bool {
	return stuckThat(f, func(t host.BlockedTask) bool { return t.Role == host.RoleKubelet })
}

func pluginTaskStuck(f *facts.Facts) bool {
	return stuckThat(f, func(t host.BlockedTask) bool { return t.Role == host.RoleCNI })
}

func shimTaskStuck(f *facts.Facts) bool {
	return stuckThat(f, func(t host.BlockedTask) bool { return slices.Contains(stuckShimIDs(f), t.ObjectID) })
}

func taskHoldsCall(f *facts.Facts) bool {
	return stuckThat(f, func(t host.BlockedTask) bool { _, ok := facts.HeldBy(f, t); return ok })
}

// taskHoldsList: a list waits for the lock of one container, whose status hangs or whose runc or shim is stuck.
func taskHoldsList(f *facts.Facts) bool {
	if len(f.Sweep.Hung) > 0 {
		return taskHoldsCall(f)
	}
	return stuckThat(f, func(t host.BlockedTask) bool { return t.Role == host.RoleOCI || t.Role == host.RoleShim })
}

func shimHoldsCall(f *facts.Facts) bool {
	return slices.ContainsFunc(f.Shims.Stopped, func(p host.Process) bool { _, ok := facts.HungObjectOf(f, facts.OwnerOf(p)); return ok })
}

func shimHoldsList(f *facts.Facts) bool {
	return shimHoldsCall(f) || len(f.Shims.Stopped) > 0 && len(f.Sweep.Hung) == 0
}

// frozenThat reports whether a group that stands still is one of those.
func frozenThat(f *facts.Facts, want func(host.FrozenCgroup) bool) bool {
	return slices.ContainsFunc(f.Tasks.Frozen, func(z facts.Freeze) bool { return slices.ContainsFunc(z.Held, want) })
}

func runtimeFrozen(f *facts.Facts) bool {
	return frozenThat(f, func(g host.FrozenCgroup) bool { return facts.CgroupRole(g) == facts.RoleRuntime })
}

func kubeletFrozen(f *facts.Facts) bool {
	return frozenThat(f, func(g host.FrozenCgroup) bool { return facts.CgroupRole(g) == facts.RoleKubelet })
}

func freezeHoldsCall(f *facts.Facts) bool {
	return slices.ContainsFunc(f.Tasks.Frozen, facts.Freeze.HoldsAllPods) ||
		frozenThat(f, func(g host.FrozenCgroup) bool { _, ok := facts.HungObjectOf(f, g.Owner); return ok })
}

func taskInFreeze(f *facts.Facts) bool {
	return frozenThat(f, func(g host.FrozenCgroup) bool {
		return stuckThat(f, func(t host.BlockedTask) bool { return t.ObjectID != "" && t.ObjectID == g.ObjectID })
	})
}

func shimInFreeze(f *facts.Facts) bool {
	return frozenThat(f, func(g host.FrozenCgroup) bool { return slices.Contains(stuckShimIDs(f), g.ObjectID) })
}

func kernelNamesTask(f *facts.Facts) bool {
	return stuckThat(f, func(t host.BlockedTask) bool {
		return slices.ContainsFunc(f.Log.HungTasks, func(k facts.LogTask) bool { return k.PID > 0 && (k.PID == t.PID || k.PID == t.TID) })
	})
}

func systemdStartsContainers(f *facts.Facts) bool { return f.Systemd.Driver == "systemd" }

func runcWaitsForSystemd(f *facts.Facts) bool {
	return f.Systemd.Driver != "cgroupfs" && len(facts.OldProcesses(f, host.RoleOCI, facts.LongOCI)) > 0
}

func someStatusHangs(f *facts.Facts) bool { return len(f.Sweep.Hung) > 0 }

// manySmallEntries: where single entries are large, fewer containers do not help.
func manySmallEntries(f *facts.Facts) bool { return !f.Lists.LargeEntries }

func mostAreDead(f *facts.Facts) bool { return mostlyDead(f) }

// kubeletFindsNoRuntime: a kubelet that starts without a runtime ends itself at once.
func kubeletFindsNoRuntime(f *facts.Facts) bool {
	if f.Measurement == nil || f.Target.OtherEndpoint {
		return false
	}
	state := f.Measurement.Connect.State
	return state == crictl.ConnectMissing || state == crictl.ConnectRefused
}

// kubeletNeverCameUp: a kubelet that was up waits for a runtime without standing still.
func kubeletNeverCameUp(f *facts.Facts) bool { return f.Agent.NeverCameUp != nil }

func endedByWatchdog(f *facts.Facts) bool { return f.Log.Watchdog }

// systemdGaveUp reports whether a loop of restarts ended in a unit that systemd does not start any more.
func systemdGaveUp(f *facts.Facts) bool {
	u := f.Agent.Unit
	return u != nil && u.Active == "failed"
}

func clientIsInvalid(f *facts.Facts) bool {
	_, bad := invalidCertificate(f, facts.ClientCertificate)
	return bad
}

// endsByCredentials reports whether the kubelet's last error is about its credentials.
func endsByCredentials(f *facts.Facts) bool {
	c := facts.Logged(f, signature.KubeletFatal)
	return clientIsInvalid(f) && c != nil && facts.ContainsAny(c.Example, []string{"bootstrap", "certificate", "x509"})
}

// serverNotAway excludes an API server that kdiag does not reach either: that has another reason.
func serverNotAway(f *facts.Facts) bool {
	s := f.Seen.Server
	return !s.OK || s.Value.Reachable
}

func clientRefused(f *facts.Facts) bool { return clientIsInvalid(f) && serverNotAway(f) }

// reachedBetweenLives: an invalid certificate is refused in every life of the kubelet.
func reachedBetweenLives(f *facts.Facts) bool {
	return f.Seen.Server.Value.Reachable && !clientRefused(f)
}

// nobodyRenewsLease: the lease has a loop of its own, so only a process that does not run stops it.
func nobodyRenewsLease(f *facts.Facts) bool {
	return serverNotAway(f) && (f.Agent.Stopped != nil || f.Agent.NeverCameUp != nil)
}

func validByServerClock(f *facts.Facts) bool {
	c, client := invalidCertificate(f, facts.ClientCertificate)
	return !f.Seen.Server.Value.SkewKnown || client && byWrongClock(f, c)
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
	s, known := f.Lists.Size, f.Lists.SizeKnown
	return f.Log.SameRuntime && known && s.Over()
}
