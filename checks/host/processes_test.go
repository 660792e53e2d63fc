package host

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/crictl/deadline"
	"github.com/kdiag/kdiag/internal/testkit"
)

func TestProcesses(t *testing.T) {
	n := newNode(t)
	n.process(1, 0, "systemd", 'S', "/sbin/init")
	n.process(2, 0, "kthreadd", 'S', "")
	n.process(50, 1, "containerd", 'S', "/usr/bin/containerd --config /etc/c.toml")
	n.Write("proc/50/status", fixture(t, "status"))
	n.process(51, 1, "containerd", 'S', "/usr/bin/containerd publish --topic /tasks/exit") // by its arguments no daemon
	n.process(60, 50, "bridge", 'S', "/opt/cni/bin/bridge")
	n.Write("proc/60/environ", "CNI_COMMAND=ADD\x00CNI_CONTAINERID="+idB+"\x00CNI_NETNS=/run/netns/x\x00"+
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=web;K8S_POD_NAME=cart-1;K8S_POD_UID=uid-1\x00")
	n.process(61, 60, "host-local", 'S', "host-local")
	n.process(63, 50, "weird", 'S', "/srv/net/weird") // a plugin, whatever its name
	n.Write("proc/63/environ", "CNI_COMMAND=DEL\x00CNI_CONTAINERID="+idB+"\x00")
	const shim = "containerd-shim-runc-v2"
	n.process(70, 1, "containerd-shim", 'T', "/usr/bin/"+shim+" -namespace k8s.io -address /run/c.sock -id "+idA)
	n.Write("proc/70/wchan", "do_signal_stop")
	n.process(80, 70, "runc", 'D', "runc kill "+idB+" 9") // in uninterruptible sleep: its arguments are not read
	n.Write("proc/80/wchan", "rpc_wait_bit_killable")
	n.process(81, 80, "runc:[2:INIT]", 'S', "runc init")
	n.process(83, 70, "sleep", 'S', "sleep 1000")
	// A wrapper of runc, by its arguments and its parent, what it runs, and a shim that is being started.
	n.process(86, 70, "sh", 'S', "/bin/sh /srv/wrap --root /r --log /x create --bundle /run/bundle "+idB)
	n.Write("run/bundle/config.json", `{"annotations":{"io.kubernetes.cri.container-type":"sandbox",`+
		`"io.kubernetes.cri.sandbox-namespace":"web","io.kubernetes.cri.sandbox-name":"cart-2"}}`)
	n.process(87, 86, "sleep", 'S', "sleep 1")
	n.process(91, 70, "busybox", 'S', "busybox sleep 9") // a wrapper that became another program
	for pid, link := range map[int]string{70: "mnt:[1]", 83: "mnt:[2]", 91: "mnt:[1]"} {
		n.Link(procFile(pid, "ns/mnt"), link)
	}
	n.process(88, 50, "containerd-shim", 'S',
		"/usr/bin/"+shim+" -namespace k8s.io -address /run/c.sock -id "+idB+" start")
	n.process(89, 1, "containerd-shim", 'D', "-") // not read: its bundle is its working directory
	n.Link("proc/89/cwd", "/run/containerd/"+taskDir+"/k8s.io/"+idB)
	n.process(90, 1, "kubelet", 'S', "/usr/bin/kubelet")
	n.Write(
		"proc/99/stat", "garbage", "proc/self/stat", statLine(stat{pid: 100, ppid: 1, comm: "containerd", state: 'S'}),
	)
	cart := Object{Kind: KindPodSandbox, ID: idB, Namespace: "web", Pod: "cart-1", PodUID: "uid-1"}
	cart2 := Object{Kind: KindPodSandbox, ID: idB, Namespace: "web", Pod: "cart-2"}
	inK8s := func(p *Process) { p.Address, p.Namespace, p.Program = "/run/c.sock", "k8s.io", shim }
	is := func(state byte, wchan string) func(*Process) {
		return func(p *Process) { p.State, p.Wchan = state, wchan }
	}
	does := func(work string, serves Object, daemon int) func(*Process) {
		return func(p *Process) { p.Work, p.Serves, p.Daemon = work, serves, daemon }
	}
	of := func(pid, ppid int, name string, role Role, id string, changes ...func(*Process)) Process {
		p := Process{
			PID: pid, PPID: ppid, Name: name, Role: role, ObjectID: id, State: 'S', Threads: 1, Started: started(pid),
		}
		for _, change := range changes {
			change(&p)
		}
		return p
	}
	equal(t, "Processes", []Process{
		of(50, 1, "containerd", RoleRuntime, "", func(p *Process) { p.Config = "/etc/c.toml" }),
		of(60, 50, "bridge", RoleCNI, idB, does("ADD", cart, 50)),
		of(61, 60, "host-local", RoleCNI, "", does("", cart, 50)),
		of(63, 50, "weird", RoleCNI, idB, does("DEL", Object{Kind: KindPodSandbox, ID: idB}, 50)),
		of(70, 1, "containerd-shim", RoleShim, idA, inK8s, is('T', "do_signal_stop")),
		of(80, 70, "runc", RoleOCI, idA, inK8s, is('D', "rpc_wait_bit_killable")),
		of(81, 80, "runc:[2:INIT]", RoleOCI, idA, inK8s),
		of(86, 70, "sh", RoleOCI, idB, inK8s, does("create", cart2, 0)),
		of(87, 86, "sleep", RoleOCI, idB, inK8s, does("", cart2, 0)),
		of(88, 50, "containerd-shim", RoleShim, idB, inK8s, does("start", Object{}, 50)),
		of(89, 1, "containerd-shim", RoleShim, idB, is('D', ""), func(p *Process) { p.Namespace = "k8s.io" }),
		of(90, 1, "kubelet", RoleKubelet, ""),
		of(91, 70, "busybox", RoleOCI, idA, inK8s),
	}, n.processes().Processes())
}

// TestAgain checks that only a sleep in which two reads agree on process, state and place counts as lasting.
func TestAgain(t *testing.T) {
	n := newNode(t)
	for pid := 50; pid <= 55; pid++ {
		n.process(pid, 1, "crun", 'D', "crun")
		n.Write(procFile(pid, "wchan"), "rpc_wait")
	}
	n.process(60, 1, "containerd", 'T', "containerd -c /etc/c.toml")
	processes := n.processes()
	n.stat(stat{pid: 51, ppid: 1, comm: "crun", state: 'S'})
	n.Write("proc/52/wchan", "io_schedule")
	n.stat(stat{pid: 53, ppid: 1, comm: "crun", state: 'D', start: 99999})
	must(t, os.RemoveAll(filepath.Join(n.Root, "proc/54")))
	again, err := processes.Again(t.Context())
	must(t, err)
	got := map[int]bool{}
	for _, p := range again {
		got[p.PID] = p.Lasting
	}
	equal(t, "lasting", map[int]bool{50: true, 51: false, 52: false, 55: true, 60: false}, got)
	equal(t, "the configuration", "/etc/c.toml", again[len(again)-1].Config)
}

// TestNextPopulation reads of what has been there for a minute nothing but the state: what it is has been read before.
func TestNextPopulation(t *testing.T) {
	n := newNode(t)
	n.process(50, 1, "containerd", 'S', "containerd -c /etc/c.toml")
	n.process(51, 1, "containerd", 'S', "containerd -c /etc/c.toml")
	n.process(60, 50, "sh", 'S', "sh -c x")
	n.process(61, 50, "sh", 'S', "sh -c x")
	before := n.processes()
	n.stat(stat{pid: 50, ppid: 1, comm: "containerd", state: 'D'})
	n.stat(stat{pid: 51, ppid: 1, comm: "containerd", state: 'S', start: 99999})
	for _, pid := range []int{50, 51} {
		n.Write(procFile(pid, "cmdline"), "containerd\x00-c\x00/etc/new.toml\x00")
	}
	for _, pid := range []int{60, 61} {
		n.Write(procFile(pid, "environ"), "CNI_COMMAND=ADD\x00CNI_CONTAINERID="+idB+"\x00")
	}
	n.stat(stat{pid: 61, ppid: 50, comm: "bridge", state: 'S'})
	processes, err := ReadPopulation(t.Context(), n.Root, testNames, before)
	must(t, err)
	got := map[int]string{}
	for _, p := range processes.Processes() {
		got[p.PID] = string(p.State) + p.Config + string(p.Role)
	}
	equal(t, "processes", map[int]string{
		50: "D/etc/c.toml" + string(RoleRuntime), 51: "S/etc/new.toml" + string(RoleRuntime), 61: "S" + string(RoleCNI),
	}, got)
}

// TestProcessesBlocked holds the reader in a command line that never ends: the roles are known by name, or stay as they
// were known before. That of a process in uninterruptible sleep is not read at all. A service leaves the reader alone.
func TestProcessesBlocked(t *testing.T) {
	n := newNode(t)
	n.process(50, 1, "containerd", 'S', "/usr/bin/containerd")
	n.process(60, 1, "containerd-shim", 'S', "/usr/bin/containerd-shim-runc-v2 -namespace k8s.io -id "+idA)
	before := n.processes()
	n.process(70, 1, "containerd-shim", 'S', "-")
	n.process(71, 70, "runc", 'S', "runc kill "+idB)
	n.process(72, 1, "conmon", 'D', "-")
	n.fifo("proc/72/cmdline")
	var g deadline.Guard
	held := deadline.WithGuard(untilRead(t, n.fifo("proc/70/cmdline")), &g)
	processes, err := ReadPopulation(held, n.Root, testNames, before)
	failed(t, "blocked", err, "cmdline of process 70 (containerd-shim)")
	equal(t, "Processes", []Process{
		{PID: 50, PPID: 1, Name: "containerd", Role: RoleRuntime, State: 'S', Threads: 1, Started: started(50)},
		before.roles[60],
		{PID: 70, PPID: 1, Name: "containerd-shim", Role: RoleShim, State: 'S', Threads: 1, Started: started(70)},
		{PID: 71, PPID: 70, Name: "runc", Role: RoleOCI, State: 'S', Threads: 1, Started: started(71)},
		{PID: 72, PPID: 1, Name: "conmon", Role: RoleShim, State: 'D', Threads: 1, Started: started(72)},
	}, processes.Processes())
	again, err := ReadPopulation(deadline.WithGuard(t.Context(), &g), n.Root, testNames, processes)
	failed(t, "reading again", err, "reading processes has been under way")
	equal(t, "what was known", processes.Processes(), again.Processes())
}

// TestHidden checks that no processes, and what a user sees of its own, do not count as all.
func TestHidden(t *testing.T) {
	n := &node{testkit.NewTree(t)}
	of := func() (Population, error) { return ReadPopulation(t.Context(), n.Root, testNames, Population{}) }
	_, err := of()
	failed(t, "without /proc", err, "no such file")
	n.Path("proc/x")
	_, err = of()
	failed(t, "none", err, "proc is empty")
	n.process(50, 1, "containerd", 'S', "/usr/bin/containerd")
	n.Link("proc/self", "50")
	processes, err := of()
	failed(t, "hidden", err, "hidepid")
	_, err = ReadPopulation(canceled(t), n.Root, testNames, Population{})
	failed(t, "cut short", err, "canceled")
	equal(t, "processes", 1, len(processes.Processes()))
	n.process(1, 0, "sh", 'S', "sh") // only root sees it, who sees all
	n.Link("proc/1/ns/pid", "pid:[4026532500]")
	n.processes() // a node in a PID namespace, as k3d makes them
	n.process(50, 1, "kdiag", 'S', "kdiag pleg")
	_, err = of()
	failed(t, "a pod's", err, "another PID namespace, of sh")
	n.process(1, 0, "systemd", 'S', "/sbin/init")
	n.processes() // as kind makes them, where nothing runs any more
}

// TestReadStat has names that imitate other fields.
func TestReadStat(t *testing.T) {
	for _, comm := range []string{"containerd-shim", "tmux: server", "(sd-pam)", "x) R 1 (y", "runc:[2:INIT]"} {
		want := stat{pid: 9, ppid: 8, comm: comm, state: 'D', start: 5, kernel: true, threads: 12}
		got, err := parseStat(statLine(want))
		failed(t, comm, err, "")
		equal(t, comm, want, got, cmp.AllowUnexported(stat{}))
	}
	_, err := parseStat("9 (x) S 1 2")
	failed(t, "a torn file", err, "malformed stat")
}

// BenchmarkReadPopulation reads the processes of this machine: for the first time, and again, as a service does at each
// look.
func BenchmarkReadPopulation(b *testing.B) {
	first, err := ReadPopulation(b.Context(), "/", testNames, Population{})
	if err != nil {
		b.Fatal(err)
	}
	for name, before := range map[string]Population{"first": {}, "next": first} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := ReadPopulation(b.Context(), "/", testNames, before); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(first.all)), "processes")
		})
	}
}
