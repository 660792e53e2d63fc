package causes

import (
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/journal/signature"
)

// A remedy is the action that ends a cause where all conditions hold.
type remedy struct {
	checks.Remedy
	when []ofFinding
}

// An ofFinding is a condition of a finding and of the facts that show it, which are nil for a log alone.
type ofFinding = func(*facts.Facts, *Finding) bool

// logRead is why no restart ends a wait to write a log.
const logRead = "who reads its log has to go on: the daemon waits for it after a restart too"

// remedies are the actions that end each cause, in the order in which their conditions are asked. The action is the
// least that heals: where a daemon waits in the kernel, or its disk is full, no restart does. The last of each list
// has no condition; of a cause that only a log shows, it is the action.
var remedies = map[string][]remedy{
	RuntimeDown: {
		act(checks.ActionFixNode, "what it requires has to start first",
			seen(func(f *facts.Facts) bool { return lacks(f.Target.RuntimeUnit) != nil })),
		act(checks.ActionFixNode, "what ended it ends the next start too: its last words name it", summary("; it says: ",
			"does not load", "is not a socket")),
		act(checks.ActionFixNode, "a process holds the start: it has to end first", summary("waits for", "share ")),
		act(checks.ActionRestartRuntime, "its daemon does not run; containers run on without it"),
	},
	RuntimeHung: {
		act(checks.ActionFixNode, logRead, seen(logBlocked(host.RoleRuntime))),
		act(checks.ActionRebootNode, "its daemon waits in the kernel: no signal ends it",
			seen(stuck(ofRole(host.RoleRuntime)))),
		act(checks.ActionRestartRuntime, "its daemon runs and answers nothing; containers survive its restart"),
	},
	RuntimeSlow: {act(checks.ActionFixNode, "something on the node is overloaded: a restart adds to it")},
	RuntimeNotReady: {
		act(checks.ActionWait, "it loads its state: a restart begins that anew", summary("has not loaded its state",
			"starting, or just restarted")),
		act(checks.ActionFixNode, "its folder has to come back: a restart begins with an empty one, and knows no container",
			seen(func(f *facts.Facts) bool { return len(f.Seen.CNI.Value.Folders) > 0 })),
		act(checks.ActionFixNode, "a restart changes nothing: what it lacks has to be repaired first"),
	},
	RuntimeUnsupported: {act(checks.ActionFixNode, "a restart with the same configuration serves no CRI either")},
	NetworkNotReady: {
		act(checks.ActionFixNode, "plugins or configuration are gone from the node",
			summary("CNI plugins are missing", "is left in")),
		act(checks.ActionFixNode, "a setting of its unit has to go before a restart helps",
			summary("network namespace of its own")),
		act(checks.ActionFixNode, "the pods that are cut off have to be deleted: their successors are attached",
			summary("cut off from the network")),
		act(checks.ActionFixCluster, "the network add-on writes the configuration: it has to run on this node"),
	},
	CNIHung: {act(checks.ActionFixNode, "a CNI plugin that hangs has to end; it survives a restart of the runtime")},
	ListHang: {
		act(checks.ActionRestartRuntime, "the lock that the list waits for is in the daemon's memory"),
	},
	InspectHang: {
		act(checks.ActionRestartRuntime, "the status waits for a lock or a task in the daemon's memory"),
	},
	ImageServiceHung: {act(checks.ActionRestartRuntime, "only its image service hangs; containers survive its restart")},
	TooManyExited:    {act(checks.ActionFixNode, "no restart removes them; kdiag gc-exited does")},
	ListTooLarge:     {act(checks.ActionFixNode, "the list is as long after a restart")},
	RelistOverloaded: {act(checks.ActionFixCluster, "too many pods change at once; a restart inspects them all")},
	PodsNotStarting: {
		act(checks.ActionFixNode, "the daemon's words name what is missing"),
	},
	PodsNotStopping: {act(checks.ActionFixNode, "the daemon's words name what holds the pod")},
	ShimStuck: {
		act(checks.ActionRebootNode, "it waits in the kernel: no signal ends it",
			seen(func(f *facts.Facts) bool { return len(f.Shims.Blocked) > 0 })),
		act(checks.ActionFixNode, "a stopped process has to be continued or ended",
			seen(func(f *facts.Facts) bool { return len(f.Shims.Stopped)+len(f.Shims.Silent) > 0 })),
		act(checks.ActionFixNode, "an OCI runtime that hangs has to end; it survives a restart of the runtime",
			seen(func(f *facts.Facts) bool { return len(f.Shims.Working) > 0 })),
		act(checks.ActionDeletePod, "nothing serves the pod any more: the kubelet makes a new one",
			ofPod,
			seen(func(f *facts.Facts) bool { return len(f.Shims.Gone)+len(f.Shims.Unwatched) > 0 })),
		act(checks.ActionRestartRuntime, "it reads its shims anew when it starts"),
	},
	CgroupFrozen: {
		act(checks.ActionDeletePod, "the group is one pod's: the runtime thaws it to end the pod", ofPod),
		act(checks.ActionFixNode, "the group has to be thawed; what is frozen does not act on a signal"),
	},
	TaskStuck: {
		act(checks.ActionFixNode, "it goes on when its file system is thawed", seen(stuck(waitsOnly(facts.WaitThaw)))),
		act(checks.ActionFixCluster, "it goes on when the server of its mount answers; a reboot may hang there too",
			seen(stuck(waitsOnly(facts.WaitNetworkFS)))),
		act(checks.ActionRebootNode, "it waits in the kernel: no signal ends it"),
	},
	OpensIntercepted: {act(checks.ActionFixNode, "the listener has to end: programs that start wait for it too")},
	PluginHung: {
		act(checks.ActionDeletePod, "the plugin is a pod's: a new one serves the socket again", ofPod),
		act(checks.ActionFixNode, "the driver has to run on this node, and register with the kubelet",
			seen(func(f *facts.Facts) bool { return len(badPlugins(f)) == 0 })),
		act(checks.ActionFixNode, "the plugin's own unit or process has to answer again"),
	},

	KubeletDown: {
		act(checks.ActionFixNode, "it runs, and something else fails: see the summary",
			seen(func(f *facts.Facts) bool { return f.KubeletState.Runs })),
		act(checks.ActionFixNode, "what it requires has to start first",
			seen(func(f *facts.Facts) bool { return lacks(f.KubeletState.Unit) != nil })),
		act(checks.ActionFixNode, "its last error ends the next start too",
			seen(func(f *facts.Facts) bool {
				return !stoppedInOrder(f.KubeletState.Unit) && facts.Logged(f, signature.KubeletFatal) != nil
			})),
		act(checks.ActionRestartKubelet, "it does not run; containers run on without it"),
	},
	KubeletCrashLooping: {act(checks.ActionFixNode, "each start ends with the same error")},
	KubeletStalled: {
		act(checks.ActionFixNode, logRead, seen(logBlocked(host.RoleKubelet))),
		act(checks.ActionRestartKubelet, "it runs and does nothing; the runtime answers"),
	},
	PLEGUnhealthy:      {act(checks.ActionRestartKubelet, "the runtime answers, and the kubelet's relist stands still")},
	CertificateExpired: {act(checks.ActionFixNode, "a restart finds the same certificate")},
	APIServerUnreachable: {
		act(checks.ActionRestartKubelet, "a kubelet registers its Node object only when it starts", seen(noNodeObject)),
		act(checks.ActionFixCluster, "the way to the API server, or the API server, fails"),
	},
	CgroupDriverMismatch: {act(checks.ActionFixNode, "two settings contradict each other")},

	DiskFull: {
		act(checks.ActionFixNode, "the kubelet's threshold asks for more room than its default: lower it, or make room",
			seen(func(f *facts.Facts) bool {
				return len(f.Disk.Short) > 0 && f.Disk.Short[0].Default != "" && !f.Disk.Short[0].Full
			})),
		act(checks.ActionFixNode, "files have to go: neither a restart nor a reboot removes them"),
	},
	InodesExhausted: {
		act(checks.ActionFixNode, "files have to go: neither a restart nor a reboot removes them"),
	},
	InotifyExhausted: {act(checks.ActionFixNode, "a limit of the kernel has to be raised; that takes effect at once")},
	FilesExhausted: {
		act(checks.ActionRestartRuntime, "the descriptors are its own: a restart closes them",
			seen(usesUp(host.RoleRuntime))),
		act(checks.ActionRestartKubelet, "the descriptors are its own: a restart closes them",
			seen(usesUp(host.RoleKubelet))),
		act(checks.ActionFixNode, "the process that holds them is not known to be replaceable"),
	},
	PIDsExhausted: {
		act(checks.ActionDeletePod, "the pod has the threads", ofPod),
		act(checks.ActionFixNode, "a limit is reached: who has the threads, or the limit, has to change"),
	},
	MemoryPressure: {
		act(checks.ActionDeletePod, "the pod has the memory", ofPod),
		act(checks.ActionFixNode, "a restarted daemon reads everything from the disk and needs more"),
	},
	OOMKilled: {
		act(checks.ActionFixNode, "it may be killed again: its limit, or who takes the memory, has to change",
			func(_ *facts.Facts, x *Finding) bool { return x.Severity == checks.Critical },
			seen(func(f *facts.Facts) bool {
				return f.Calls.Connected && oomHits(f, facts.RoleRuntime) ||
					f.KubeletState.Runs && oomHits(f, facts.RoleKubelet)
			})),
		act(checks.ActionNone, "the kill is over; what follows from it is a cause of its own"),
	},
	CPUStarved: {act(checks.ActionFixNode, "a limit or other processes keep it from the CPUs")},
	IOStall: {
		act(checks.ActionReplaceNode, "the disk fails", seen(func(f *facts.Facts) bool { return len(f.Disk.Failing) > 0 })),
		act(checks.ActionFixNode, "the file system has to be thawed",
			seen(func(f *facts.Facts) bool { return f.Disk.Frozen })),
		act(checks.ActionFixNode, "a limit holds its writes",
			seen(func(f *facts.Facts) bool { return len(f.Disk.Throttled) > 0 })),
		act(checks.ActionWait, "a burst of writes ends by itself; a restart adds reads"),
	},
	FilesystemHung: {
		act(checks.ActionFixCluster, "its server has to answer again; a reboot may hang in the same mount",
			seen(some(silentMounts, func(_ *facts.Facts, m host.Mount) bool {
				return m.Network && !strings.HasPrefix(m.Type, "fuse")
			}))),
		act(checks.ActionFixNode, "the process behind the mount has to answer, or the mount to go"),
	},
	HardwareFault: {act(checks.ActionReplaceNode, "a part of the machine fails")},
	KernelHung: {
		act(checks.ActionWait, "nothing of the runtime or the kubelet is held",
			func(_ *facts.Facts, x *Finding) bool { return x.Severity == checks.Warning }),
		act(checks.ActionRebootNode, "what the kernel holds is reached by no signal"),
	},
	MountsExploded: {act(checks.ActionFixNode, "who makes the mounts makes them again after a reboot")},
	CgroupsLeaked:  {act(checks.ActionRebootNode, "only a new kernel is rid of all of them")},
	SystemdWedged: {
		act(checks.ActionRebootNode, "process 1 does not answer, so it takes no orders",
			summary("does not answer over D-Bus")),
		act(checks.ActionFixNode, "it still answers: failed units can be reset, or systemd be executed anew"),
	},
	ClockJumped: {act(checks.ActionWait, "the kubelet renews its lease and relists by itself")},
}

// act is a remedy for which all conditions must hold.
func act(action checks.Action, why string, when ...ofFinding) remedy {
	return remedy{checks.Remedy{Action: action, Why: why}, when}
}

// seen is a condition of the facts alone.
func seen(c condition) ofFinding {
	return func(f *facts.Facts, _ *Finding) bool { return f != nil && c(f) }
}

// summary holds when the summary has one of the texts.
func summary(texts ...string) ofFinding {
	return func(_ *facts.Facts, x *Finding) bool {
		return slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(x.Summary, s) })
	}
}

// ofPod holds when the culprit is a pod's.
func ofPod(_ *facts.Facts, x *Finding) bool { return x.Subject != nil && x.Subject.Pod != "" }

// usesUp holds when the daemon of a role is near its own limit of open files, and the node is not.
func usesUp(role host.Role) condition {
	return func(f *facts.Facts) bool {
		return facts.Used(f.Seen.Files.Value.System) < f.Limits.Node.LimitCritical &&
			slices.ContainsFunc(f.Usage.Files, func(p host.ProcessFiles) bool { return p.Role == role })
	}
}

// logBlocked is the condition that a daemon waits to write its log.
func logBlocked(role host.Role) condition {
	return func(f *facts.Facts) bool { return outputOf(f, role) != nil }
}

// waitsOnly is for tasks that wait for one kind of thing, and for nothing unknown.
func waitsOnly(kind facts.Wait) func(*facts.Facts, host.BlockedTask) bool {
	return func(_ *facts.Facts, t host.BlockedTask) bool { return facts.WaitOf(t) == kind }
}

// Remedy returns the least that ends a cause by what the facts show, nil for a log alone. root is the code of the cause
// that is to be repaired first, empty if there is none.
func (c *Finding) Remedy(f *facts.Facts, root string) checks.Remedy {
	if root != "" {
		return checks.Remedy{Action: checks.ActionWait, Why: "it ends when " + root + " is repaired"}
	}
	for _, r := range remedies[c.Code] {
		if !slices.ContainsFunc(r.when, func(holds ofFinding) bool { return !holds(f, c) }) {
			return r.Remedy
		}
	}
	return checks.Remedy{Action: checks.ActionFixNode, Why: "kdiag knows no other remedy"} // a test excludes it
}
