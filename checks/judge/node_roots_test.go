package judge

import (
	stdcmp "cmp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/crictl"
)

// TestRoots holds what is a root of what when several things are wrong at once, and what only happens at the same time.
func TestRoots(t *testing.T) {
	slowDisk := func(d time.Duration) func(*facts.Node) {
		return func(n *facts.Node) { n.Writes.Value[0].Times = times10(d) }
	}
	full := func(n *facts.Node) {
		n.Spaces.Value[0].Free = 0
		n.Writes.Value[0] = host.Writes{Folder: disk().Folders[1], Mount: "/var", Err: "no space left on device"}
	}
	lowMemory := func(n *facts.Node) {
		n.Memory.Value.Available = 90 << 20
		n.Pressure.Value.Memory = &host.Stall{Some: some(60), Full: some(38)}
	}
	throttled := func(role host.Role) func(*facts.Node) {
		return func(n *facts.Node) {
			n.Cgroups.Value.Throttled = []host.Throttling{{Path: "/system.slice", Periods: 20, Throttled: 19, Owner: host.Owner{Role: role}}}
		}
	}
	group := func(path string, role host.Role) func(*facts.Node) {
		return func(n *facts.Node) {
			n.PIDs.Value.Cgroups = []host.CgroupUsage{{Path: path, Usage: host.Usage{Current: 1000, Max: 1000}, Owner: host.Owner{Role: role}}}
		}
	}
	failed := unitIn("failed", "failed", "exit-code", time.Minute)
	unmounting := host.BlockedTask{
		PID: 5000, TID: 5000, Name: "containerd-shim", Wchan: "wb_wait_for_completion", Stack: []string{"wb_wait_for_completion", "sync_inodes_sb", "ovl_sync_fs", "cleanup_mnt"},
		Owner: host.Owner{Role: host.RoleShim, ObjectID: "sandbox1", PodUID: "uid-1"},
	}
	for _, tt := range []struct {
		name   string
		tweaks []tweak
		want   string
	}{
		{"a slow disk, and a runtime that hangs", []tweak{surfaces(slowDisk(150 * time.Millisecond)), hangs(everyRPC()...)}, "RuntimeHung critical; IOStall warning"},
		{"a disk that stands, and a runtime that hangs", []tweak{surfaces(slowDisk(2 * time.Second)), hangs(everyRPC()...)}, "IOStall critical; RuntimeHung critical < IOStall"},
		{"a disk that stands, a shim that unmounts, a status call", []tweak{surfaces(slowDisk(2*time.Second), blocked(unmounting)), statusHangs("sandbox1")}, "IOStall critical; TaskStuck critical < IOStall; InspectHang critical < TaskStuck"},
		{"a full disk, and the runtime is down", []tweak{surfaces(full), socket(crictl.ConnectRefused, "refused")}, "DiskFull critical; RuntimeDown critical < DiskFull"},
		{"a full disk, and the kubelet is down", []tweak{surfaces(full, failed), noKubelet}, "DiskFull critical; KubeletDown critical < DiskFull"},
		{"a full disk that is the runtime's alone", []tweak{surfaces(full, failed, func(n *facts.Node) { n.Spaces.Value[0].Folders = disk().Folders[1:2] }), noKubelet}, "KubeletDown critical; DiskFull critical"},
		{"a disk below the eviction threshold, and a runtime that hangs", []tweak{surfaces(func(n *facts.Node) { n.Spaces.Value[0].Free = 20 << 30 }), hangs(everyRPC()...)}, "RuntimeHung critical; DiskFull warning"},
		{"no memory, and disks busy with reclaim", []tweak{takes(3*time.Second, everyRPC()...), surfaces(lowMemory, slowDisk(300*time.Millisecond))}, "MemoryPressure critical; IOStall critical < MemoryPressure; RuntimeSlow critical < IOStall"},
		{"a dead mount, and the stopped shim of another pod", []tweak{surfaces(deadMount, func(n *facts.Node) { n.Tasks.Value.Stopped = []host.Process{shimProcess('T')} })}, "FilesystemHung critical; ShimStuck warning"},
		{"mounts, a silent systemd, a slow runtime", []tweak{takes(3*time.Second, everyRPC()...), surfaces(func(n *facts.Node) {
			n.Systemd.Value, n.Mounts.Value.Total = host.Systemd{Hung: true, Took: 5 * time.Second}, 40_000
		})}, "MountsExploded critical; SystemdWedged critical < MountsExploded; RuntimeSlow critical < SystemdWedged"},
		{"a stopped kubelet, and a certificate that is over", []tweak{surfaces(expires(0, -time.Hour, -time.Minute), func(n *facts.Node) {
			n.Tasks.Value.Stopped, n.Server.Value.LeaseAge = []host.Process{kubeletProcess('T')}, 5*time.Minute
		})}, "CertificateExpired critical; KubeletStalled critical; APIServerUnreachable critical < KubeletStalled"},
		{"a kubelet that was stopped, and a server that is away", []tweak{surfaces(unitIn("inactive", "dead", "success", time.Hour)), noKubelet, func(f *facts.Input) {
			f.Node.Server = good(kubelet.Server{URL: "https://api:6443", Err: "connect: connection refused"})
		}}, "KubeletDown critical; APIServerUnreachable critical"},
		{"a dead mount, and a kubelet that ended", []tweak{surfaces(deadMount, failed), noKubelet}, "KubeletDown critical; FilesystemHung critical"},
		{"a dead mount, and a kubelet that could not be ended", []tweak{surfaces(deadMount, unitIn("failed", "failed", "timeout", time.Minute)), noKubelet}, "FilesystemHung critical; KubeletDown critical < FilesystemHung"},
		{"little memory, and a runtime that hangs", []tweak{hangs(everyRPC()...), surfaces(func(n *facts.Node) {
			n.Memory.Value.Available, n.Pressure.Value.Memory = 3<<30, &host.Stall{Some: some(20), Full: some(6)}
		})}, "RuntimeHung critical; MemoryPressure warning"},
		{"no memory, and a runtime that hangs", []tweak{hangs(everyRPC()...), surfaces(lowMemory)}, "MemoryPressure critical; RuntimeHung critical < MemoryPressure"},
		{"the runtime's unit may not fork, and the kubelet is down", []tweak{surfaces(failed, group("/system.slice/containerd.service", host.RoleRuntime)), noKubelet}, "KubeletDown critical; PIDsExhausted critical"},
		{"the runtime's unit may not fork, and it hangs", []tweak{hangs(everyRPC()...), surfaces(group("/system.slice/containerd.service", host.RoleRuntime))}, "PIDsExhausted critical; RuntimeHung critical < PIDsExhausted"},
		{"all pods together may not fork, and the runtime hangs", []tweak{hangs(everyRPC()...), surfaces(group("/kubepods.slice", ""))}, "RuntimeHung critical; PIDsExhausted critical"},
		{"some inotify is left, and the kubelet is down", []tweak{surfaces(failed, func(n *facts.Node) {
			n.Inotify.Value.MaxInstances, n.Inotify.Value.Users[0].Instances = 8192, 7800
		}), noKubelet}, "KubeletDown critical; InotifyExhausted warning"},
		{"inotify is used up, and the kubelet is down", []tweak{surfaces(failed, func(n *facts.Node) { n.Inotify.Value.Users[0].Instances = 128 }), noKubelet}, "InotifyExhausted critical; KubeletDown critical < InotifyExhausted"},
		{"all pods are frozen, and a status call hangs", []tweak{surfaces(func(n *facts.Node) {
			n.Cgroups.Value.Frozen = []host.FrozenCgroup{{Path: "/kubepods.slice", Self: true, Tasks: 900}}
		}), statusHangs("container1-0")}, "CgroupFrozen critical; InspectHang critical < CgroupFrozen"},
		{"the kubelet is throttled, the runtime slow", []tweak{takes(3*time.Second, everyRPC()...), surfaces(throttled(host.RoleKubelet))}, "RuntimeSlow critical; CPUStarved critical"},
		{"the runtime is throttled, and slow", []tweak{takes(3*time.Second, everyRPC()...), surfaces(throttled(host.RoleRuntime))}, "CPUStarved critical; RuntimeSlow critical < CPUStarved"},
		{"the slice above both is throttled, the runtime hangs", []tweak{hangs(everyRPC()...), surfaces(throttled(""))}, "CPUStarved critical; RuntimeHung critical < CPUStarved"},
		{"dying control groups, and a slow runtime", []tweak{takes(3*time.Second, everyRPC()...), surfaces(func(n *facts.Node) { n.Cgroups.Value.Dying = 40_000 })}, "RuntimeSlow critical; CgroupsLeaked warning"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, chain(node(tt.tweaks...))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestRootComesFirst reads the steps of a consequence: what restarts a daemon waits for the root.
func TestRootComesFirst(t *testing.T) {
	restarts := func(c checks.Cause) (first string, all int) {
		for _, s := range c.NextSteps {
			if s.Touches == checks.TouchesRuntime || s.Touches == checks.TouchesKubelet || s.Touches == checks.TouchesNode {
				first, all = stdcmp.Or(first, s.Why), all+1
			}
		}
		return first, all
	}
	for _, name := range []string{"io-stall", "memory-pressure", "cpu-throttled"} {
		named := Judge(sickHosts()[name])
		why, n := restarts(named[1])
		if n == 0 || !strings.HasPrefix(why, "Only if it stays when "+named[0].Code+" is over. ") {
			t.Errorf("%s: %d restarts in %s, of which the first says %q", name, n, named[1].Code, why)
		}
	}
	alone := Judge(node(hangs(everyRPC()...), surfaces()))
	if why, n := restarts(alone[0]); n == 0 || strings.Contains(why, "Only if it stays") {
		t.Errorf("alone: %d restarts, %q", n, why)
	}
}
