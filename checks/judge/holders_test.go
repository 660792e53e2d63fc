package judge

import (
	stdcmp "cmp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
)

// shortOfMemory is a node of 100 GiB with little left, and who has what.
func shortOfMemory(h host.Consumers) tweak {
	return seen(func(n *facts.Node) {
		n.Memory.Value = host.Memory{Total: 100 << 30, Available: 90 << 20}
		n.Pressure.Value.Memory.Full = some(6)
		n.Holders = good(h)
	})
}

// shortOfPIDs is a node with 1,000 processes, which is its limit, and who has what.
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

// TestCulprits holds who of the holders is named, and who of them as the culprit.
func TestCulprits(t *testing.T) {
	const gib = 1 << 30
	resident := func(bytes uint64) []host.ResidentMemory {
		return []host.ResidentMemory{{PID: 7, Name: "java", Bytes: bytes, Owner: host.Owner{PodUID: "uid-1"}}}
	}
	limit := func(c host.CgroupUsage, h host.Consumers) tweak {
		return seen(func(n *facts.Node) {
			c.Usage = host.Usage{Current: 1000, Max: 1000}
			n.PIDs.Value.Cgroups, n.Holders = []host.CgroupUsage{c}, good(h)
		})
	}
	for _, tt := range []struct {
		name  string
		tweak tweak
		want  []string // the subject, then the others
	}{
		{
			"a pod with a tenth", shortOfMemory(host.Consumers{Memory: []host.Consumer{group("uid-1", 10*gib)}}),
			[]string{"Cgroup checkout-1"},
		},
		{
			"a pod with less", shortOfMemory(host.Consumers{Memory: []host.Consumer{group("uid-1", 10*gib-1)}}),
			[]string{"Node memory", "Cgroup checkout-1"},
		},
		{
			"one of a hundred like pods", shortOfMemory(host.Consumers{Memory: []host.Consumer{group("uid-1", gib-1)}}),
			[]string{"Node memory"},
		},
		{
			"a unit with a tenth", shortOfMemory(host.Consumers{Memory: []host.Consumer{unit("etcd.service", 10*gib)}}),
			[]string{"Unit etcd.service"},
		},
		{
			"a unit with less", shortOfMemory(host.Consumers{Memory: []host.Consumer{unit("etcd.service", 10*gib-1)}}),
			[]string{"Node memory"},
		},
		{"a pod and its process", shortOfMemory(host.Consumers{
			Memory:   []host.Consumer{group("uid-1", 20*gib)},
			Resident: resident(19 * gib),
		}), []string{"Cgroup checkout-1", "Process java"}},
		{
			"a process, and groups that are not known", shortOfMemory(host.Consumers{Resident: resident(19 * gib)}),
			[]string{"Process java"},
		},
		{"a small pod and a large process", shortOfMemory(host.Consumers{Memory: []host.Consumer{group("uid-2",
			9*gib)}, Resident: resident(19 * gib)}), []string{"Process java", "Cgroup checkout-2"}},
		{"a process with less", shortOfMemory(host.Consumers{Resident: resident(10*gib - 1)}), []string{"Node memory"}},
		{"plenty is available", seen(func(n *facts.Node) {
			n.Pressure.Value.Memory.Full = some(20)
			n.Holders = good(host.Consumers{
				Memory: []host.Consumer{group("uid-1", 20*gib)}, // does no harm
				Stalled: []host.StalledGroup{{
					Path: "/kubepods/poduid-2", Full: some(5),
					Owner: host.Owner{PodUID: "uid-2"},
				}, {Path: "/x", Full: some(4.9)}},
			})
		}), []string{"Cgroup checkout-2"}},

		{
			"a pod of the node's processes", shortOfPIDs(host.Consumers{PIDs: []host.Consumer{group("uid-1", 100)}}),
			[]string{"Cgroup checkout-1"},
		},
		{
			"a pod with less of them", shortOfPIDs(host.Consumers{PIDs: []host.Consumer{group("uid-1", 99)}}),
			[]string{"Node process table", "Cgroup checkout-1"},
		},
		{"a parent of many", shortOfPIDs(host.Consumers{ProcessGroups: []host.ProcessGroup{{
			Name:      "sh",
			Processes: 100, Threads: 100, PID: 7, Parent: "cron",
		}}}), []string{"Process cron"}},
		{"a name", shortOfPIDs(host.Consumers{ProcessGroups: []host.ProcessGroup{{
			Name: "sh", Processes: 100,
			Threads: 100,
		}}}), []string{"Process sh"}},
		{"a name with fewer", shortOfPIDs(host.Consumers{ProcessGroups: []host.ProcessGroup{{
			Name:      "sh",
			Processes: 99, Threads: 99,
		}}}), []string{"Node process table"}},
		{"a parent of zombies, which are said already, and another", func(f *facts.Input) {
			shortOfPIDs(host.Consumers{ProcessGroups: []host.ProcessGroup{{
				Name: "sh", Processes: 500, Threads: 500,
				PID: 8, Parent: "node",
			}, {Name: "sh", Processes: 400, Threads: 400, PID: 7, Parent: "cron"}}})(f)
			f.Node.Tasks.Value.Zombies, f.Node.Tasks.Value.ZombiesByParent = 1000, []host.ZombieParent{{
				PID:  8,
				Name: "node", Count: 1000,
			}}
		}, []string{"Process cron"}},
		{"all pods at their limit", limit(host.CgroupUsage{Path: "/kubepods"},
			host.Consumers{PIDs: []host.Consumer{group("uid-1", 900)}}), []string{"Cgroup checkout-1", "Cgroup /kubepods"}},
		{"a unit at its limit", limit(host.CgroupUsage{
			Path:  "/s/etcd.service",
			Owner: host.Owner{Unit: "etcd.service"},
		}, host.Consumers{ProcessGroups: []host.ProcessGroup{{
			Name:      "sh",
			Processes: 1, Threads: 900, PID: 7,
		}}}), []string{"Unit etcd.service", "Process sh"}},
		{"a pod at its limit", limit(host.CgroupUsage{Path: "/kubepods/poduid-2", Owner: host.Owner{PodUID: "uid-2"}},
			host.Consumers{PIDs: []host.Consumer{group("uid-2",
				900)}}), []string{"Cgroup checkout-2", "Cgroup checkout-2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			named := Judge(node(tt.tweak))
			if len(named) != 1 {
				t.Fatalf("%d causes: %q", len(named), codes(named))
			}
			var got []string
			for _, s := range append([]checks.Subject{*named[0].Subject}, named[0].Related...) {
				got = append(got, s.Kind+" "+stdcmp.Or(stdcmp.Or(map[bool]string{true: s.Pod}[s.Kind == "Cgroup"],
					s.Name), s.ID))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestMemoryOfNoProcess wants tmpfs and the kernel's own memory said from a tenth on, each with its command.
func TestMemoryOfNoProcess(t *testing.T) {
	for _, tt := range []struct {
		name, line, command string
		set                 func(*host.Memory, uint64)
	}{
		{"tmpfs", "tmpfs or shared memory (Shmem)", "df -t tmpfs", func(m *host.Memory, n uint64) { m.Shmem = n }},
		{
			"kernel", "held by the kernel itself (SUnreclaim)", "slabtop",
			func(m *host.Memory, n uint64) { m.SlabUnreclaimable = n },
		},
	} {
		for bytes, want := range map[uint64]bool{10 << 30: true, 10<<30 - 1: false} {
			f := node(shortOfMemory(host.Consumers{}), func(f *facts.Input) { tt.set(&f.Node.Memory.Value, bytes) })
			c := only(t, f, causes.MemoryPressure)
			if got := mentions(c.Evidence.For, tt.line); got != want {
				t.Errorf("%s, %d bytes: said %v", tt.name, bytes, got)
			}
			if got := slices.ContainsFunc(c.NextSteps,
				func(s checks.NextStep) bool { return strings.HasPrefix(s.Command, tt.command) }); got != want {
				t.Errorf("%s, %d bytes: a step %v", tt.name, bytes, got)
			}
		}
	}
}

// TestEndOfHolders holds what is to be done about each kind of holder, and that no text of a node becomes a part of a
// command.
func TestEndOfHolders(t *testing.T) {
	static := func(f *facts.Input) {
		for i := range f.Measurement.Sandboxes.Sandboxes {
			f.Measurement.Sandboxes.Sandboxes[i].ConfigSource = "file"
		}
	}
	evil := group("uid-$(reboot)", 90<<30)
	evil.Dir = "/sys/fs/cgroup/'; reboot; '"
	up := unit("a b.service", 50<<30)
	up.Dir = "/sys/fs/cgroup/../../etc"
	for _, tt := range []struct {
		name   string
		holder host.Consumer
		tweak  tweak
		want   string // touches and command; of the hostile none
	}{
		{"a pod", group("uid-1", 90<<30), nil, "one pod: kubectl delete pod -n web checkout-1"},
		{"a static pod", group("uid-1", 90<<30), static, "nothing: ls -l /etc/kubernetes/manifests"},
		{
			"a pod that is not listed", group("0f4f4cd2-7b1a", 90<<30), nil,
			"nothing: ls -d /var/log/pods/*_0f4f4cd2-7b1a",
		},
		{
			"the same without lists", group("uid-1", 90<<30),
			func(f *facts.Input) {
				f.Measurement.Sandboxes, f.Measurement.Containers = nil,
					nil
			}, "nothing: ls -d /var/log/pods/*_uid-1",
		},
		{
			"a login", unit("session-3.scope", 90<<30), nil,
			"one process: systemctl kill --signal=SIGKILL session-3.scope",
		},
		{"a unit", unit("fluentd.service", 90<<30), nil, "nothing: systemctl status --no-pager fluentd.service"},
		{"hostile", evil, nil, ""},
		{"outside", up, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := node(shortOfMemory(host.Consumers{Memory: []host.Consumer{tt.holder}}))
			if tt.tweak != nil {
				tt.tweak(f)
			}
			var all []string
			for _, s := range only(t, f, causes.MemoryPressure).NextSteps {
				all = append(all, s.Touches+": "+s.Command)
			}
			said := strings.Join(all, "\n")
			if tt.want != "" && !strings.Contains(said, tt.want) || tt.want == "" &&
				(strings.Contains(said, "reboot") || strings.Contains(said, "a b") || strings.Contains(said, "..")) {
				t.Errorf("want %q:\n%s", tt.want, said)
			}
		})
	}
}
