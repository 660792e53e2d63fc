package judge

import (
	"cmp"
	"strings"
	"testing"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
)

const gib = 1 << 30

// shortOfMemory is a node of 100 GiB with little left, and its consumers.
func shortOfMemory(h host.Consumers) tweak {
	return seen(func(n *facts.Node) {
		n.Memory.Value = host.Memory{Total: 100 * gib, Available: 90 << 20}
		n.Pressure.Value.Memory.Full = some(6)
		n.Consumers = good(h)
	})
}

// shortOfPIDs is a node with 1,000 processes, which is its limit, and its consumers.
func shortOfPIDs(h host.Consumers) tweak {
	return seen(func(n *facts.Node) {
		n.PIDs.Value.Tasks, n.PIDs.Value.PIDMax = 1000, 1000
		n.Consumers = good(h)
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
			n.Consumers = good(host.Consumers{Memory: []host.Consumer{group("uid-1", 20*gib)}, Stalled: stalled})
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
