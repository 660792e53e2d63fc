package judge

import (
	"cmp"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

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
		row("a laptop that slept", "", seen(func(n *facts.Node) { n.Clock.Value.Suspended = 90 * time.Hour })),
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
		row("logs apart from the kubelet, and full", "unhealthy: DiskFull critical", logs(0)),
		row("imagefs at 15%", "healthy", free(30*gib)),
		row("imagefs below 15%", "degraded: DiskFull warning", free(30*gib-1)),
		row("a gibibyte is left of 200", "degraded: DiskFull warning", free(gib)),
		row("less than a gibibyte is left of 200", "unhealthy: DiskFull critical", free(gib-1)),
		row("threshold in bytes, at", "healthy", evict("20Gi", 20*gib)),
		row("threshold in bytes, below", "degraded: DiskFull warning", evict("20Gi", 20*gib-1)),
		row("threshold in percent, at", "healthy", evict("5%", 10*gib)),
		row("threshold in percent, below", "degraded: DiskFull warning", evict("5%", 10*gib-1)),
		row("inodes at 5%", "healthy", inodes(5_000_000)),
		row("inodes below 5%", "degraded: InodesExhausted warning", inodes(4_999_999)),
		row("10,000 inodes left", "degraded: InodesExhausted warning", inodes(10_000)),
		row("fewer than 10,000 inodes left", "unhealthy: InodesExhausted critical", inodes(9_999)),
		row("XFS makes its inodes of space, and has none", "unhealthy: DiskFull critical",
			space(func(s *host.Space) { s.Free, s.InodesFree = 0, 0 })),
		row("XFS refuses a write for want of space", "unhealthy: DiskFull critical", seen(func(n *facts.Node) {
			n.Spaces.Value[0].Free, n.Spaces.Value[0].InodesFree = 0, 0
			n.Writes.Value[0] = host.Writes{Folder: disk().Folders[1], Mount: "/var", Err: "no space left on device"}
		})),
		row("ext4 has neither", "unhealthy: InodesExhausted critical; DiskFull critical",
			space(func(s *host.Space) { s.Type, s.Free, s.InodesFree = "ext4", 0, 0 })),
		row("the state is read-only", "unhealthy: IOStall critical",
			seen(func(n *facts.Node) { n.Spaces.Value[0] = state })),
		row("writes below 100ms", "healthy", timed(99*time.Millisecond)),
		row("writes at 100ms", "degraded: IOStall warning", timed(100*time.Millisecond)),
		row("writes below 1 s", "degraded: IOStall warning", timed(999*time.Millisecond)),
		row("writes at 1 s", "unhealthy: IOStall critical", timed(time.Second)),
		row("one write of 1 s", "degraded: IOStall warning", writes(func(w *host.Writes) { w.Times[4] = time.Second })),
		row("one write of less", "healthy", writes(func(w *host.Writes) { w.Times[4] = 999 * time.Millisecond })),
		row("a write hangs", "unhealthy: IOStall critical",
			writes(func(w *host.Writes) { w.Hung, w.Waiting = true, 5*time.Second })),
		row("no writes timed, pressure alone", "healthy", psi(80, 99*time.Millisecond)),
		row("no writes timed, a slow disk alone", "healthy", psi(19, time.Second)),
		row("no writes timed, both", "degraded: IOStall warning", psi(20, 100*time.Millisecond)),
		row("the disk of somebody else", "healthy", psi(90, time.Second),
			input(func(f *facts.Input) { f.Node.Disks.Value[0].Folders = nil })),
		row("a mount hangs for long", "unhealthy: FilesystemHung critical",
			mount(func(m *host.Mount) { m.Hung, m.Waiting = true, 30*time.Second })),
		row("a mount is stale", "degraded: FilesystemHung warning",
			mount(func(m *host.Mount) { m.Err = "stale file handle" })),
		row("no server of FUSE", "degraded: FilesystemHung warning",
			mount(func(m *host.Mount) { m.Err = "statfs: transport endpoint is not connected" })),
		row("a mount hangs, and nobody's", "degraded: FilesystemHung warning", mount(func(m *host.Mount) {
			m.Hung, m.Waiting, m.PodUID, m.Driver, m.Point = true, time.Minute, "", "", "/mnt/backup"
		})),
		row("the runtime's own disk hangs", "unhealthy: FilesystemHung critical",
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
				MaxInstances: most,
				MaxWatches:   1000,
				Users:        []host.InotifyUser{{Instances: instances, Watches: watches}},
			}
		})
	}
	cgroups := func(version, total, dying, memory int) tweak {
		return seen(func(n *facts.Node) {
			n.Cgroups.Value = host.Cgroups{
				Version:      version,
				Total:        total,
				Dying:        dying,
				ByController: map[string]int{"memory": memory},
			}
		})
	}
	mounts := func(n int) tweak { return seen(func(node *facts.Node) { node.Mounts.Value.Total = n }) }
	jump := func(d time.Duration) tweak { return seen(func(n *facts.Node) { n.Clock.Value.Jumped = d }) }
	judgeAll(t, []scenario{
		row("memory at the threshold", "healthy", memory(32*gib, 100<<20, 0)),
		row("memory below the threshold", "degraded: MemoryPressure warning", memory(32*gib, 100<<20-1, 0)),
		row("low memory, pressure below 5", "healthy", memory(32*gib, 2*gib, 4.9)),
		row("low memory, pressure at 5", "degraded: MemoryPressure warning", memory(32*gib, 2*gib, 5)),
		row("low memory, pressure at 20", "unhealthy: MemoryPressure critical", memory(32*gib, 2*gib, 20)),
		row("4 GiB of a large machine, pressure at 5", "healthy", memory(1<<40, 4*gib, 5)),
		row("less than 4 GiB of a large machine, pressure at 5", "degraded: MemoryPressure warning",
			memory(1<<40, 4*gib-1, 5)),
		row("much memory, pressure below 20", "healthy", memory(32*gib, 20*gib, 19.9)),
		row("much memory, pressure at 20", "degraded: MemoryPressure warning", memory(32*gib, 20*gib, 20)),
		row("evicting and pressure at 5", "unhealthy: MemoryPressure critical", memory(32*gib, 90<<20, 5)),
		row("throttled below a quarter", "healthy", throttled(24)),
		row("throttled in a quarter", "degraded: CPUStarved warning", throttled(25)),
		row("throttled in three quarters", "unhealthy: CPUStarved critical", throttled(75)),
		row("threads below 80%", "healthy", threads(7_999)),
		row("threads at 80%", "degraded: PIDsExhausted warning", threads(8_000)),
		row("threads at 90%", "unhealthy: PIDsExhausted critical", threads(9_000)),
		row("a unit at 90%", "unhealthy: PIDsExhausted critical", group(900, host.Owner{Unit: "containerd.service"})),
		row("a pod at its limit", "degraded: PIDsExhausted warning", group(1000, host.Owner{PodUID: "uid-1"})),
		row("files below 80%", "healthy", files(799)),
		row("files at 80%", "degraded: FilesExhausted warning", files(800)),
		row("files at 90%", "unhealthy: FilesExhausted critical", files(900)),
		row("files of the node at 90%", "unhealthy: FilesExhausted critical",
			seen(func(n *facts.Node) { n.Files.Value.System = host.Usage{Current: 90, Max: 100} })),
		row("inotify below 80%", "healthy", inotify(100, 79, 799)),
		row("instances at 80%", "degraded: InotifyExhausted warning", inotify(100, 80, 0)),
		row("instances at 90%", "unhealthy: InotifyExhausted critical", inotify(100, 90, 0)),
		row("watches at 90%", "unhealthy: InotifyExhausted critical", inotify(100, 0, 900)),
		row("instances at 90% of many", "degraded: InotifyExhausted warning", inotify(8192, 7400, 0)),
		row("mounts below 10,000", "healthy", mounts(9_999)),
		row("10,000 mounts", "degraded: MountsExploded warning", mounts(10_000)),
		row("30,000 mounts", "unhealthy: MountsExploded critical", mounts(30_000)),
		row("cgroups below 10,000", "healthy", cgroups(2, 9_999, 9_999, 0)),
		row("10,000 cgroups", "degraded: CgroupsLeaked warning", cgroups(2, 10_000, 0, 0)),
		row("10,000 dying", "degraded: CgroupsLeaked warning", cgroups(2, 500, 10_000, 0)),
		row("60,000 cgroups", "unhealthy: CgroupsLeaked critical", cgroups(2, 60_000, 0, 0)),
		row("60,000 of memory in version 1", "degraded: CgroupsLeaked warning", cgroups(1, 60_000, -1, 60_000)),
		row("the clock went less than a second", "healthy", jump(-999*time.Millisecond)),
		row("the clock went back a second", "degraded: ClockJumped warning", jump(-time.Second)),
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
	limit := func(c host.CgroupUsage, h host.Consumers) tweak {
		c.Usage = host.Usage{Current: 1000, Max: 1000}
		return seen(func(n *facts.Node) { n.PIDs.Value.Cgroups, n.Holders = []host.CgroupUsage{c}, good(h) })
	}
	stalled := []host.StalledGroup{
		{Path: "/x", Full: some(5), Owner: host.Owner{PodUID: "uid-2"}},
		{Path: "/y", Full: some(4.9)},
	}
	zombies := []host.ZombieParent{{PID: 8, Name: "node", Count: 1000}}
	for _, tt := range []struct {
		name  string
		tweak tweak
		want  []string // the subject, then the others
	}{
		{"a pod with a tenth", memory(group("uid-1", 10*gib)), []string{"Cgroup checkout-1"}},
		{"a pod with less", memory(group("uid-1", 10*gib-1)), []string{"Node memory", "Cgroup checkout-1"}},
		{"one of a hundred like pods", memory(group("uid-1", gib-1)), []string{"Node memory"}},
		{"a unit with a tenth", memory(unit("etcd.service", 10*gib)), []string{"Unit etcd.service"}},
		{"a unit with less", memory(unit("etcd.service", 10*gib-1)), []string{"Node memory"}},
		{
			"a pod and its process", resident(19*gib, group("uid-1", 20*gib)),
			[]string{"Cgroup checkout-1", "Process java"},
		},
		{"a process, and groups that are not known", resident(19 * gib), []string{"Process java"}},
		{
			"a small pod and a large process", resident(19*gib, group("uid-2", 9*gib)),
			[]string{"Process java", "Cgroup checkout-2"},
		},
		{"a process with less", resident(10*gib - 1), []string{"Node memory"}},
		{"plenty is available", seen(func(n *facts.Node) {
			n.Pressure.Value.Memory.Full = some(20)
			n.Holders = good(host.Consumers{Memory: []host.Consumer{group("uid-1", 20*gib)}, Stalled: stalled})
		}), []string{"Cgroup checkout-2"}},
		{
			"a pod of the node's processes", shortOfPIDs(host.Consumers{PIDs: []host.Consumer{group("uid-1", 100)}}),
			[]string{"Cgroup checkout-1"},
		},
		{
			"a pod with less of them", shortOfPIDs(host.Consumers{PIDs: []host.Consumer{group("uid-1", 99)}}),
			[]string{"Node process table", "Cgroup checkout-1"},
		},
		{"a parent of many", crowds(crowd(100, 7, "cron")), []string{"Process cron"}},
		{"a name", crowds(crowd(100, 0, "")), []string{"Process sh"}},
		{"a name with fewer", crowds(crowd(99, 0, "")), []string{"Node process table"}},
		{"a parent of zombies, and another", func(f *facts.Input) {
			crowds(crowd(500, 8, "node"), crowd(400, 7, "cron"))(f)
			f.Node.Tasks.Value.Zombies, f.Node.Tasks.Value.ZombiesByParent = 1000, zombies
		}, []string{"Process cron"}},
		{
			"all pods at their limit",
			limit(host.CgroupUsage{Path: "/kubepods"}, host.Consumers{PIDs: []host.Consumer{group("uid-1", 900)}}),
			[]string{"Cgroup checkout-1", "Cgroup /kubepods"},
		},
		{
			"a unit at its limit",
			limit(host.CgroupUsage{Path: "/s", Owner: host.Owner{Unit: "etcd.service"}}, host.Consumers{ProcessGroups: []host.ProcessGroup{crowd(900, 7, "cron")}}),
			[]string{"Unit etcd.service", "Process cron"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			named := Judge(node(tt.tweak))
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
			if diff := gocmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// freeze replaces the frozen control groups.
func freeze(list ...host.FrozenCgroup) func(*facts.Node) {
	return func(n *facts.Node) { n.Cgroups.Value.Frozen = list }
}

// TestStuck holds tasks, shims, frozen groups and systemd, and who is whose root.
func TestStuck(t *testing.T) {
	local := host.BlockedTask{
		PID:   7020,
		TID:   7020,
		Name:  "postgres",
		Wchan: "jbd2_log_wait_commit",
		Owner: frozenPod().Owner,
	}
	other := onNFS()
	other.Owner = host.Owner{Unit: "cron.service"}
	frozenTask, sleeper, busy := local, local, frozenPod()
	frozenTask.Wchan, sleeper.Wchan, busy.Freezing = "__refrigerator", "hrtimer_nanosleep", true
	above := func(top, inner string) tweak {
		return surfaces(
			freeze(host.FrozenCgroup{Path: top, Self: true}, host.FrozenCgroup{Path: inner, Tasks: 3, Owner: frozenPod().Owner}))
	}
	frozenAs := func(path string, o host.Owner) tweak {
		return surfaces(freeze(host.FrozenCgroup{Path: path, Self: true, Tasks: 14, Owner: o}))
	}
	runtimeUnit := host.Owner{Unit: "containerd.service", Role: host.RoleRuntime}
	slice := []host.FrozenCgroup{
		{Path: "/system.slice", Self: true},
		{Path: "/system.slice/containerd.service", Tasks: 9, Owner: runtimeUnit},
	}
	container := statusHangs("container1-0")
	refused := health(func(h *kubelet.Health) {
		*h.Ping = kubelet.Answer{URL: "http://127.0.0.1:10248/healthz", Err: "connection refused"}
	})
	judgeAll(t, []scenario{
		row("a busy disk", "healthy", surfaces(blocked(local))),
		row("a busy file server", "healthy", surfaces(blocked(onNFS()))),
		row("a dead mount, and who waits in it",
			"unhealthy: FilesystemHung critical; TaskStuck warning < FilesystemHung",
			surfaces(deadMount, blocked(onNFS()))),
		row("a dead mount, a task, a status call",
			"unhealthy: FilesystemHung critical; TaskStuck critical < FilesystemHung; InspectHang critical < TaskStuck",
			surfaces(deadMount, blocked(onNFS())), container),
		row("a home folder that no pod uses, and a runtime that hangs",
			"unhealthy: RuntimeHung critical; FilesystemHung warning", surfaces(homeFolder), hangs(everyRPC()...)),
		row("a home folder, and a kubelet that never came up",
			"unhealthy: FilesystemHung critical; KubeletStalled critical < FilesystemHung",
			surfaces(homeFolder, refused)),
		row("a task and the status of another pod",
			"unhealthy: FilesystemHung critical; InspectHang critical; TaskStuck warning < FilesystemHung",
			surfaces(deadMount, blocked(onNFS())), statusHangs("container2-0")),
		row("a task of nobody's", "unhealthy: InspectHang critical", surfaces(blocked(other)), container),
		row("a local wait and a status call", "unhealthy: TaskStuck critical; InspectHang critical < TaskStuck",
			surfaces(blocked(local)), container),
		row("the kernel reports it", "degraded: KernelHung warning; TaskStuck warning < KernelHung",
			surfaces(blocked(local)),
			said(signs(signature.HungTask, 2, 9*time.Minute, time.Minute, "INFO: task postgres:7020 blocked for more than 120 seconds.", "postgres:7020"))),
		row("a frozen task", "unhealthy: CgroupFrozen critical; InspectHang critical < CgroupFrozen",
			surfaces(blocked(frozenTask), freeze(frozenPod())), container),
		row("frozen", "degraded: CgroupFrozen warning", surfaces(freeze(frozenPod()))),
		row("frozen from above all pods", "unhealthy: CgroupFrozen critical",
			above("/all", "/all/kubepods/pod1/container1-0")),
		row("its pod is frozen", "degraded: CgroupFrozen warning",
			above("/kubepods/pod1", "/kubepods/pod1/container1-0")),
		row("its pod is frozen, and its status hangs",
			"unhealthy: CgroupFrozen critical; InspectHang critical < CgroupFrozen",
			above("/kubepods/pod1", "/kubepods/pod1/container1-0"), container),
		row("the runtime's slice is frozen", "unhealthy: CgroupFrozen critical; RuntimeHung critical < CgroupFrozen",
			surfaces(freeze(slice...)), hangs(everyRPC()...)),
		row("a task that slept when it was frozen",
			"unhealthy: CgroupFrozen critical; InspectHang critical < CgroupFrozen",
			surfaces(blocked(sleeper), freeze(frozenPod())), container),
		row("a task that slept when all pods were frozen",
			"unhealthy: CgroupFrozen critical; InspectHang critical < CgroupFrozen",
			surfaces(blocked(sleeper), freeze(host.FrozenCgroup{Path: "/kubepods", Self: true, Tasks: 900})),
			container),
		row("a task that keeps its group from freezing",
			"unhealthy: CgroupFrozen critical; TaskStuck critical < CgroupFrozen; InspectHang critical < TaskStuck",
			surfaces(blocked(local), freeze(busy)), container),
		row("frozen and empty", "healthy",
			surfaces(freeze(host.FrozenCgroup{Path: frozenPod().Path, Self: true, Owner: frozenPod().Owner}))),
		row("a user's session", "healthy", frozenAs("/user.slice/user-1000.slice", host.Owner{})),
		row("a container of docker's own", "healthy",
			frozenAs("/system.slice/docker-abc.scope", host.Owner{ObjectID: "abc"})),
		row("a container of unknown owner, the runtime is down",
			"unhealthy: RuntimeDown critical; CgroupFrozen warning",
			frozenAs("/system.slice/docker-abc.scope", host.Owner{ObjectID: "abc"}),
			socket(crictl.ConnectRefused, "refused")),
		row("a container without a kubelet", "degraded: CgroupFrozen warning",
			frozenAs("/k8s.io/container1-0", host.Owner{ObjectID: "container1-0"})),
		row("all pods", "unhealthy: CgroupFrozen critical", frozenAs("/kubepods.slice", host.Owner{})),
		row("the runtime's group", "unhealthy: CgroupFrozen critical; RuntimeHung critical < CgroupFrozen",
			frozenAs("/system.slice/containerd.service", runtimeUnit), hangs(everyRPC()...)),
	})
}

// TestShimsAndSystemd holds stopped and missing shims, and systemd.
func TestShimsAndSystemd(t *testing.T) {
	stopped := surfaces(func(n *facts.Node) { n.Tasks.Value.Stopped = []host.Process{shimProcess('T')} })
	shims := func(list ...host.Process) tweak {
		return processesOf(append([]host.Process{daemonProcess(), kubeletProcess('S')}, list...)...)
	}
	shim := func(id string, state byte, age time.Duration) host.Process {
		return host.Process{
			PID:      6000,
			Name:     "containerd-shim",
			Role:     host.RoleShim,
			ObjectID: id,
			State:    state,
			Started:  now().Add(-age),
		}
	}
	failing := said(signs(signature.RemoveFailed, 9, 9*time.Minute, time.Second, "RemovePodSandbox failed", "gone"))
	part := input(func(f *facts.Input) { f.Measurement.Containers.Complete = false })
	ready := func(f *facts.Input) {
		for i := range f.Measurement.Sandboxes.Sandboxes {
			f.Measurement.Sandboxes.Sandboxes[i].State = crictl.SandboxReady
		}
	}
	served := shims(shim("sandbox0", 'S', time.Hour), shim("sandbox1", 'S', time.Hour))
	systemd := func(change func(*host.Systemd)) tweak {
		return surfaces(func(n *facts.Node) { change(&n.Systemd.Value) })
	}
	silent := systemd(func(s *host.Systemd) { *s = host.Systemd{Hung: true, Took: 5 * time.Second} })
	cgroupfs := input(func(f *facts.Input) {
		f.Node.Settings.Value.CgroupDriver, f.Node.RuntimeDriver.Value = "cgroupfs", "cgroupfs"
	})
	oldRunc := host.Process{
		PID:      5001,
		PPID:     5000,
		Name:     "runc",
		Role:     host.RoleOCI,
		ObjectID: "container1-0",
		State:    'S',
		Started:  now().Add(-facts.LongOCI),
	}
	container := statusHangs("container1-0")
	judgeAll(t, []scenario{
		row("a stopped shim", "degraded: ShimStuck warning", stopped, shims(shimProcess('S'))),
		row("a stopped shim and its pod's status", "unhealthy: ShimStuck critical; InspectHang critical < ShimStuck",
			stopped, shims(shimProcess('S')), container),
		row("a stopped shim and another pod's status", "unhealthy: InspectHang critical; ShimStuck warning", stopped,
			shims(shimProcess('S')), statusHangs("container2-0")),
		row("a stopped shim and a list", "unhealthy: ShimStuck critical; ListHang critical < ShimStuck", stopped,
			shims(shimProcess('T')), hangs(facts.RPCContainers)),
		row("a shim that is not listed", "healthy", surfaces(), shims(shimProcess('S'), shim("gone", 'S', time.Hour))),
		row("one that the kubelet cannot remove", "degraded: ShimStuck warning", surfaces(),
			shims(shimProcess('S'), shim("gone", 'S', facts.ShimSettled)), failing),
		row("the same, new", "healthy", surfaces(),
			shims(shimProcess('S'), shim("gone", 'S', facts.ShimSettled-time.Second)), failing),
		row("another runtime's is stopped", "healthy", surfaces(),
			shims(shimProcess('S'), shim("other", 'T', time.Hour))),
		row("another runtime's is stopped, and a status hangs", "unhealthy: InspectHang critical", surfaces(),
			shims(shim("other", 'T', time.Hour)), container),
		row("a stopped one that the kubelet cannot remove", "degraded: ShimStuck warning", surfaces(),
			shims(shim("gone", 'T', time.Hour)), failing),
		row("a stopped one is too young to be listed", "degraded: ShimStuck warning", surfaces(),
			shims(shim("other", 'T', facts.ShimSettled-time.Second))),
		row("a stopped one, and part of a list", "degraded: ShimStuck warning", surfaces(),
			shims(shim("other", 'T', time.Hour)), part),
		row("a stopped one, and another endpoint", "degraded: ShimStuck warning", surfaces(),
			shims(shim("other", 'T', time.Hour)), elsewhere),
		row("a ready sandbox has no shim", "healthy", surfaces(), ready, served),
		row("and its status hangs", "unhealthy: InspectHang critical; ShimStuck warning", surfaces(), ready, served,
			statusHangs("sandbox2")),
		row("systemd is silent", "unhealthy: SystemdWedged critical", silent),
		row("systemd is silent, cgroupfs", "degraded: SystemdWedged warning", silent, cgroupfs),
		row("systemd is silent, the runtime hangs",
			"unhealthy: SystemdWedged critical; RuntimeHung critical < SystemdWedged", silent, hangs(everyRPC()...)),
		row("systemd is silent, and a runc waits",
			"unhealthy: SystemdWedged critical; InspectHang critical < SystemdWedged", silent,
			input(func(f *facts.Input) { f.Processes = append(f.Processes, oldRunc) }), container),
		row("systemd is silent, and no runc waits", "unhealthy: SystemdWedged critical; InspectHang critical", silent,
			container),
		row("the bus is silent", "unhealthy: SystemdWedged critical",
			systemd(func(s *host.Systemd) { s.BusAnswered, s.BusHung = false, true })),
		row("systemd is not so slow", "healthy", systemd(func(s *host.Systemd) { s.Took = 4999 * time.Millisecond })),
		row("systemd is slow", "degraded: SystemdWedged warning",
			systemd(func(s *host.Systemd) { s.Took = 5 * time.Second })),
		row("units, not so many", "healthy", systemd(func(s *host.Systemd) { s.Inactive = 4999 })),
		row("units leak", "degraded: SystemdWedged warning", systemd(func(s *host.Systemd) { s.Inactive = 5000 })),
		row("jobs, at boot", "healthy", systemd(func(s *host.Systemd) { s.Jobs, s.State = 900, "starting" })),
		row("jobs wait", "degraded: SystemdWedged warning", systemd(func(s *host.Systemd) { s.Jobs = 500 })),
	})
}

// TestRoots holds what is a root of what when several things are wrong at once, and what only happens at the same time.
func TestRoots(t *testing.T) {
	slowDisk := func(d time.Duration) func(*facts.Node) {
		return func(n *facts.Node) { n.Writes.Value[0].Times = times10(d) }
	}
	full := func(n *facts.Node) {
		n.Spaces.Value[0].Free = 0
		n.Writes.Value[0] = host.Writes{Folder: disk().Folders[1], Mount: "/var", Err: "no space left on device"}
	}
	memory := func(available uint64, full float64) func(*facts.Node) {
		return func(n *facts.Node) {
			n.Memory.Value.Available, n.Pressure.Value.Memory = available, &host.Stall{Some: some(60), Full: some(full)}
		}
	}
	throttled := func(role host.Role) func(*facts.Node) {
		return func(n *facts.Node) {
			n.Cgroups.Value.Throttled = []host.Throttling{
				{Path: "/system.slice", Periods: 20, Throttled: 19, Owner: host.Owner{Role: role}},
			}
		}
	}
	noFork := func(path string, role host.Role) func(*facts.Node) {
		return func(n *facts.Node) {
			n.PIDs.Value.Cgroups = []host.CgroupUsage{
				{Path: path, Usage: host.Usage{Current: 1000, Max: 1000}, Owner: host.Owner{Role: role}},
			}
		}
	}
	inotify := func(n, most int) func(*facts.Node) {
		return func(node *facts.Node) {
			node.Inotify.Value.MaxInstances, node.Inotify.Value.Users[0].Instances = uint64(most), n
		}
	}
	stoppedKubelet := func(n *facts.Node) {
		n.Tasks.Value.Stopped, n.Server.Value.LeaseAge = []host.Process{kubeletProcess('T')}, 5*time.Minute
	}
	many := func(n *facts.Node) {
		n.Systemd.Value, n.Mounts.Value.Total = host.Systemd{Hung: true, Took: 5 * time.Second}, 40_000
	}
	onlyRuntimes := func(n *facts.Node) { n.Spaces.Value[0].Folders = disk().Folders[1:2] }
	unmounting := host.BlockedTask{
		PID: 5000, TID: 5000, Name: "containerd-shim", Wchan: "wb_wait_for_completion", Stack: []string{"wb_wait_for_completion", "cleanup_mnt"},
		Owner: host.Owner{Role: host.RoleShim, ObjectID: "sandbox1", PodUID: "uid-1"},
	}
	failed, timeout := unitIn("failed", "failed", "exit-code", time.Minute), unitIn(
		"failed",
		"failed",
		"timeout",
		time.Minute,
	)
	hung, slow := hangs(everyRPC()...), takes(3*time.Second, everyRPC()...)
	down := socket(crictl.ConnectRefused, "refused")
	away := input(func(f *facts.Input) {
		f.Node.Server = good(kubelet.Server{URL: "https://api:6443", Err: "connection refused"})
	})
	judgeAll(t, []scenario{
		row("a slow disk, and a runtime that hangs", "unhealthy: RuntimeHung critical; IOStall warning",
			surfaces(slowDisk(150*time.Millisecond)), hung),
		row("a disk that stands, and a runtime that hangs",
			"unhealthy: IOStall critical; RuntimeHung critical < IOStall", surfaces(slowDisk(2*time.Second)), hung),
		row("a slow disk, and a slow runtime", "unhealthy: IOStall critical; RuntimeSlow critical < IOStall",
			surfaces(slowDisk(1400*time.Millisecond)), slow),
		row("a disk that stands, a shim that unmounts, a status call",
			"unhealthy: IOStall critical; TaskStuck critical < IOStall; InspectHang critical < TaskStuck",
			surfaces(slowDisk(2*time.Second), blocked(unmounting)), statusHangs("sandbox1")),
		row("a full disk, and the runtime is down", "unhealthy: DiskFull critical; RuntimeDown critical < DiskFull",
			surfaces(full), down),
		row("a full disk, and the kubelet is down", "unhealthy: DiskFull critical; KubeletDown critical < DiskFull",
			surfaces(full, failed), noKubelet),
		row("a full disk that is the runtime's alone", "unhealthy: KubeletDown critical; DiskFull critical",
			surfaces(full, failed, onlyRuntimes), noKubelet),
		row("a disk below the eviction threshold, and a runtime that hangs",
			"unhealthy: RuntimeHung critical; DiskFull warning", free(20*gib), hung),
		row("no memory, and disks busy with reclaim",
			"unhealthy: MemoryPressure critical; IOStall critical < MemoryPressure; RuntimeSlow critical < IOStall",
			slow, surfaces(memory(90<<20, 38), slowDisk(300*time.Millisecond))),
		row("a dead mount, and the stopped shim of another pod",
			"unhealthy: FilesystemHung critical; ShimStuck warning",
			surfaces(deadMount, func(n *facts.Node) { n.Tasks.Value.Stopped = []host.Process{shimProcess('T')} })),
		row("mounts, a silent systemd, a slow runtime",
			"unhealthy: MountsExploded critical; SystemdWedged critical < MountsExploded; RuntimeSlow critical < SystemdWedged",
			slow, surfaces(many)),
		row("a stopped kubelet, and a certificate that is over",
			"unhealthy: CertificateExpired critical; KubeletStalled critical; APIServerUnreachable critical < KubeletStalled",
			surfaces(expires(0, -time.Hour, -time.Minute), stoppedKubelet)),
		row("a kubelet that was stopped, and a server that is away",
			"unhealthy: KubeletDown critical; APIServerUnreachable critical",
			surfaces(unitIn("inactive", "dead", "success", time.Hour)), noKubelet, away),
		row("a dead mount, and a kubelet that ended", "unhealthy: KubeletDown critical; FilesystemHung critical",
			surfaces(deadMount, failed), noKubelet),
		row("a dead mount, and a kubelet that could not be ended",
			"unhealthy: FilesystemHung critical; KubeletDown critical < FilesystemHung", surfaces(deadMount, timeout),
			noKubelet),
		row("little memory, and a runtime that hangs", "unhealthy: RuntimeHung critical; MemoryPressure warning", hung,
			surfaces(memory(3*gib, 6))),
		row("no memory, and a runtime that hangs",
			"unhealthy: MemoryPressure critical; RuntimeHung critical < MemoryPressure", hung,
			surfaces(memory(90<<20, 38))),
		row("the runtime's unit may not fork, and the kubelet is down",
			"unhealthy: KubeletDown critical; PIDsExhausted critical", surfaces(failed, noFork("/x", host.RoleRuntime)),
			noKubelet),
		row("the runtime's unit may not fork, and it hangs",
			"unhealthy: PIDsExhausted critical; RuntimeHung critical < PIDsExhausted", hung,
			surfaces(noFork("/x", host.RoleRuntime))),
		row("all pods together may not fork, and the runtime hangs",
			"unhealthy: RuntimeHung critical; PIDsExhausted critical", hung, surfaces(noFork("/kubepods.slice", ""))),
		row("some inotify is left, and the kubelet is down",
			"unhealthy: KubeletDown critical; InotifyExhausted warning", surfaces(failed, inotify(7800, 8192)),
			noKubelet),
		row("inotify is used up, and the kubelet is down",
			"unhealthy: InotifyExhausted critical; KubeletDown critical < InotifyExhausted",
			surfaces(failed, inotify(128, 128)), noKubelet),
		row("all pods are frozen, and a status call hangs",
			"unhealthy: CgroupFrozen critical; InspectHang critical < CgroupFrozen",
			surfaces(freeze(host.FrozenCgroup{Path: "/kubepods.slice", Self: true, Tasks: 900})),
			statusHangs("container1-0")),
		row("the kubelet is throttled, the runtime slow", "unhealthy: RuntimeSlow critical; CPUStarved critical", slow,
			surfaces(throttled(host.RoleKubelet))),
		row("the runtime is throttled, and slow", "unhealthy: CPUStarved critical; RuntimeSlow critical < CPUStarved",
			slow, surfaces(throttled(host.RoleRuntime))),
		row("the slice above both is throttled, the runtime hangs",
			"unhealthy: CPUStarved critical; RuntimeHung critical < CPUStarved", hung, surfaces(throttled(""))),
		row("dying control groups, and a slow runtime", "unhealthy: RuntimeSlow critical; CgroupsLeaked warning", slow,
			surfaces(func(n *facts.Node) { n.Cgroups.Value.Dying = 40_000 })),
		row("the runtime ended, and so did the kubelet",
			"unhealthy: RuntimeDown critical; KubeletDown critical < RuntimeDown",
			socket(crictl.ConnectMissing, "gone"), surfaces(failed), noKubelet),
		row("the runtime is silent, and the kubelet ended", "unhealthy: KubeletDown critical; RuntimeHung critical",
			socket(crictl.ConnectSilent, ""), surfaces(failed), noKubelet),
	})
	waits := func(c checks.Cause) bool { // every restart waits until the root is over
		return !slices.ContainsFunc(c.NextSteps, func(s checks.NextStep) bool {
			restarts := slices.Contains(
				[]string{checks.TouchesRuntime, checks.TouchesKubelet, checks.TouchesNode},
				s.Touches,
			)
			return restarts != mentions([]string{s.Why}, "Only if it stays when "+c.CausedBy+" is over.")
		})
	}
	if all := Judge(node(slow, surfaces(slowDisk(1400*time.Millisecond)))); !waits(all[1]) ||
		waits(Judge(node(hung))[0]) {
		t.Errorf("%+v", all[1].NextSteps)
	}
}
