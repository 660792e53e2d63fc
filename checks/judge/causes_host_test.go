package judge

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/journal/signature"
)

const gib = 1 << 30

// space changes the file system under runtime, kubelet and logs.
func space(change func(*host.Space)) tweak {
	return seen(func(n *facts.Node) { change(&n.Spaces.Value[0]) })
}

func free(bytes uint64) tweak { return space(func(s *host.Space) { s.Free = bytes }) }

// writes changes the timed writes.
func writes(change func(*host.Writes)) tweak {
	return seen(func(n *facts.Node) { change(&n.Writes.Value[0]) })
}

// TestHealthyHosts holds hosts on which nothing is wrong, however little can be seen of them.
func TestHealthyHosts(t *testing.T) {
	sick := gallery()["../causes/testdata/disk_full"].Node
	for _, tt := range []scenario{
		row("all well", "", seen()),
		row("nothing may be read", "", notSeen),
		row("nobody looked", "", input(func(f *facts.Input) { f.Node = &facts.Node{} })),
		row("no PSI", "",
			seen(func(n *facts.Node) { n.Pressure = facts.Reading[host.Pressure]{Missing: "no such file"} })),
		row("cgroup version 1", "",
			seen(func(n *facts.Node) { n.Cgroups = good(host.Cgroups{Version: 1, Total: 900, Dying: -1}) })),
		row("btrfs has no inodes to count", "", space(func(s *host.Space) { s.Inodes, s.InodesFree = 0, 0 })),
		row("an image as root", "", seen(func(n *facts.Node) { n.Spaces.Value[1].Free = 0 })),
		row("a copy of files on an idle node", "", seen(func(n *facts.Node) {
			n.Pressure.Value.IO, n.Disks.Value[0].WriteAwait = &host.Stall{Some: some(99), Full: some(98)}, 300*time.Millisecond
		})),
		row("batch work on all CPUs", "", seen(func(n *facts.Node) { n.Pressure.Value.CPU.Some = some(99) })),
		row("a container that reclaims at its limit", "",
			seen(func(n *facts.Node) { n.Pressure.Value.Memory.Full = some(12) })),
		row("no NTP client", "", seen(func(n *facts.Node) { n.Clock.Value.Synchronised = false })),
		row("a clock that was set at boot", "", seen(),
			said(signs(signature.ClockChanged, 1, 5*time.Minute, 5*time.Minute, "Time has been changed"))),
		row("a mount that a user may not ask", "",
			seen(func(n *facts.Node) { n.Mounts.Value.Probed[0].Err = "permission denied" })),
		row("a tmpfs with little left", "",
			space(func(s *host.Space) { s.Type, s.Size, s.Free = "tmpfs", gib, 60<<20 })),
		row("eviction by space is turned off", "", seen(func(n *facts.Node) {
			n.Settings.Value.EvictionOff, n.Spaces.Value[0].Free = []string{"imagefs.available", "nodefs.available"}, 10*gib
		})),
		row("no kubelet runs that would evict", "", seen(func(n *facts.Node) {
			n.Settings = facts.Reading[kubelet.Settings]{Skipped: true, Missing: "no kubelet runs here"}
			n.Spaces.Value[0].Free, n.Spaces.Value[0].InodesFree = 12*gib, 4_000_000
		})),
		row("no limits", "", seen(func(n *facts.Node) {
			n.PIDs.Value.PIDMax, n.PIDs.Value.ThreadsMax, n.Files.Value.Processes[0].Max = 0, 0, 0
			n.Inotify.Value.MaxInstances, n.Inotify.Value.MaxWatches = 0, 0
		})),
		row("another user's inotify", "", seen(func(n *facts.Node) {
			n.Inotify.Value.Users = append(n.Inotify.Value.Users, host.InotifyUser{UID: 1000, Instances: 128})
		})),
		row("the host of a simulated runtime", "", askedBy(crictl.SourceSimulated),
			input(func(f *facts.Input) { f.Node = sick })),
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := finds(node(tt.tweaks...)); got != string(checks.Healthy) {
				t.Error(got)
			}
		})
	}
}

// TestDisks tries the thresholds for file systems and disks from both sides.
func TestDisks(t *testing.T) {
	inodes := func(n uint64) tweak { return space(func(s *host.Space) { s.InodesFree = n }) }
	evict := func(written string, bytes uint64) tweak {
		return seen(func(n *facts.Node) {
			n.Settings.Value.EvictionHard = map[string]string{"imagefs.available": written}
			n.Spaces.Value[0].Free = bytes
		})
	}
	timed := func(d time.Duration) tweak { return writes(func(w *host.Writes) { w.Times = times10(d) }) }
	psi := func(full float64, await time.Duration) tweak {
		return seen(func(n *facts.Node) {
			n.Writes = facts.Reading[[]host.Writes]{Skipped: true}
			n.Pressure.Value.IO.Full, n.Disks.Value[0].WriteAwait = some(full), await
		})
	}
	logs := func(bytes uint64) tweak {
		return seen(func(n *facts.Node) {
			n.Spaces.Value[0].Folders = disk().Folders[1:]
			n.Spaces.Value = append(n.Spaces.Value, host.Space{
				Folders: disk().Folders[:1], Mount: "/var/log", Type: "ext4", Size: 20 * gib, Free: bytes,
			})
		})
	}
	mount := func(change func(*host.Mount)) tweak {
		return seen(func(n *facts.Node) { change(&n.Mounts.Value.Probed[0]) })
	}
	state := host.Space{
		Folders: []host.Folder{{Path: "/run/containerd", Role: host.FolderState}}, Mount: "/run", Type: "tmpfs",
		Size: gib, Free: gib / 2, ReadOnly: true,
	}
	judgeAll(t, []scenario{
		row("logs apart from the kubelet, below its 10%", "healthy", logs(gib+1)),
		row("logs apart from the kubelet, and full", "DiskFull!", logs(0)),
		row("imagefs at 15%", "healthy", free(30*gib)),
		row("imagefs below 15%", "DiskFull", free(30*gib-1)),
		row("a gibibyte is left of 200", "DiskFull", free(gib)),
		row("less than a gibibyte is left of 200", "DiskFull!", free(gib-1)),
		row("threshold in bytes, at", "healthy", evict("20Gi", 20*gib)),
		row("threshold in bytes, below", "DiskFull", evict("20Gi", 20*gib-1)),
		row("threshold in percent, at", "healthy", evict("5%", 10*gib)),
		row("threshold in percent, below", "DiskFull", evict("5%", 10*gib-1)),
		row("inodes at 5%", "healthy", inodes(5_000_000)),
		row("inodes below 5%", "InodesExhausted", inodes(4_999_999)),
		row("10,000 inodes left", "InodesExhausted", inodes(10_000)),
		row("fewer than 10,000 inodes left", "InodesExhausted!", inodes(9_999)),
		row("XFS makes its inodes of space, and has none", "DiskFull!",
			space(func(s *host.Space) { s.Free, s.InodesFree = 0, 0 })),
		row("XFS refuses a write for want of space", "DiskFull!", seen(func(n *facts.Node) {
			n.Spaces.Value[0].Free, n.Spaces.Value[0].InodesFree = 0, 0
			n.Writes.Value[0] = host.Writes{Folder: disk().Folders[1], Mount: "/var", Err: "no space left on device"}
		})),
		row("ext4 has neither", "InodesExhausted!; DiskFull!",
			space(func(s *host.Space) { s.Type, s.Free, s.InodesFree = "ext4", 0, 0 })),
		row("the state is read-only", "IOStall!", seen(func(n *facts.Node) { n.Spaces.Value[0] = state })),
		row("writes below 100ms", "healthy", timed(99*time.Millisecond)),
		row("writes at 100ms", "IOStall", timed(100*time.Millisecond)),
		row("writes below 1 s", "IOStall", timed(999*time.Millisecond)),
		row("writes at 1 s", "IOStall!", timed(time.Second)),
		row("one write of 1 s", "IOStall", writes(func(w *host.Writes) { w.Times[4] = time.Second })),
		row("one write of less", "healthy", writes(func(w *host.Writes) { w.Times[4] = 999 * time.Millisecond })),
		row("a write hangs", "IOStall!", writes(func(w *host.Writes) { w.Hung, w.Waiting = true, 5*time.Second })),
		row("no writes timed, pressure alone", "healthy", psi(80, 99*time.Millisecond)),
		row("no writes timed, a slow disk alone", "healthy", psi(19, time.Second)),
		row("no writes timed, both", "IOStall", psi(20, 100*time.Millisecond)),
		row("the disk of somebody else", "healthy", psi(90, time.Second),
			input(func(f *facts.Input) { f.Node.Disks.Value[0].Folders = nil })),
		row("a mount hangs for long", "FilesystemHung!",
			mount(func(m *host.Mount) { m.Hung, m.Waiting = true, 30*time.Second })),
		row("a mount is stale", "FilesystemHung", mount(func(m *host.Mount) { m.Err = "stale file handle" })),
		row("no server of FUSE", "FilesystemHung",
			mount(func(m *host.Mount) { m.Err = "statfs: transport endpoint is not connected" })),
		row("a mount hangs, and nobody's", "FilesystemHung", mount(func(m *host.Mount) {
			m.Hung, m.Waiting, m.PodUID, m.Driver, m.Point = true, time.Minute, "", "", "/mnt/backup"
		})),
		row("the runtime's own disk hangs", "FilesystemHung!",
			space(func(s *host.Space) { s.Hung, s.Waiting = true, time.Minute })),
	})
	for waiting, certain := range map[time.Duration]bool{30 * time.Second: true, 29 * time.Second: false} {
		c := only(t, node(mount(func(m *host.Mount) { m.Hung, m.Waiting = true, waiting })), "FilesystemHung")
		if (c.Confidence == checks.Certain) != certain {
			t.Errorf("silent for %s: confidence %v", waiting, c.Confidence)
		}
	}
}

// TestMemoryAndLimits tries the thresholds for memory, limits, counts and the clock.
func TestMemoryAndLimits(t *testing.T) {
	memory := func(total, available uint64, full float64) tweak {
		return seen(func(n *facts.Node) {
			n.Memory.Value, n.Pressure.Value.Memory.Full = host.Memory{Total: total, Available: available}, some(full)
		})
	}
	throttled := func(of uint64) tweak {
		return seen(func(n *facts.Node) {
			n.Cgroups.Value.Throttled = []host.Throttling{
				{Path: "/system.slice", Periods: 100, Throttled: of, Over: 10 * time.Second},
			}
		})
	}
	threads := func(tasks int) tweak {
		return seen(func(n *facts.Node) { n.PIDs.Value.Tasks, n.PIDs.Value.PIDMax = tasks, 10_000 })
	}
	group := func(current uint64, o host.Owner) tweak {
		return seen(func(n *facts.Node) {
			n.PIDs.Value.Cgroups = []host.CgroupUsage{
				{Path: "/x", Usage: host.Usage{Current: current, Max: 1000}, Owner: o},
			}
		})
	}
	files := func(open uint64) tweak {
		return seen(func(n *facts.Node) { n.Files.Value.Processes[0].Usage = host.Usage{Current: open, Max: 1000} })
	}
	inotify := func(most uint64, instances, watches int) tweak {
		return seen(func(n *facts.Node) {
			n.Inotify.Value = host.Inotify{
				MaxInstances: most, MaxWatches: 1000,
				Users: []host.InotifyUser{{Instances: instances, Watches: watches}},
			}
		})
	}
	cgroups := func(version, total, dying, memory int) tweak {
		return seen(func(n *facts.Node) {
			n.Cgroups.Value = host.Cgroups{
				Version: version, Total: total, Dying: dying, ByController: map[string]int{"memory": memory},
			}
		})
	}
	mounts := func(n int) tweak { return seen(func(node *facts.Node) { node.Mounts.Value.Total = n }) }
	jump := func(d time.Duration) tweak { return seen(func(n *facts.Node) { n.Clock.Value.Jumped = d }) }
	judgeAll(t, []scenario{
		row("memory at the threshold", "healthy", memory(32*gib, 100<<20, 0)),
		row("memory below the threshold", "MemoryPressure", memory(32*gib, 100<<20-1, 0)),
		row("low memory, pressure below 5", "healthy", memory(32*gib, 2*gib, 4.9)),
		row("low memory, pressure at 5", "MemoryPressure", memory(32*gib, 2*gib, 5)),
		row("low memory, pressure at 20", "MemoryPressure!", memory(32*gib, 2*gib, 20)),
		row("4 GiB of a large machine, pressure at 5", "healthy", memory(1<<40, 4*gib, 5)),
		row("less than 4 GiB of a large machine, pressure at 5", "MemoryPressure", memory(1<<40, 4*gib-1, 5)),
		row("much memory, pressure below 20", "healthy", memory(32*gib, 20*gib, 19.9)),
		row("much memory, pressure at 20", "MemoryPressure", memory(32*gib, 20*gib, 20)),
		row("evicting and pressure at 5", "MemoryPressure!", memory(32*gib, 90<<20, 5)),
		row("throttled below a quarter", "healthy", throttled(24)),
		row("throttled in a quarter", "CPUStarved", throttled(25)),
		row("throttled in three quarters", "CPUStarved!", throttled(75)),
		row("threads below 80%", "healthy", threads(7_999)),
		row("threads at 80%", "PIDsExhausted", threads(8_000)),
		row("threads at 90%", "PIDsExhausted!", threads(9_000)),
		row("a unit at 90%", "PIDsExhausted!", group(900, host.Owner{Unit: "containerd.service"})),
		row("a pod at its limit", "PIDsExhausted", group(1000, host.Owner{PodUID: "uid-1"})),
		row("files below 80%", "healthy", files(799)),
		row("files at 80%", "FilesExhausted", files(800)),
		row("files at 90%", "FilesExhausted!", files(900)),
		row("files of the node at 90%", "FilesExhausted!",
			seen(func(n *facts.Node) { n.Files.Value.System = host.Usage{Current: 90, Max: 100} })),
		row("inotify below 80%", "healthy", inotify(100, 79, 799)),
		row("instances at 80%", "InotifyExhausted", inotify(100, 80, 0)),
		row("instances at 90%", "InotifyExhausted!", inotify(100, 90, 0)),
		row("watches at 90%", "InotifyExhausted!", inotify(100, 0, 900)),
		row("instances at 90% of many", "InotifyExhausted", inotify(8192, 7400, 0)),
		row("mounts below 10,000", "healthy", mounts(9_999)),
		row("10,000 mounts", "MountsExploded", mounts(10_000)),
		row("30,000 mounts", "MountsExploded!", mounts(30_000)),
		row("cgroups below 10,000", "healthy", cgroups(2, 9_999, 9_999, 0)),
		row("10,000 cgroups", "CgroupsLeaked", cgroups(2, 10_000, 0, 0)),
		row("10,000 dying", "CgroupsLeaked", cgroups(2, 500, 10_000, 0)),
		row("60,000 cgroups", "CgroupsLeaked!", cgroups(2, 60_000, 0, 0)),
		row("60,000 of memory in version 1", "CgroupsLeaked", cgroups(1, 60_000, -1, 60_000)),
		row("the clock went less than a second", "healthy", jump(-999*time.Millisecond)),
		row("the clock went back a second", "ClockJumped", jump(-time.Second)),
	})
}

// shortOfMemory is a node of 100 GiB with little left, and its consumers.
func shortOfMemory(h host.Consumers) tweak {
	return seen(func(n *facts.Node) {
		n.Memory.Value = host.Memory{Total: 100 * gib, Available: 90 << 20}
		n.Pressure.Value.Memory.Full = some(6)
		n.Holders = good(h)
	})
}

// shortOfPIDs is a node with 1,000 processes, which is its limit, and its consumers.
func shortOfPIDs(h host.Consumers) tweak {
	return seen(func(n *facts.Node) {
		n.PIDs.Value.Tasks, n.PIDs.Value.PIDMax = 1000, 1000
		n.Holders = good(h)
	})
}

// group is the control group of a pod that has so much.
func group(uid string, has uint64) host.Consumer {
	return host.Consumer{
		Path: "/kubepods/pod" + uid, Dir: "/sys/fs/cgroup/kubepods/pod" + uid,
		Usage: host.Usage{Current: has}, Owner: host.Owner{PodUID: uid},
	}
}

// unit is the control group of a unit that has so much.
func unit(name string, has uint64) host.Consumer {
	return host.Consumer{Path: "/system.slice/" + name, Usage: host.Usage{Current: has}, Owner: host.Owner{Unit: name}}
}

// TestConsumers holds which consumers of memory and processes are named, and who of them as the culprit.
func TestConsumers(t *testing.T) {
	memory := func(all ...host.Consumer) tweak { return shortOfMemory(host.Consumers{Memory: all}) }
	resident := func(bytes uint64, groups ...host.Consumer) tweak {
		java := host.ResidentMemory{PID: 7, Name: "java", Bytes: bytes, Owner: host.Owner{PodUID: "uid-1"}}
		return shortOfMemory(host.Consumers{Memory: groups, Resident: []host.ResidentMemory{java}})
	}
	crowd := func(n, pid int, parent string) host.ProcessGroup {
		return host.ProcessGroup{Name: "sh", Processes: n, Threads: n, PID: pid, Parent: parent}
	}
	crowds := func(all ...host.ProcessGroup) tweak { return shortOfPIDs(host.Consumers{ProcessGroups: all}) }
	pids := func(all ...host.Consumer) tweak { return shortOfPIDs(host.Consumers{PIDs: all}) }
	limit := func(path, unit string) tweak { // in place of the node's
		return func(f *facts.Input) {
			f.Node.PIDs.Value.Tasks, f.Node.PIDs.Value.Cgroups = 1, []host.CgroupUsage{{
				Path: path, Usage: host.Usage{Current: 1000, Max: 1000}, Owner: host.Owner{Unit: unit},
			}}
		}
	}
	stalled := []host.StalledGroup{
		{Path: "/x", Full: some(5), Owner: host.Owner{PodUID: "uid-2"}}, {Path: "/y", Full: some(4.9)},
	}
	zombies := []host.ZombieParent{{PID: 8, Name: "node", Count: 1000}}
	for _, tt := range []scenario{ // the subject, then the others
		row("a pod with a tenth", "Cgroup checkout-1", memory(group("uid-1", 10*gib))),
		row("a pod with less", "Node memory, Cgroup checkout-1", memory(group("uid-1", 10*gib-1))),
		row("one of a hundred like pods", "Node memory", memory(group("uid-1", gib-1))),
		row("a unit with a tenth", "Unit etcd.service", memory(unit("etcd.service", 10*gib))),
		row("a unit with less", "Node memory", memory(unit("etcd.service", 10*gib-1))),
		row("a pod and its process", "Cgroup checkout-1, Process java", resident(19*gib, group("uid-1", 20*gib))),
		row("a process, and groups that are not known", "Process java", resident(19*gib)),
		row("a small pod and a large process", "Process java, Cgroup checkout-2",
			resident(19*gib, group("uid-2", 9*gib))),
		row("a process with less", "Node memory", resident(10*gib-1)),
		row("plenty is available", "Cgroup checkout-2", seen(func(n *facts.Node) {
			n.Pressure.Value.Memory.Full = some(20)
			n.Holders = good(host.Consumers{Memory: []host.Consumer{group("uid-1", 20*gib)}, Stalled: stalled})
		})),
		row("a pod of the node's processes", "Cgroup checkout-1", pids(group("uid-1", 100))),
		row("a pod with less of them", "Node process table, Cgroup checkout-1", pids(group("uid-1", 99))),
		row("a parent of many", "Process cron", crowds(crowd(100, 7, "cron"))),
		row("a name", "Process sh", crowds(crowd(100, 0, ""))),
		row("a name with fewer", "Node process table", crowds(crowd(99, 0, ""))),
		row("a parent of zombies, and another", "Process cron", crowds(crowd(500, 8, "node"), crowd(400, 7, "cron")),
			input(func(f *facts.Input) {
				f.Node.Tasks.Value.Zombies, f.Node.Tasks.Value.ZombiesByParent = 1000, zombies
			})),
		row("all pods at their limit", "Cgroup checkout-1, Cgroup /kubepods", pids(group("uid-1", 900)),
			limit("/kubepods", "")),
		row("a unit at its limit", "Unit etcd.service, Process cron", crowds(crowd(900, 7, "cron")),
			limit("/s", "etcd.service")),
	} {
		t.Run(tt.name, func(t *testing.T) {
			named := Judge(node(tt.tweaks...))
			if len(named) != 1 {
				t.Fatalf("%d causes: %q", len(named), codes(named))
			}
			var got []string
			for _, s := range append([]checks.Subject{*named[0].Subject}, named[0].Related...) {
				name := cmp.Or(s.Name, s.ID)
				if s.Kind == "Cgroup" {
					name = cmp.Or(s.Pod, name)
				}
				got = append(got, s.Kind+" "+name)
			}
			if got := strings.Join(got, ", "); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}
