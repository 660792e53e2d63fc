package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var testNames = Names{
	Runtimes: []string{"containerd", "crio", "dockerd", "cri-dockerd"}, Shims: []string{"containerd-shim*", "conmon", "conmonrs"},
	DataDirs: []string{"/var/lib/containerd"}, StateDirs: []string{"/run/containerd"},
}

// A node is a fixture tree of a node's files.
type node struct {
	t    testing.TB
	root string
}

// people is what there is to see of the node's processes.
func (n *node) people() Population {
	n.t.Helper()
	people, err := ReadPopulation(n.t.Context(), n.root, testNames)
	if err != nil {
		n.t.Fatal(err)
	}
	return people
}

func newNode(t testing.TB) *node {
	n := &node{t, t.TempDir()}
	n.write("proc/stat", "cpu  1 2 3 4 5 6 7 8 9 10\nbtime 1000\n")
	return n
}

// statLine writes a /proc/PID/stat line as the kernel does, with 52 fields, of a process with one thread.
func statLine(pid int, comm string, state byte, ppid int, start uint64) string {
	return statLineOf(stat{pid: pid, comm: comm, state: state, ppid: ppid, start: start, threads: 1})
}

// statLineOf writes all that is kept of a stat line.
func statLineOf(st stat) string {
	flags := 0
	if st.kernel {
		flags = kernelThread
	}
	return fmt.Sprintf("%d (%s) %c %d 0 0 0 -1 %d 0 0 0 0 0 3 0 0 20 0 %d 0 %d 0 %d 18446744073709551615", st.pid, st.comm, st.state, st.ppid,
		flags, st.threads, st.start, st.rss/os.Getpagesize()) + strings.Repeat(" 0", 27) + "\n"
}

func (n *node) write(name, content string) {
	n.t.Helper()
	file := filepath.Join(n.root, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) link(name, target string) {
	n.t.Helper()
	file := filepath.Join(n.root, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.Symlink(target, file); err != nil {
		n.t.Fatal(err)
	}
}

// process adds a process that started a second after boot for each of its pid.
func (n *node) process(pid, ppid int, comm string, state byte, args string) {
	dir := "proc/" + strconv.Itoa(pid) + "/"
	line := statLine(pid, comm, state, ppid, uint64(pid)*userHZ)
	n.write(dir+"stat", line)
	n.write(dir+"task/"+strconv.Itoa(pid)+"/stat", line)
	n.write(dir+"cmdline", strings.ReplaceAll(args, " ", "\x00")+"\x00")
	n.write(dir+"wchan", "0")
}

func started(pid int) time.Time { return time.Unix(1000+int64(pid), 0) }

// read makes the scan and returns the processes with a role.
func (n *node) read() ([]Process, error) {
	people, err := ReadPopulation(n.t.Context(), n.root, testNames)
	return people.Processes(), err
}

func TestProcesses(t *testing.T) {
	n := newNode(t)
	n.process(1, 0, "systemd", 'S', "/sbin/init")
	n.process(2, 0, "kthreadd", 'S', "")
	n.process(50, 1, "containerd", 'S', "/usr/bin/containerd --config /etc/c.toml")
	n.write("proc/50/status", string(fixture(t, "status")))
	n.process(60, 50, "bridge", 'S', "/opt/cni/bin/bridge")
	n.write("proc/60/environ", "CNI_COMMAND=ADD\x00CNI_CONTAINERID="+idB+"\x00CNI_NETNS=/run/netns/x\x00")
	n.process(61, 60, "host-local", 'S', "host-local")
	n.process(62, 50, "unpigz", 'R', "unpigz -d -c")
	n.process(70, 1, "containerd-shim", 'T', "/usr/bin/containerd-shim-runc-v2 -namespace k8s.io -id "+idA)
	n.write("proc/70/wchan", "do_signal_stop")
	n.process(80, 70, "runc", 'D', "runc kill "+idB+" 9")
	n.write("proc/80/wchan", "rpc_wait_bit_killable")
	n.process(81, 80, "runc:[2:INIT]", 'S', "runc init")
	n.process(82, 80, "runc:[1:CHILD]", 'S', "runc init")
	n.write("proc/82/cgroup", "0::/kubepods/pod1/"+idB+"\n")
	n.process(83, 70, "sleep", 'S', "sleep 1000")
	n.process(84, 83, "dockerd", 'S', "dockerd")                               // in a pod: not this node's
	n.process(85, 84, "containerd-shim", 'S', "containerd-shim-runc-v2 -id x") // nor this
	n.process(90, 1, "kubelet", 'S', "/usr/bin/kubelet")
	n.write("proc/90/status", "Name:\tkubelet\nNSpid:\t90\n")
	n.process(95, 1, "kubelet", 'T', "/usr/bin/kubelet") // of a node that is a container on this host
	n.write("proc/95/status", "Name:\tkubelet\nNSpid:\t95\t7\n")
	n.write("proc/99/stat", "garbage")
	n.write("proc/self/stat", statLine(100, "containerd", 'S', 1, 1))
	if err := os.MkdirAll(filepath.Join(n.root, "proc/98"), 0o755); err != nil { // vanished
		t.Fatal(err)
	}

	got, err := n.read()
	if err != nil {
		t.Fatal(err)
	}
	want := []Process{
		{PID: 50, PPID: 1, Name: "containerd", Role: RoleRuntime, State: 'S', Started: started(50), Config: "/etc/c.toml"},
		{PID: 60, PPID: 50, Name: "bridge", Role: RoleCNI, ObjectID: idB, State: 'S', Started: started(60)},
		{PID: 61, PPID: 60, Name: "host-local", Role: RoleCNI, State: 'S', Started: started(61)},
		{PID: 70, PPID: 1, Name: "containerd-shim", Role: RoleShim, ObjectID: idA, State: 'T', Wchan: "do_signal_stop", Started: started(70)},
		{
			// Its arguments were not read, so it gets the shim's object.
			PID: 80, PPID: 70, Name: "runc", Role: RoleOCI, ObjectID: idA, State: 'D', Wchan: "rpc_wait_bit_killable",
			Started: started(80),
		},
		{PID: 81, PPID: 80, Name: "runc:[2:INIT]", Role: RoleOCI, ObjectID: idA, State: 'S', Started: started(81)},
		{PID: 82, PPID: 80, Name: "runc:[1:CHILD]", Role: RoleOCI, ObjectID: idB, State: 'S', Started: started(82)},
		{PID: 90, PPID: 1, Name: "kubelet", Role: RoleKubelet, State: 'S', Started: started(90)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Processes (-want +got):\n%s", diff)
	}
}

func TestProcessesWithoutProc(t *testing.T) {
	n := &node{t, t.TempDir()}
	if _, err := n.read(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without /proc: error %v, want one that says it does not exist", err)
	}
	if _, err := (Population{}).Again(t.Context()); err == nil {
		t.Error("of processes that nobody listed: no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n = newNode(t)
	n.process(50, 1, "containerd", 'S', "/usr/bin/containerd")
	if _, err := ReadPopulation(ctx, n.root, testNames); !errors.Is(err, context.Canceled) {
		t.Errorf("with a canceled context: error %v, want %v", err, context.Canceled)
	}
}

// TestAgain wants two reads to agree on process, state and place before a sleep counts as lasting.
func TestAgain(t *testing.T) {
	n := newNode(t)
	for pid := 50; pid <= 55; pid++ {
		n.process(pid, 1, "crun", 'D', "crun")
		n.write(fmt.Sprintf("proc/%d/wchan", pid), "rpc_wait")
	}
	n.process(60, 1, "containerd", 'T', "containerd -c /etc/c.toml")
	people := n.people()
	n.write("proc/51/stat", statLine(51, "crun", 'S', 1, 51*userHZ))
	n.write("proc/52/wchan", "io_schedule")
	n.write("proc/53/stat", statLine(53, "crun", 'D', 1, 99999))
	if err := os.RemoveAll(filepath.Join(n.root, "proc/54")); err != nil {
		t.Fatal(err)
	}
	again, err := people.Again(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[int]bool{}
	for _, p := range again {
		got[p.PID] = p.Lasting
	}
	want := map[int]bool{50: true, 51: false, 52: false, 55: true, 60: false}
	if diff := cmp.Diff(want, got); diff != "" || again[len(again)-1].Config != "/etc/c.toml" {
		t.Errorf("lasting (-want +got):\n%s%+v", diff, again)
	}
}

// untilRead returns a context that ends when somebody has opened a FIFO and waits in it, until the test ends.
func untilRead(t *testing.T, fifo string) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	held := make(chan *os.File, 1)
	go func() {
		w, err := os.OpenFile(fifo, os.O_WRONLY, 0) // returns when the reader has opened it
		if err != nil {
			t.Error(err)
		}
		held <- w
		cancel()
	}()
	t.Cleanup(func() {
		if f, err := os.OpenFile(fifo, os.O_RDWR, 0); err == nil { // lets go of the goroutine if nobody came
			defer f.Close()
		}
		if w := <-held; w != nil {
			w.Close()
		}
	})
	return ctx
}

// fifo puts one in the place of a file: a reader waits in it as in a file of a process whose memory map is locked.
func (n *node) fifo(name string) string {
	n.t.Helper()
	file := filepath.Join(n.root, name)
	_ = os.Remove(file)
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		n.t.Fatal(err)
	}
	return file
}

// TestProcessesBlocked holds the reader in a command line that is never answered: the roles are known by name. That of a
// process in uninterruptible sleep is not read at all.
func TestProcessesBlocked(t *testing.T) {
	n := newNode(t)
	n.process(50, 1, "containerd", 'S', "/usr/bin/containerd")
	n.process(70, 1, "containerd-shim", 'S', "-")
	n.process(71, 70, "runc", 'S', "runc kill "+idB)
	n.process(72, 1, "conmon", 'D', "-")
	n.fifo("proc/72/cmdline")
	people, err := ReadPopulation(untilRead(t, n.fifo("proc/70/cmdline")), n.root, testNames)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "cmdline of process 70 (containerd-shim)") {
		t.Errorf("error %v, want one that names the command line that was being read", err)
	}
	want := []Process{
		{PID: 50, PPID: 1, Name: "containerd", Role: RoleRuntime, State: 'S', Started: started(50)},
		{PID: 70, PPID: 1, Name: "containerd-shim", Role: RoleShim, State: 'S', Started: started(70)},
		{PID: 71, PPID: 70, Name: "runc", Role: RoleOCI, State: 'S', Started: started(71)},
		{PID: 72, PPID: 1, Name: "conmon", Role: RoleShim, State: 'D', Started: started(72)},
	}
	if diff := cmp.Diff(want, people.Processes()); diff != "" {
		t.Errorf("Processes (-want +got):\n%s", diff)
	}
}

// TestByWorth wants first what matters.
func TestByWorth(t *testing.T) {
	n := newNode(t)
	n.process(10, 1, "nginx", 'S', "nginx")
	n.process(20, 1, "containerd", 'S', "containerd")
	n.process(30, 1, "containerd-shim", 'S', "containerd-shim-runc-v2 -id x")
	n.process(31, 30, "sleep", 'S', "sleep")
	n.process(40, 1, "kubelet", 'S', "kubelet")
	n.write("proc/2/stat", statLineOf(stat{pid: 2, comm: "kthreadd", state: 'S', kernel: true, threads: 1}))
	var order []int
	for _, st := range n.people().byWorth() {
		order = append(order, st.pid)
	}
	if diff := cmp.Diff([]int{20, 40, 30, 10, 31, 2}, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// TestHidden counts what a user sees of himself, and does not take it for all.
func TestHidden(t *testing.T) {
	n := newNode(t)
	n.process(50, 1, "containerd", 'S', "/usr/bin/containerd")
	n.link("proc/self", "50")
	if list, err := n.read(); len(list) != 1 || err == nil || !strings.Contains(err.Error(), "hidepid") {
		t.Errorf("%v, error %v", list, err)
	}
	n.process(1, 0, "systemd", 'S', "/sbin/init") // who sees it sees all
	if _, err := n.read(); err != nil {
		t.Error(err)
	}
}

// TestProcessesOfUsers has programs of the node's names that other users run.
func TestProcessesOfUsers(t *testing.T) {
	n := newNode(t)
	for pid, uid := range map[int]string{50: "0\t0", 51: "65534\t65534", 52: "65534\t0"} {
		for i, comm := range []string{"kubelet", "containerd"} {
			pid := pid + 10*i
			n.process(pid, 1, comm, 'S', comm)
			n.write(fmt.Sprintf("proc/%d/status", pid), "Name:\t"+comm+"\nUid:\t"+uid+"\t0\t0\n")
		}
	}
	list, err := n.read()
	if err != nil || len(list) != 2 || list[0].PID != 50 || list[1].PID != 60 {
		t.Fatalf("%+v, error %v; want root's alone", list, err)
	}
}

func TestOne(t *testing.T) {
	n := newNode(t)
	n.process(29, 1, "python3", 'T', "python3 x")
	people := n.people()
	got, err := people.One(29)
	if want := (Process{PID: 29, PPID: 1, Name: "python3", State: 'T', Started: started(29)}); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	if _, err := people.One(30); err == nil {
		t.Error("a process that is not there")
	}
}

// TestReadStat has names that imitate other fields, and files that are torn.
func TestReadStat(t *testing.T) {
	for _, comm := range []string{"containerd-shim", "tmux: server", "(sd-pam)", "x) R 1 (y", "runc:[2:INIT]"} {
		n := newNode(t)
		want := stat{pid: 9, ppid: 8, comm: comm, state: 'D', start: 5, kernel: true, threads: 12, rss: 3 * os.Getpagesize()}
		n.write("proc/9/stat", statLineOf(want))
		if got := n.people().all[9]; got != want {
			t.Errorf("read %+v, want %+v", got, want)
		}
	}
	for _, torn := range []string{"", "9 (x", "9 (x) S 1 2", "9 )x( S 1", strings.Replace(statLine(9, "x", 'S', 8, 5), ") S", ") SS", 1)} {
		n := newNode(t)
		n.write("proc/9/stat", torn)
		if got, ok := n.people().all[9]; ok {
			t.Errorf("%q is %+v", torn, got)
		}
	}
}

func FuzzReadStat(f *testing.F) {
	f.Add(statLine(812, "containerd-shim", 'S', 1, 4711))
	f.Add(statLine(9, "x) R 1 (y", 'T', 8, 5))
	f.Add("1 () Z 0")
	f.Fuzz(func(t *testing.T, line string) {
		n := newNode(t)
		n.write("proc/9/stat", line)
		p := n.people()
		p.processGroups(nil)
		p.byWorth()
		if st, ok := p.all[9]; ok && (st.pid != 9 || st.ppid < 0) {
			t.Errorf("%q is %+v", line, st)
		}
	})
}

func BenchmarkProcesses(b *testing.B) {
	n := newNode(b)
	for pid := range 2000 {
		n.process(pid+10, 1, "nginx", 'S', "nginx")
	}
	for pid := range 100 {
		n.process(pid+5000, 1, "containerd-shim", 'S', "containerd-shim-runc-v2 -namespace k8s.io -id "+idA)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := n.read(); err != nil {
			b.Fatal(err)
		}
	}
}
