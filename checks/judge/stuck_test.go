package judge

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/journal/signature"
)

// TestStuckCauses holds tasks, shims, frozen groups and systemd, and who is whose root.
func TestStuckCauses(t *testing.T) {
	local := host.BlockedTask{
		PID: 7020, TID: 7020, Name: "postgres", Wchan: "jbd2_log_wait_commit",
		Owner: host.Owner{ObjectID: "container1-0", PodUID: "uid-1"},
	}
	stranger := onNFS()
	stranger.Owner = host.Owner{Unit: "cron.service"}
	frozenTask := local
	frozenTask.Wchan = "__refrigerator"
	sleeper := local
	sleeper.Wchan = "hrtimer_nanosleep"
	freeze := func(list ...host.FrozenCgroup) func(*facts.Node) {
		return func(n *facts.Node) { n.Cgroups.Value.Frozen = list }
	}
	above := func(top, inner string) tweak {
		return surfaces(freeze(host.FrozenCgroup{Path: top, Self: true},
			host.FrozenCgroup{Path: inner, Tasks: 3, Owner: frozenPod().Owner}))
	}
	without := func(change func(*host.FrozenCgroup)) tweak {
		g := frozenPod()
		change(&g)
		return surfaces(freeze(g))
	}
	systemd := func(change func(*host.Systemd)) func(*facts.Node) {
		return func(n *facts.Node) { change(&n.Systemd.Value) }
	}
	silent := systemd(func(s *host.Systemd) { *s = host.Systemd{Hung: true, Took: 5 * time.Second} })
	stopped := func(n *facts.Node) { n.Tasks.Value.Stopped = []host.Process{shimProcess('T')} }
	oldRunc := host.Process{
		PID: 5001, PPID: 5000, Name: "runc", Role: host.RoleOCI, ObjectID: "container1-0",
		State: 'S', Started: now().Add(-facts.LongOCI),
	}
	withRunc := func(f *facts.Input) { f.Processes = append(f.Processes, oldRunc) }
	shimmed := processesOf(daemonProcess(), kubeletProcess('S'), shimProcess('S'))
	orphan := func(id string, age time.Duration) tweak {
		return func(f *facts.Input) {
			f.Processes = append(f.Processes, host.Process{
				PID: 6000, Name: "containerd-shim", Role: host.RoleShim,
				ObjectID: id, State: 'S', Started: now().Add(-age),
			})
		}
	}
	for _, tt := range []struct {
		name   string
		tweaks []tweak
		want   string
	}{
		{"a busy disk", []tweak{surfaces(blocked(local))}, ""},
		{"a busy file server", []tweak{surfaces(blocked(onNFS()))}, ""},
		{
			"a dead mount, and who waits in it",
			[]tweak{surfaces(deadMount, blocked(onNFS()))},
			"FilesystemHung critical; TaskStuck warning < FilesystemHung",
		},
		{"a dead mount, a task, a status call", []tweak{
			surfaces(deadMount, blocked(onNFS())),
			statusHangs("container1-0"),
		}, "FilesystemHung critical; TaskStuck critical < FilesystemHung; " +
			"InspectHang critical < TaskStuck"},
		{
			"a home folder that no pod uses, and a runtime that hangs",
			[]tweak{surfaces(homeFolder), hangs(everyRPC()...)},
			"RuntimeHung critical; FilesystemHung warning",
		},
		{
			"a home folder, and a kubelet that never came up",
			[]tweak{surfaces(homeFolder, health(func(h *kubelet.Health) {
				*h.Ping = kubelet.Answer{URL: "http://127.0.0.1:10248/healthz", Err: "connect: connection refused"}
			}))},
			"FilesystemHung critical; KubeletStalled critical < FilesystemHung",
		},
		{"a task and the status of another pod", []tweak{
			surfaces(deadMount, blocked(onNFS())),
			statusHangs("container2-0"),
		}, "FilesystemHung critical; InspectHang critical; TaskStuck warning < " +
			"FilesystemHung"},
		{
			"a task of nobody's",
			[]tweak{surfaces(blocked(stranger)), statusHangs("container1-0")},
			"InspectHang critical",
		},
		{
			"a local wait and a status call",
			[]tweak{surfaces(blocked(local)), statusHangs("container1-0")},
			"TaskStuck critical; InspectHang critical < TaskStuck",
		},
		{"the kernel reports it", []tweak{
			surfaces(blocked(local)),
			said(signs(signature.HungTask, 2, 9*time.Minute, time.Minute,
				"INFO: task postgres:7020 blocked for more than 120 seconds.", "postgres pid 7020")),
		}, "KernelHung warning; TaskStuck warning < KernelHung"},
		{
			"a frozen task",
			[]tweak{surfaces(blocked(frozenTask), freeze(frozenPod())), statusHangs("container1-0")},
			"CgroupFrozen critical; InspectHang critical < CgroupFrozen",
		},

		{"frozen", []tweak{surfaces(freeze(frozenPod()))}, "CgroupFrozen warning"},
		{
			"frozen from above all pods",
			[]tweak{above("/all", "/all/kubepods/pod1/container1-0")},
			"CgroupFrozen critical",
		},
		{"its pod is frozen", []tweak{above("/kubepods/pod1", "/kubepods/pod1/container1-0")}, "CgroupFrozen warning"},
		{"its pod is frozen, and its status hangs", []tweak{
			above("/kubepods/pod1", "/kubepods/pod1/container1-0"),
			statusHangs("container1-0"),
		}, "CgroupFrozen critical; InspectHang critical < CgroupFrozen"},
		{"the runtime's slice is frozen", []tweak{surfaces(freeze(
			host.FrozenCgroup{Path: "/system.slice", Self: true},
			host.FrozenCgroup{
				Path: "/system.slice/containerd.service", Tasks: 9,
				Owner: host.Owner{Unit: "containerd.service"},
			},
		)), hangs(everyRPC()...)}, "CgroupFrozen critical; RuntimeHung critical < CgroupFrozen"},
		{"a task that slept when it was frozen", []tweak{
			surfaces(blocked(sleeper), freeze(frozenPod())),
			statusHangs("container1-0"),
		}, "CgroupFrozen critical; InspectHang critical < CgroupFrozen"},
		{
			"a task that slept when all pods were frozen",
			[]tweak{
				surfaces(blocked(sleeper), freeze(host.FrozenCgroup{Path: "/kubepods", Self: true, Tasks: 900})),
				statusHangs("container1-0"),
			},
			"CgroupFrozen critical; InspectHang critical < CgroupFrozen",
		},
		{"a task that keeps its group from freezing", []tweak{surfaces(blocked(local), func(n *facts.Node) {
			g := frozenPod()
			g.Freezing = true
			freeze(g)(n)
		}), statusHangs("container1-0")}, "CgroupFrozen critical; TaskStuck critical < CgroupFrozen; InspectHang " +
			"critical < TaskStuck"},
		{"frozen by a parent", []tweak{without(func(g *host.FrozenCgroup) { g.Self = false })}, ""},
		{"frozen and empty", []tweak{without(func(g *host.FrozenCgroup) { g.Tasks = 0 })}, ""},
		{"a user's session", []tweak{without(func(g *host.FrozenCgroup) {
			g.Path,
				g.Owner = "/user.slice/user-1000.slice", host.Owner{}
		})}, ""},
		{"a container of docker's own", []tweak{without(func(g *host.FrozenCgroup) {
			g.Path, g.Owner = "/system.slice/docker-abc.scope", host.Owner{ObjectID: "abc"}
		})}, ""},
		{"a container of unknown owner, the runtime is down", []tweak{without(func(g *host.FrozenCgroup) {
			g.Path, g.Owner = "/system.slice/docker-abc.scope", host.Owner{ObjectID: "abc"}
		}), socket(crictl.ConnectRefused, "refused")}, "RuntimeDown critical; CgroupFrozen warning"},
		{"a container without a kubelet", []tweak{without(func(g *host.FrozenCgroup) {
			g.Path, g.Owner = "/k8s.io/container1-0", host.Owner{ObjectID: "container1-0"}
		})}, "CgroupFrozen warning"},
		{"all pods", []tweak{without(func(g *host.FrozenCgroup) {
			g.Path, g.Owner = "/kubepods.slice",
				host.Owner{}
		})}, "CgroupFrozen critical"},
		{"the runtime's group", []tweak{surfaces(freeze(host.FrozenCgroup{
			Path: "/system.slice/containerd.service",
			Self: true, Tasks: 9, Owner: host.Owner{
				Unit: "containerd.service",
				Role: host.RoleRuntime,
			},
		})), hangs(everyRPC()...)}, "CgroupFrozen critical; RuntimeHung critical < " +
			"CgroupFrozen"},

		{"a stopped shim", []tweak{surfaces(stopped), shimmed}, "ShimStuck warning"},
		{
			"a stopped shim and its pod's status",
			[]tweak{surfaces(stopped), shimmed, statusHangs("container1-0")},
			"ShimStuck critical; InspectHang critical < ShimStuck",
		},
		{
			"a stopped shim and another pod's status",
			[]tweak{surfaces(stopped), shimmed, statusHangs("container2-0")},
			"InspectHang critical; ShimStuck warning",
		},
		{"a shim that is not listed", []tweak{surfaces(), shimmed, orphan("gone", time.Hour)}, ""},
		{"one that the kubelet cannot remove", []tweak{
			surfaces(), shimmed, orphan("gone", facts.ShimSettled),
			said(signs(signature.RemoveFailed, 9, 9*time.Minute, time.Second, "RemovePodSandbox failed",
				"gone")),
		}, "ShimStuck warning"},
		{"the same, new", []tweak{
			surfaces(), shimmed, orphan("gone", facts.ShimSettled-time.Second),
			said(signs(signature.RemoveFailed, 9, 9*time.Minute, time.Second, "RemovePodSandbox failed", "gone")),
		}, ""},

		{"systemd is silent", []tweak{surfaces(silent)}, "SystemdWedged critical"},
		{"systemd is silent, cgroupfs", []tweak{surfaces(silent, func(n *facts.Node) {
			n.Settings.Value.CgroupDriver,
				n.RuntimeDriver.Value = "cgroupfs", "cgroupfs"
		})}, "SystemdWedged warning"},
		{
			"systemd is silent, the runtime hangs",
			[]tweak{surfaces(silent), hangs(everyRPC()...)},
			"SystemdWedged critical; RuntimeHung critical < SystemdWedged",
		},
		{
			"systemd is silent, and a runc waits",
			[]tweak{surfaces(silent), withRunc, statusHangs("container1-0")},
			"SystemdWedged critical; InspectHang critical < SystemdWedged",
		},
		{
			"systemd is silent, and no runc waits",
			[]tweak{surfaces(silent), statusHangs("container1-0")},
			"SystemdWedged critical; InspectHang critical",
		},
		{"the bus is silent", []tweak{surfaces(systemd(func(s *host.Systemd) {
			s.BusAnswered, s.BusHung = false,
				true
		}))}, "SystemdWedged critical"},
		{"no systemd", []tweak{surfaces(func(n *facts.Node) {
			n.Systemd = facts.Reading[host.Systemd]{Skipped: true, Missing: "no systemd here"}
		})}, ""},
		{
			"systemd is not so slow",
			[]tweak{surfaces(systemd(func(s *host.Systemd) { s.Took = 4999 * time.Millisecond }))},
			"",
		},
		{
			"systemd is slow",
			[]tweak{surfaces(systemd(func(s *host.Systemd) { s.Took = 5 * time.Second }))},
			"SystemdWedged warning",
		},
		{"units, not so many", []tweak{surfaces(systemd(func(s *host.Systemd) { s.Inactive = 4999 }))}, ""},
		{
			"units leak",
			[]tweak{surfaces(systemd(func(s *host.Systemd) { s.Inactive = 5000 }))},
			"SystemdWedged warning",
		},
		{"jobs, at boot", []tweak{surfaces(systemd(func(s *host.Systemd) { s.Jobs, s.State = 900, "starting" }))}, ""},
		{"jobs wait", []tweak{surfaces(systemd(func(s *host.Systemd) { s.Jobs = 500 }))}, "SystemdWedged warning"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, chain(node(tt.tweaks...))); diff != "" {
				t.Error(diff)
			}
		})
	}
}
