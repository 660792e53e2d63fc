package judge

import (
	"slices"
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/journal/signature"
)

// freeze replaces the frozen control groups.
func freeze(list ...host.FrozenCgroup) func(*facts.Node) {
	return func(n *facts.Node) { n.Cgroups.Value.Frozen = list }
}

// TestStuck holds tasks, shims, frozen groups and systemd, and who is whose root.
func TestStuck(t *testing.T) {
	local := host.BlockedTask{
		PID: 7020, TID: 7020, Name: "postgres", Wchan: "jbd2_log_wait_commit", Owner: frozenPod().Owner,
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
		{Path: "/system.slice", Self: true}, {Path: "/system.slice/containerd.service", Tasks: 9, Owner: runtimeUnit},
	}
	container := statusHangs("container1-0")
	refused := health(func(h *kubelet.Health) {
		*h.Ping = kubelet.Answer{URL: "http://127.0.0.1:10248/healthz", Err: "connection refused"}
	})
	judgeAll(t, []scenario{
		row("a busy disk", "healthy", surfaces(blocked(local))),
		row("a busy file server", "healthy", surfaces(blocked(onNFS()))),
		row("a dead mount, and who waits in it", "FilesystemHung!; TaskStuck < FilesystemHung",
			surfaces(deadMount, blocked(onNFS()))),
		row("a dead mount, a task, a status call",
			"FilesystemHung!; TaskStuck! < FilesystemHung; InspectHang! < TaskStuck",
			surfaces(deadMount, blocked(onNFS())), container),
		row("a home folder that no pod uses, and a runtime that hangs", "RuntimeHung!; FilesystemHung",
			surfaces(homeFolder), hangs(everyRPC()...)),
		row("a home folder, and a kubelet that never came up", "FilesystemHung!; KubeletStalled! < FilesystemHung",
			surfaces(homeFolder, refused)),
		row("a task and the status of another pod", "FilesystemHung!; InspectHang!; TaskStuck < FilesystemHung",
			surfaces(deadMount, blocked(onNFS())), statusHangs("container2-0")),
		row("a task of nobody's", "InspectHang!", surfaces(blocked(other)), container),
		row("a local wait and a status call", "TaskStuck!; InspectHang! < TaskStuck", surfaces(blocked(local)),
			container),
		row("the kernel reports it", "KernelHung; TaskStuck < KernelHung", surfaces(blocked(local)),
			said(signs(signature.HungTask, 2, 9*time.Minute, time.Minute, "INFO: task postgres:7020 blocked for more than 120 seconds.", "postgres pid 7020"))),
		row("the kernel reports another", "TaskStuck!; InspectHang! < TaskStuck; KernelHung", surfaces(blocked(local)),
			container, said(signs(signature.HungTask, 2, 9*time.Minute, time.Minute,
				"INFO: task java:9 blocked for more than 120 seconds.", "java pid 9"))),
		row("a local wait beside a dead mount", "TaskStuck!; InspectHang! < TaskStuck; FilesystemHung",
			surfaces(homeFolder, blocked(local)), container),
		row("a frozen task", "CgroupFrozen!; InspectHang! < CgroupFrozen",
			surfaces(blocked(frozenTask), freeze(frozenPod())), container),
		row("frozen", "CgroupFrozen", surfaces(freeze(frozenPod()))),
		row("frozen from above all pods", "CgroupFrozen!", above("/all", "/all/kubepods/pod1/container1-0")),
		row("its pod is frozen", "CgroupFrozen", above("/kubepods/pod1", "/kubepods/pod1/container1-0")),
		row("its pod is frozen, and its status hangs", "CgroupFrozen!; InspectHang! < CgroupFrozen",
			above("/kubepods/pod1", "/kubepods/pod1/container1-0"), container),
		row("the runtime's slice is frozen", "CgroupFrozen!; RuntimeHung! < CgroupFrozen", surfaces(freeze(slice...)),
			hangs(everyRPC()...)),
		row("a task that slept when it was frozen", "CgroupFrozen!; InspectHang! < CgroupFrozen",
			surfaces(blocked(sleeper), freeze(frozenPod())), container),
		row("a task that slept when all pods were frozen", "CgroupFrozen!; InspectHang! < CgroupFrozen",
			surfaces(blocked(sleeper), freeze(host.FrozenCgroup{Path: "/kubepods", Self: true, Tasks: 900})),
			container),
		row("a task that keeps its group from freezing",
			"CgroupFrozen!; TaskStuck! < CgroupFrozen; InspectHang! < TaskStuck",
			surfaces(blocked(local), freeze(busy)), container),
		row("frozen and empty", "healthy",
			surfaces(freeze(host.FrozenCgroup{Path: frozenPod().Path, Self: true, Owner: frozenPod().Owner}))),
		row("a user's session", "healthy", frozenAs("/user.slice/user-1000.slice", host.Owner{})),
		row("a container of docker's own", "healthy",
			frozenAs("/system.slice/docker-abc.scope", host.Owner{ObjectID: "abc"})),
		row("a container of unknown owner, the runtime is down", "RuntimeDown!; CgroupFrozen",
			frozenAs("/system.slice/docker-abc.scope", host.Owner{ObjectID: "abc"}),
			socket(crictl.ConnectRefused, "refused")),
		row("a container without a kubelet", "CgroupFrozen",
			frozenAs("/k8s.io/container1-0", host.Owner{ObjectID: "container1-0"})),
		row("all pods", "CgroupFrozen!", frozenAs("/kubepods.slice", host.Owner{})),
		row("the runtime's group", "CgroupFrozen!; RuntimeHung! < CgroupFrozen",
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
			PID: 6000, Name: "containerd-shim", Role: host.RoleShim, ObjectID: id, State: state,
			Started: now().Add(-age),
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
		PID: 5001, PPID: 5000, Name: "runc", Role: host.RoleOCI, ObjectID: "container1-0",
		State: 'S', Started: now().Add(-facts.LongOCI),
	}
	container := statusHangs("container1-0")
	judgeAll(t, []scenario{
		row("a stopped shim", "ShimStuck", stopped, shims(shimProcess('S'))),
		row("a stopped shim and its pod's status", "ShimStuck!; InspectHang! < ShimStuck", stopped,
			shims(shimProcess('S')), container),
		row("a stopped shim and another pod's status", "InspectHang!; ShimStuck", stopped, shims(shimProcess('S')),
			statusHangs("container2-0")),
		row("a stopped shim and a list", "ShimStuck!; ListHang! < ShimStuck", stopped, shims(shimProcess('T')),
			hangs(facts.RPCContainers)),
		row("a shim that is not listed", "healthy", surfaces(), shims(shimProcess('S'), shim("gone", 'S', time.Hour))),
		row("one that the kubelet cannot remove", "ShimStuck", surfaces(),
			shims(shimProcess('S'), shim("gone", 'S', facts.ShimSettled)), failing),
		row("the same, new", "healthy", surfaces(),
			shims(shimProcess('S'), shim("gone", 'S', facts.ShimSettled-time.Second)), failing),
		row("another runtime's is stopped", "healthy", surfaces(),
			shims(shimProcess('S'), shim("other", 'T', time.Hour))),
		row("another runtime's is stopped, and a status hangs", "InspectHang!", surfaces(),
			shims(shim("other", 'T', time.Hour)), container),
		row("a stopped one that the kubelet cannot remove", "ShimStuck", surfaces(),
			shims(shim("gone", 'T', time.Hour)), failing),
		row("a stopped one is too young to be listed", "ShimStuck", surfaces(),
			shims(shim("other", 'T', facts.ShimSettled-time.Second))),
		row("a stopped one, and part of a list", "ShimStuck", surfaces(), shims(shim("other", 'T', time.Hour)), part),
		row("a stopped one, and another endpoint", "ShimStuck", surfaces(), shims(shim("other", 'T', time.Hour)),
			elsewhere),
		row("a ready sandbox has no shim", "healthy", surfaces(), ready, served),
		row("and its status hangs", "InspectHang!; ShimStuck", surfaces(), ready, served, statusHangs("sandbox2")),
		row("systemd is silent", "SystemdWedged!", silent),
		row("systemd is silent, cgroupfs", "SystemdWedged", silent, cgroupfs),
		row("systemd is silent, the runtime hangs", "SystemdWedged!; RuntimeHung! < SystemdWedged", silent,
			hangs(everyRPC()...)),
		row("systemd is silent, and a runc waits", "SystemdWedged!; InspectHang! < SystemdWedged", silent,
			input(func(f *facts.Input) { f.Processes = append(f.Processes, oldRunc) }), container),
		row("systemd is silent, and no runc waits", "SystemdWedged!; InspectHang!", silent, container),
		row("the bus is silent", "SystemdWedged!",
			systemd(func(s *host.Systemd) { s.BusAnswered, s.BusHung = false, true })),
		row("systemd is not so slow", "healthy", systemd(func(s *host.Systemd) { s.Took = 4999 * time.Millisecond })),
		row("systemd is slow", "SystemdWedged", systemd(func(s *host.Systemd) { s.Took = 5 * time.Second })),
		row("units, not so many", "healthy", systemd(func(s *host.Systemd) { s.Inactive = 4999 })),
		row("units leak", "SystemdWedged", systemd(func(s *host.Systemd) { s.Inactive = 5000 })),
		row("jobs, at boot", "healthy", systemd(func(s *host.Systemd) { s.Jobs, s.State = 900, "starting" })),
		row("jobs wait", "SystemdWedged", systemd(func(s *host.Systemd) { s.Jobs = 500 })),
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
		row("a slow disk, and a runtime that hangs", "RuntimeHung!; IOStall", surfaces(slowDisk(150*time.Millisecond)),
			hung),
		row("a disk that stands, and a runtime that hangs", "IOStall!; RuntimeHung! < IOStall",
			surfaces(slowDisk(2*time.Second)), hung),
		row("a slow disk, and a slow runtime", "IOStall!; RuntimeSlow! < IOStall",
			surfaces(slowDisk(1400*time.Millisecond)), slow),
		row("a disk that stands, a shim that unmounts, a status call",
			"IOStall!; TaskStuck! < IOStall; InspectHang! < TaskStuck",
			surfaces(slowDisk(2*time.Second), blocked(unmounting)), statusHangs("sandbox1")),
		row("a full disk, and the runtime is down", "DiskFull!; RuntimeDown! < DiskFull", surfaces(full), down),
		row("a full disk, and the kubelet is down", "DiskFull!; KubeletDown! < DiskFull", surfaces(full, failed),
			noKubelet),
		row("a full disk that is the runtime's alone", "KubeletDown!; DiskFull!", surfaces(full, failed, onlyRuntimes),
			noKubelet),
		row("a disk below the eviction threshold, and a runtime that hangs", "RuntimeHung!; DiskFull", free(20*gib),
			hung),
		row("no memory, and disks busy with reclaim",
			"MemoryPressure!; IOStall! < MemoryPressure; RuntimeSlow! < IOStall", slow,
			surfaces(memory(90<<20, 38), slowDisk(300*time.Millisecond))),
		row("a dead mount, and the stopped shim of another pod", "FilesystemHung!; ShimStuck",
			surfaces(deadMount, func(n *facts.Node) { n.Tasks.Value.Stopped = []host.Process{shimProcess('T')} })),
		row("mounts, a silent systemd, a slow runtime",
			"MountsExploded!; SystemdWedged! < MountsExploded; RuntimeSlow! < SystemdWedged", slow, surfaces(many)),
		row("a stopped kubelet, and a certificate that is over",
			"CertificateExpired!; KubeletStalled!; APIServerUnreachable! < KubeletStalled",
			surfaces(expires(0, -time.Hour, -time.Minute), stoppedKubelet)),
		row("a kubelet that was stopped, and a server that is away", "KubeletDown!; APIServerUnreachable!",
			surfaces(unitIn("inactive", "dead", "success", time.Hour)), noKubelet, away),
		row("a dead mount, and a kubelet that ended", "KubeletDown!; FilesystemHung!", surfaces(deadMount, failed),
			noKubelet),
		row("a dead mount, and a kubelet that could not be ended", "FilesystemHung!; KubeletDown! < FilesystemHung",
			surfaces(deadMount, timeout), noKubelet),
		row("little memory, and a runtime that hangs", "RuntimeHung!; MemoryPressure", hung,
			surfaces(memory(3*gib, 6))),
		row("no memory, and a runtime that hangs", "MemoryPressure!; RuntimeHung! < MemoryPressure", hung,
			surfaces(memory(90<<20, 38))),
		row("the runtime's unit may not fork, and the kubelet is down", "KubeletDown!; PIDsExhausted!",
			surfaces(failed, noFork("/x", host.RoleRuntime)), noKubelet),
		row("the runtime's unit may not fork, and it hangs", "PIDsExhausted!; RuntimeHung! < PIDsExhausted", hung,
			surfaces(noFork("/x", host.RoleRuntime))),
		row("all pods together may not fork, and the runtime hangs", "RuntimeHung!; PIDsExhausted!", hung,
			surfaces(noFork("/kubepods.slice", ""))),
		row("some inotify is left, and the kubelet is down", "KubeletDown!; InotifyExhausted",
			surfaces(failed, inotify(7800, 8192)), noKubelet),
		row("inotify is used up, and the kubelet is down", "InotifyExhausted!; KubeletDown! < InotifyExhausted",
			surfaces(failed, inotify(128, 128)), noKubelet),
		row("all pods are frozen, and a status call hangs", "CgroupFrozen!; InspectHang! < CgroupFrozen",
			surfaces(freeze(host.FrozenCgroup{Path: "/kubepods.slice", Self: true, Tasks: 900})),
			statusHangs("container1-0")),
		row("the kubelet is throttled, the runtime slow", "RuntimeSlow!; CPUStarved!", slow,
			surfaces(throttled(host.RoleKubelet))),
		row("the runtime is throttled, and slow", "CPUStarved!; RuntimeSlow! < CPUStarved", slow,
			surfaces(throttled(host.RoleRuntime))),
		row("the slice above both is throttled, the runtime hangs", "CPUStarved!; RuntimeHung! < CPUStarved", hung,
			surfaces(throttled(""))),
		row("dying control groups, and a slow runtime", "RuntimeSlow!; CgroupsLeaked", slow,
			surfaces(func(n *facts.Node) { n.Cgroups.Value.Dying = 40_000 })),
		row("the runtime ended, and so did the kubelet", "RuntimeDown!; KubeletDown! < RuntimeDown",
			socket(crictl.ConnectMissing, "gone"), surfaces(failed), noKubelet),
		row("the runtime is silent, and the kubelet ended", "KubeletDown!; RuntimeHung!",
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
