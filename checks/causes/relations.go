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

// A condition must hold for one cause to be the root of another.
type condition = func(*facts.Facts) bool

// In a relation causes explain others where the condition holds, nil for always.
type relation struct {
	roots    []string
	when     condition
	explains []string
}

// relations are the causes that explain others, in the order of the list of causes.
var relations = []relation{
	root(RuntimeDown, kubeletFindsNoRuntime, KubeletCrashLooping, KubeletDown),
	root(RuntimeHung, endedByWatchdog, KubeletCrashLooping),
	// A kubelet that was up waits for a runtime without standing still.
	root(RuntimeHung, func(f *facts.Facts) bool { return f.KubeletState.NeverCameUp != nil }, KubeletStalled),
	root(RuntimeSlow, nil, InspectHang, RelistOverloaded),
	root(CNIHung, nil, NetworkNotReady),
	root(ListHang, endedByWatchdog, KubeletCrashLooping),
	root(ImageServiceHung, nil, InspectHang),
	// Where single entries are large, fewer containers do not help.
	root(TooManyExited, func(f *facts.Facts) bool { return !f.Lists.LargeEntries }, ListTooLarge),
	root(TooManyExited, mostAreDead, RelistOverloaded),
	root(KubeletDown, both(serverNotAway, noKubeletRuns), APIServerUnreachable),
	root(KubeletCrashLooping, systemdGaveUp, KubeletDown),
	root(KubeletCrashLooping, reachedBetweenLives, APIServerUnreachable),
	root(KubeletStalled, endedByWatchdog, KubeletCrashLooping),
	root(KubeletStalled, nobodyRenewsLease, APIServerUnreachable),
	root(PLEGUnhealthy, endedByWatchdog, KubeletCrashLooping),
	root(CertificateExpired, endsByCredentials, KubeletCrashLooping, KubeletDown),
	root(CertificateExpired, clientRefused, APIServerUnreachable),

	root(DiskFull, fullDisk(host.FolderRuntime), ImageServiceHung, RuntimeDown, RuntimeHung, RuntimeNotReady,
		TooManyExited),
	root(DiskFull, fullDisk(host.FolderKubelet), KubeletCrashLooping, KubeletDown),
	root(InodesExhausted, noInodes(host.FolderRuntime), RuntimeDown, RuntimeHung, RuntimeNotReady, TooManyExited),
	root(InodesExhausted, noInodes(host.FolderKubelet), KubeletCrashLooping, KubeletDown),
	root(HardwareFault, diskOfRuntime, CNIHung, FilesystemHung, ImageServiceHung, InspectHang, IOStall, KernelHung,
		KubeletStalled, ListHang, PLEGUnhealthy, RuntimeDown, RuntimeHung, RuntimeNotReady, RuntimeSlow, ShimStuck,
		SystemdWedged, TaskStuck),
	root(HardwareFault, cardFails, APIServerUnreachable),
	root(IOStall, nil, PLEGUnhealthy, RelistOverloaded, RuntimeSlow),
	root(IOStall, func(f *facts.Facts) bool { return len(f.Disk.Failing) > 0 }, RuntimeDown, RuntimeNotReady),
	root(IOStall, diskStands, CNIHung, FilesystemHung, ImageServiceHung, InspectHang, KernelHung, KubeletStalled,
		ListHang, RuntimeHung, ShimStuck, SystemdWedged),
	root(IOStall, both(diskStands, stuck(waitsFor(facts.WaitDisk, facts.WaitUnmount, facts.WaitThaw))), TaskStuck),
	root(FilesystemHung, mountHangs, KernelHung, KubeletStalled),
	root(FilesystemHung, mountHoldsStart, KubeletDown),
	root(FilesystemHung, podMountHangs, InspectHang, ListHang),
	root(FilesystemHung, usedMountHangs, ImageServiceHung, PLEGUnhealthy, RuntimeHung, RuntimeSlow, ShimStuck),
	root(FilesystemHung, both(mountHangs, stuck(waitsFor(facts.WaitNetworkFS, facts.WaitFUSE, facts.WaitUnmount))),
		TaskStuck),
	root(MemoryPressure, memoryIsLow, IOStall),
	root(MemoryPressure, busSqueezed, SystemdWedged),
	// Who looks for memory uses the CPUs.
	root(MemoryPressure, either(memoryIsLow, runtimeSqueezed), CPUStarved, OOMKilled, PLEGUnhealthy, RelistOverloaded,
		RuntimeSlow),
	root(MemoryPressure, either(thrashes, runtimeSqueezed), RuntimeHung),
	root(MemoryPressure, either(thrashes, kubeletSqueezed), KubeletStalled),
	root(MemoryPressure, runtimeSqueezed, ImageServiceHung, InspectHang, ListHang, RuntimeDown),
	root(MemoryPressure, stuck(squeezedTask), TaskStuck),
	root(OOMKilled, oomHit(facts.RoleRuntime), RuntimeDown),
	root(OOMKilled, oomHit(facts.RoleShim), InspectHang, ListHang),
	root(OOMKilled, oomHit(facts.RoleKubelet), KubeletCrashLooping, KubeletDown),
	root(CPUStarved, starvedBut(host.RoleKubelet), PLEGUnhealthy, RelistOverloaded, RuntimeSlow),
	root(CPUStarved, runtimeHardlyRuns, RuntimeHung),
	root(CPUStarved, busThrottled, SystemdWedged),
	root(CPUStarved, starvedBut(host.RoleRuntime), KubeletStalled),
	root(PIDsExhausted, noForkBut(facts.RoleKubelet), InspectHang, RuntimeDown, RuntimeHung, RuntimeNotReady,
		RuntimeSlow),
	root(PIDsExhausted, noForkBut(facts.RoleRuntime), KubeletCrashLooping, KubeletDown),
	root(FilesExhausted, outOfFiles(host.RoleRuntime), ImageServiceHung, InspectHang, RuntimeHung, RuntimeNotReady,
		RuntimeSlow),
	root(FilesExhausted, outOfFiles(host.RoleKubelet), APIServerUnreachable, KubeletCrashLooping, KubeletDown),
	root(InotifyExhausted, inotifyGone, KubeletCrashLooping, KubeletDown, RuntimeDown, RuntimeUnsupported),

	root(TaskStuck, stuck(ofRole(host.RoleRuntime)), RuntimeHung, RuntimeSlow),
	root(TaskStuck, stuck(ofRole(host.RoleKubelet)), KubeletStalled),
	root(TaskStuck, stuck(ofRole(host.RoleCNI)), CNIHung),
	root(TaskStuck, stuck(holdsShim), ShimStuck),
	root(TaskStuck, stuck(holdsCall), InspectHang, ListHang),
	root(OpensIntercepted, opensHoldNode, CNIHung, ImageServiceHung, InspectHang, IOStall, KernelHung, KubeletStalled,
		ListHang, PLEGUnhealthy, RuntimeHung, RuntimeNotReady, RuntimeSlow, ShimStuck, TaskStuck),
	root(ShimStuck, shimHoldsCall, InspectHang),
	root(ShimStuck, shimHoldsList, ListHang),
	root(ShimStuck, shimHoldsStart, RuntimeDown),
	root(PluginHung, snapshotterHung, ImageServiceHung, RuntimeNotReady),
	root(PluginHung, snapshotterHoldsStart, RuntimeDown),
	root(CgroupFrozen, frozen(ofDaemon(facts.RoleRuntime)), RuntimeHung),
	root(CgroupFrozen, frozen(ofDaemon(facts.RoleKubelet)), KubeletStalled),
	root(CgroupFrozen, frozen(ofStoppedShim), ShimStuck),
	root(CgroupFrozen, frozen(ofStuckTask), TaskStuck),
	root(CgroupFrozen, freezeHoldsCall, InspectHang, ListHang),
	root(SystemdWedged, func(f *facts.Facts) bool { return containersDriver(f) == "systemd" }, RuntimeHung, RuntimeSlow),
	root(SystemdWedged, runcWaitsForSystemd, InspectHang, ListHang, ShimStuck),
	root(KernelHung, kernelHolds, CNIHung, ImageServiceHung, InspectHang, ListHang, PLEGUnhealthy, RuntimeHung,
		RuntimeSlow),
	root(KernelHung, stuck(kernelNames), TaskStuck),
	root(MountsExploded, nil, CPUStarved, KubeletStalled, RelistOverloaded, RuntimeSlow, SystemdWedged),
	root(CgroupsLeaked, livingCgroups, CPUStarved, KubeletStalled, RuntimeSlow, SystemdWedged),
	root(ClockJumped, nil, PLEGUnhealthy),
	root(ClockJumped, serverCertificateRefused, APIServerUnreachable),
	root(ClockJumped, validByServerClock, CertificateExpired),

	// What every pod needs explains all that wait; what holds up some pods, only these.
	{
		roots: []string{
			RuntimeDown, RuntimeHung, RuntimeNotReady, NetworkNotReady, CNIHung, ListHang, ImageServiceHung, KubeletDown,
			KubeletCrashLooping, KubeletStalled, PLEGUnhealthy, SystemdWedged, CgroupDriverMismatch, PluginHung,
		},
		explains: waiting,
	},
	root(DiskFull, either(either(fullDisk(host.FolderRuntime), fullDisk(host.FolderState)),
		fullDisk(host.FolderKubelet)), waiting...),
	root(InodesExhausted, either(either(noInodes(host.FolderRuntime), noInodes(host.FolderState)),
		noInodes(host.FolderKubelet)), waiting...),
	root(IOStall, diskStands, waiting...),
	root(FilesystemHung, some(silentMounts, func(f *facts.Facts, m host.Mount) bool {
		return m.Hung && (m.PodUID == "" || waits(f, m.PodUID))
	}), waiting...),
	root(MemoryPressure, either(thrashes, runtimeSqueezed), waiting...),
	root(CPUStarved, either(runtimeHardlyRuns, podsThrottled), waiting...),
	root(PIDsExhausted, noForkBut(facts.RoleKubelet), waiting...),
	root(FilesExhausted, outOfFiles(host.RoleRuntime), waiting...),
	root(InotifyExhausted, inotifyGone, waiting...),
	root(TaskStuck, stuck(func(f *facts.Facts, t host.BlockedTask) bool {
		return t.Role != "" || waits(f, facts.OwnedBy(f, t.Owner).PodUID)
	}), waiting...),
	root(ShimStuck, func(f *facts.Facts) bool {
		return len(f.Shims.Working)+len(f.Shims.Mute) > 0 || slices.ContainsFunc(
			slices.Concat(f.Shims.Stopped, f.Shims.Silent, f.Shims.Blocked),
			func(p host.Process) bool { return waits(f, facts.OwnedBy(f, facts.OwnerOf(p)).PodUID) })
	}, waiting...),
	root(CgroupFrozen, frozen(func(f *facts.Facts, g host.FrozenCgroup) bool {
		return facts.CgroupRole(g.Owner) == facts.RoleRuntime || facts.HoldsAllPods(g.Path) ||
			waits(f, facts.OwnedBy(f, g.Owner).PodUID)
	}), waiting...),
	root(KernelHung, kernelHolds, waiting...),
	root(OpensIntercepted, opensHoldNode, waiting...),
}

// waiting are the causes that are effects: of pods that wait for something.
var waiting = []string{PodsNotStarting, PodsNotStopping}

// waits reports whether a pod is one of those that do not get where they should.
func waits(f *facts.Facts, uid string) bool {
	return uid != "" && slices.ContainsFunc(slices.Concat(f.Pods.NotStarting, f.Pods.NotStopping),
		func(t facts.PodTrouble) bool { return t.Pod.UID == uid })
}

func root(code string, when condition, explains ...string) relation {
	return relation{[]string{code}, when, explains}
}

// some holds when an element of the list matches.
func some[T any](list func(*facts.Facts) []T, match func(*facts.Facts, T) bool) condition {
	return func(f *facts.Facts) bool { return slices.ContainsFunc(list(f), func(x T) bool { return match(f, x) }) }
}

func both(a, b condition) condition { return func(f *facts.Facts) bool { return a(f) && b(f) } }

func either(a, b condition) condition { return func(f *facts.Facts) bool { return a(f) || b(f) } }

// fullDisk holds when a file system with a folder of the role has no space left, noInodes when it has no inodes.
func fullDisk(role string) condition {
	return some(func(f *facts.Facts) []facts.Shortage { return f.Disk.Short }, holds(role))
}

func noInodes(role string) condition {
	return some(func(f *facts.Facts) []facts.Shortage { return f.Disk.ShortInodes }, holds(role))
}

func holds(role string) func(*facts.Facts, facts.Shortage) bool {
	return func(_ *facts.Facts, s facts.Shortage) bool {
		return s.Full && slices.ContainsFunc(s.Space.Folders, func(o host.Folder) bool { return o.Role == role })
	}
}

// diskStands holds when a disk is so slow, or fails so, that calls hang on it. A mount that hangs explains hung calls
// better than a slow disk does.
func diskStands(f *facts.Facts) bool {
	slow := slices.ContainsFunc(f.Disk.Writes, func(w facts.WriteLatency) bool {
		severity, _ := w.Severity(f.Limits.Node)
		return severity == checks.Critical
	})
	held := slices.ContainsFunc(f.Disk.Throttled, facts.WritesStand)
	return (slow || held || f.Disk.Frozen || len(f.Disk.Failing) > 0) && len(f.Disk.DeadMounts) == 0
}

var (
	// mountHangs is enough for the kubelet, which asks every mount for its size, and for tasks of any user.
	mountHangs = some(silentMounts, func(_ *facts.Facts, m host.Mount) bool { return m.Hung })
	// usedMountHangs is for mounts that the runtime or a pod uses.
	usedMountHangs = some(silentMounts, func(f *facts.Facts, m host.Mount) bool { return m.Hung && hurts(f, m) })
	// podMountHangs is for those of a pod whose status calls hang, or of no known pod.
	podMountHangs = some(silentMounts, func(f *facts.Facts, m host.Mount) bool {
		ofPod := func(i plegbench.Inspection) bool { return i.Pod.UID == m.PodUID }
		hungs := f.Sweep.Hung
		return m.Hung && hurts(f, m) && (len(hungs) == 0 || m.PodUID == "" || slices.ContainsFunc(hungs, ofPod))
	})
)

func silentMounts(f *facts.Facts) []host.Mount { return f.Disk.SilentMounts }

// mountHoldsStart excludes a kubelet that ended: one that a mount holds cannot end until systemd gives up on it.
func mountHoldsStart(f *facts.Facts) bool {
	return mountHangs(f) && (f.KubeletState.Unit == nil || f.KubeletState.Unit.Result == "timeout")
}

func memoryIsLow(f *facts.Facts) bool { return f.Pressure.MemoryLow }

// thrashes holds when memory is low enough for calls to hang. Low memory alone makes them slow.
func thrashes(f *facts.Facts) bool {
	return f.Pressure.MemoryLow && f.Pressure.MemorySeverity == checks.Critical
}

// runtimeSqueezed holds when the runtime waits for memory at the limit of its control group.
func runtimeSqueezed(f *facts.Facts) bool { return facts.IsSqueezed(f, f.Target.Daemon.PID) }

// busSqueezed holds when the slice that D-Bus runs in, besides the daemons, is at its limit.
func busSqueezed(f *facts.Facts) bool {
	return slices.ContainsFunc(f.Pressure.Squeezed, func(m host.MemoryLimit) bool { return m.Path == systemSlice })
}

func kubeletSqueezed(f *facts.Facts) bool {
	return slices.ContainsFunc(facts.ProcessesOf(f, host.RoleKubelet),
		func(p host.Process) bool { return facts.IsSqueezed(f, p.PID) })
}

// squeezedTask is for tasks that wait for memory, or for the pages of their program, which are read back from the disk.
func squeezedTask(f *facts.Facts, t host.BlockedTask) bool {
	return facts.IsSqueezed(f, t.PID) && waitsFor(facts.WaitMemory, facts.WaitDisk)(f, t)
}

func oomHit(r facts.Role) condition { return func(f *facts.Facts) bool { return oomHits(f, r) } }

// starvedBut holds when tasks wait for a CPU, or a group other than that of one daemon is throttled.
func starvedBut(other host.Role) condition {
	return func(f *facts.Facts) bool {
		return f.Pressure.Crowded || throttledBut(f, other, 0) ||
			slices.ContainsFunc(f.Pressure.Starved, func(d host.Delay) bool { return d.Role != other })
	}
}

func runtimeHardlyRuns(f *facts.Facts) bool {
	return runtimeStarves(f) || throttledBut(f, host.RoleKubelet, f.Limits.Node.ThrottledCritical)
}

// systemSlice is the control group that systemd runs services in, D-Bus among them.
const systemSlice = facts.SystemSlice

// busThrottled holds when the slice that D-Bus runs in, besides the daemons, hardly runs.
func busThrottled(f *facts.Facts) bool {
	return slices.ContainsFunc(f.Pressure.Throttled, func(t host.Throttling) bool {
		return t.Path == systemSlice && facts.ThrottledShare(t) >= f.Limits.Node.ThrottledCritical
	})
}

// throttledBut reports whether a group other than that of one daemon is throttled in at least such a share of its
// periods. That of all pods holds no daemon.
func throttledBut(f *facts.Facts, other host.Role, least float64) bool {
	return slices.ContainsFunc(f.Pressure.Throttled, func(t host.Throttling) bool {
		return t.Role != other && !facts.HoldsAllPods(t.Path) && facts.ThrottledShare(t) >= least
	})
}

// noForkBut holds when the node, all pods' parent group or a daemon's group other than one is at its limit.
func noForkBut(other facts.Role) condition {
	pids := func(f *facts.Facts) []facts.PIDLimit { return f.Usage.PIDs }
	return some(pids, func(f *facts.Facts, l facts.PIDLimit) bool {
		return !l.Pod && l.Share >= f.Limits.Node.LimitCritical && facts.CgroupRole(l.Group.Owner) != other &&
			!facts.HoldsAllPods(l.Group.Path)
	})
}

func outOfFiles(role host.Role) condition {
	return func(f *facts.Facts) bool {
		return facts.Used(f.Seen.Files.Value.System) >= f.Limits.Node.LimitCritical ||
			slices.ContainsFunc(f.Usage.Files, func(p host.ProcessFiles) bool { return p.Role == role })
	}
}

// inotifyGone holds when too little is left for a daemon that starts. What runs already is not affected.
func inotifyGone(f *facts.Facts) bool {
	short := func(u host.Usage) bool { return u.Max > 0 && u.Current+inotifyOfStart > u.Max }
	return short(f.Usage.InotifyInstances) || short(f.Usage.InotifyWatches)
}

// livingCgroups holds when there are enough living control groups to slow down whoever reads them; dying ones cost
// memory only.
func livingCgroups(f *facts.Facts) bool { return f.Seen.Cgroups.Value.Total >= f.Limits.Node.Cgroups }

// stuck holds when a stuck task matches.
func stuck(match func(*facts.Facts, host.BlockedTask) bool) condition {
	return some(func(f *facts.Facts) []host.BlockedTask { return f.Tasks.Stuck }, match)
}

func ofRole(role host.Role) func(*facts.Facts, host.BlockedTask) bool {
	return func(_ *facts.Facts, t host.BlockedTask) bool { return t.Role == role }
}

// opensHoldNode holds when a daemon, or what it started, waits for a listener of fanotify.
func opensHoldNode(f *facts.Facts) bool {
	return slices.ContainsFunc(f.Tasks.Intercepted, func(t host.BlockedTask) bool { return t.Role != "" })
}

// waitsFor is for tasks that wait for one of the kinds, or for something unknown.
func waitsFor(kinds ...facts.Wait) func(*facts.Facts, host.BlockedTask) bool {
	kinds = append(kinds, facts.WaitUnknown)
	return func(_ *facts.Facts, t host.BlockedTask) bool { return slices.Contains(kinds, facts.WaitOf(t)) }
}

func holdsCall(f *facts.Facts, t host.BlockedTask) bool {
	_, ok := facts.HeldBy(f, t)
	return ok
}

func kernelNames(f *facts.Facts, t host.BlockedTask) bool {
	return slices.ContainsFunc(f.Log.HungTasks, func(k facts.LogTask) bool {
		return k.PID > 0 && (k.PID == t.PID || k.PID == t.TID)
	})
}

// holdsShim is for tasks of an object that a stopped shim serves, and for those of an OCI runtime or a shim that is
// stuck; ofStoppedShim is for groups of a stopped one's.
func holdsShim(f *facts.Facts, t host.BlockedTask) bool {
	is := func(p host.Process) bool { return p.PID == t.PID }
	return stoppedShimServes(f, t.ObjectID) ||
		slices.ContainsFunc(slices.Concat(f.Shims.Working, f.Shims.Blocked), is)
}

func ofStoppedShim(f *facts.Facts, g host.FrozenCgroup) bool { return stoppedShimServes(f, g.ObjectID) }

func stoppedShimServes(f *facts.Facts, id string) bool {
	return id != "" && slices.ContainsFunc(f.Shims.Stopped, func(p host.Process) bool { return p.ObjectID == id })
}

func shimHoldsCall(f *facts.Facts) bool {
	return slices.ContainsFunc(slices.Concat(f.Shims.Stopped, f.Shims.Blocked, f.Shims.Working),
		func(p host.Process) bool { return ownerHangs(f, facts.OwnerOf(p)) })
}

// ownerHangs reports whether the status of an object or pod hangs.
func ownerHangs(f *facts.Facts, o host.Owner) bool {
	_, ok := facts.HungObjectOf(f, o)
	return ok
}

func shimHoldsList(f *facts.Facts) bool {
	return shimHoldsCall(f) ||
		len(f.Shims.Stopped)+len(f.Shims.Blocked)+len(f.Shims.Working) > 0 && len(f.Sweep.Hung) == 0
}

// frozen holds when a frozen group, or one below it, matches.
func frozen(match func(*facts.Facts, host.FrozenCgroup) bool) condition {
	return some(func(f *facts.Facts) []host.FrozenCgroup {
		var all []host.FrozenCgroup
		for _, z := range f.Tasks.Frozen {
			all = append(all, z.Held...)
		}
		return all
	}, match)
}

func ofDaemon(r facts.Role) func(*facts.Facts, host.FrozenCgroup) bool {
	return func(_ *facts.Facts, g host.FrozenCgroup) bool { return facts.CgroupRole(g.Owner) == r }
}

func ofStuckTask(f *facts.Facts, g host.FrozenCgroup) bool {
	inIt := func(t host.BlockedTask) bool { return t.ObjectID != "" && t.ObjectID == g.ObjectID }
	return slices.ContainsFunc(f.Tasks.Stuck, inIt)
}

func freezeHoldsCall(f *facts.Facts) bool {
	hangs := frozen(func(f *facts.Facts, g host.FrozenCgroup) bool { return ownerHangs(f, g.Owner) })
	return slices.ContainsFunc(f.Tasks.Frozen, facts.Freeze.HoldsAllPods) || hangs(f)
}

func runcWaitsForSystemd(f *facts.Facts) bool {
	return containersDriver(f) != "cgroupfs" && len(facts.OldProcesses(f, host.RoleOCI, facts.LongOCI)) > 0
}

// mostAreDead holds when most objects of the runtime no longer run.
func mostAreDead(f *facts.Facts) bool {
	return 2*(f.Lists.Census.Exited+f.Lists.Census.DeadSandboxes) > f.Lists.Objects
}

// kubeletFindsNoRuntime: a kubelet that starts without a runtime ends itself at once.
func kubeletFindsNoRuntime(f *facts.Facts) bool {
	return f.Measurement != nil && !f.Target.OtherEndpoint &&
		(f.Measurement.Connect.State == crictl.ConnectMissing || f.Measurement.Connect.State == crictl.ConnectRefused)
}

func endedByWatchdog(f *facts.Facts) bool { return f.Log.Watchdog }

// systemdGaveUp holds when a loop of restarts ended in a unit that systemd does not start any more.
func systemdGaveUp(f *facts.Facts) bool {
	return f.KubeletState.Unit != nil && f.KubeletState.Unit.Active == "failed"
}

func noKubeletRuns(f *facts.Facts) bool { return !f.KubeletState.Runs }

func clientIsInvalid(f *facts.Facts) bool {
	return invalidCertificate(f, facts.ClientCertificate) != nil
}

// endsByCredentials holds when the kubelet's last error is about its credentials.
func endsByCredentials(f *facts.Facts) bool {
	c := facts.Logged(f, signature.KubeletFatal)
	return clientIsInvalid(f) && c != nil && facts.Says(c.Newest(), "bootstrap", "certificate", "x509")
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
	return serverNotAway(f) && (f.KubeletState.Stopped != nil || f.KubeletState.NeverCameUp != nil)
}

func validByServerClock(f *facts.Facts) bool {
	c := invalidCertificate(f, facts.ClientCertificate)
	return !f.Seen.Server.Value.SkewKnown || c != nil && byWrongClock(f, *c)
}

func serverCertificateRefused(f *facts.Facts) bool {
	return facts.Logged(f, signature.CertificateExpired) != nil || f.Seen.Server.Value.TLSError != ""
}

func stoppedInOrder(u *host.Unit) bool {
	return u != nil && u.Active == "inactive" && u.Result == "success"
}

// hidesPLEG are the causes beside which PLEGUnhealthy is not reported.
var hidesPLEG = slices.Concat(
	beside(false, sameRuntime, RuntimeSlow, RelistOverloaded, KubeletStalled),
	beside(true, sameRuntime, KubeletDown, RuntimeDown, RuntimeHung, RuntimeUnsupported, ListHang, RuntimeNotReady,
		InspectHang, KernelHung),
	beside(false, killedBeforePLEG, OOMKilled),
	beside(true, kubeletCannotList, ListTooLarge),
)

func beside(critical bool, when condition, codes ...string) []Root {
	var roots []Root
	for _, code := range codes {
		roots = append(roots, Root{Code: code, When: when, Critical: critical})
	}
	return roots
}

func sameRuntime(f *facts.Facts) bool { return f.Log.SameRuntime }

func killedBeforePLEG(f *facts.Facts) bool { return f.Log.SameRuntime && f.Log.OOMBeforePLEG }

func kubeletCannotList(f *facts.Facts) bool {
	return f.Log.SameRuntime && f.Lists.SizeKnown && f.Lists.Size.Over()
}
