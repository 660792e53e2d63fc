package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A node is a fixture tree of a node's files.
type node struct {
	t    testing.TB
	root string
}

// people is what there is to see of the node's processes.
func (n *node) people() Population {
	n.t.Helper()
	people, err := ReadPopulation(n.t.Context(), n.root)
	if err != nil {
		n.t.Fatal(err)
	}
	return people
}

func newNode(t testing.TB) *node {
	n := &node{t, t.TempDir()}
	n.write("proc/stat", "cpu  1 2 3\nbtime 1000\n")
	return n
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

func TestProcesses(t *testing.T) {
	n := newNode(t)
	n.process(1, 0, "systemd", 'S', "/sbin/init")
	n.process(2, 0, "kthreadd", 'S', "")
	n.process(50, 1, "containerd", 'S', "/usr/bin/containerd")
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
	n.write("proc/90/task/91/stat", statLine(91, "kubelet", 'D', 1, 1))
	n.write("proc/90/task/91/wchan", "fuse_wait_answer")
	n.write("proc/90/task/92/stat", statLine(92, "kubelet", 'D', 1, 1))
	n.write("proc/90/status", "Name:\tkubelet\nNSpid:\t90\n")
	n.process(95, 1, "kubelet", 'T', "/usr/bin/kubelet") // of a node that is a container on this host
	n.write("proc/95/status", "Name:\tkubelet\nNSpid:\t95\t7\n")
	n.write("proc/99/stat", "garbage")
	n.write("proc/self/stat", statLine(100, "containerd", 'S', 1, 1))
	if err := os.MkdirAll(filepath.Join(n.root, "proc/98"), 0o755); err != nil { // vanished
		t.Fatal(err)
	}

	got, err := Processes(t.Context(), n.root)
	if err != nil {
		t.Fatal(err)
	}
	want := []Process{
		{PID: 50, PPID: 1, Name: "containerd", Role: RoleRuntime, State: 'S', Started: started(50)},
		{PID: 60, PPID: 50, Name: "bridge", Role: RoleCNI, ObjectID: idB, State: 'S', Started: started(60)},
		{PID: 61, PPID: 60, Name: "host-local", Role: RoleCNI, State: 'S', Started: started(61)},
		{PID: 70, PPID: 1, Name: "containerd-shim", Role: RoleShim, ObjectID: idA, State: 'T', Wchan: "do_signal_stop", Started: started(70)},
		{
			PID: 80, PPID: 70, Name: "runc", Role: RoleOCI, ObjectID: idB, State: 'D', Wchan: "rpc_wait_bit_killable",
			Started: started(80), BlockedThreads: 1,
		},
		{PID: 81, PPID: 80, Name: "runc:[2:INIT]", Role: RoleOCI, ObjectID: idB, State: 'S', Started: started(81)},
		{PID: 82, PPID: 80, Name: "runc:[1:CHILD]", Role: RoleOCI, ObjectID: idB, State: 'S', Started: started(82)},
		{PID: 90, PPID: 1, Name: "kubelet", Role: RoleKubelet, State: 'S', Started: started(90), BlockedThreads: 2, BlockedIn: "fuse_wait_answer"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Processes (-want +got):\n%s", diff)
	}
}

func TestProcessesWithoutProc(t *testing.T) {
	_, err := Processes(t.Context(), t.TempDir())
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Processes without /proc: error %v, want one that says it does not exist", err)
	}
}

func TestProcessesCanceled(t *testing.T) {
	n := newNode(t)
	n.process(50, 1, "containerd", 'S', "/usr/bin/containerd")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Processes(ctx, n.root); !errors.Is(err, context.Canceled) {
		t.Errorf("Processes with a canceled context: error %v, want %v", err, context.Canceled)
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

// TestProcessesBlocked holds the reader in a command line that is never answered, which a FIFO does as well as a
// locked memory map, and lets go of it only after Processes has returned.
func TestProcessesBlocked(t *testing.T) {
	n := newNode(t)
	n.process(50, 1, "containerd", 'S', "/usr/bin/containerd")
	n.process(70, 1, "containerd-shim", 'D', "-")
	n.process(71, 70, "runc", 'S', "runc kill "+idB)
	n.process(72, 1, "conmon", 'D', "conmon -c "+idA)
	fifo := filepath.Join(n.root, "proc/70/cmdline")
	if err := os.Remove(fifo); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Processes(untilRead(t, fifo), n.root)
	if err == nil || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "cmdline of process 70 (containerd-shim)") {
		t.Errorf("error %v, want one that names the command line that was being read", err)
	}
	want := []Process{
		{PID: 50, PPID: 1, Name: "containerd", Role: RoleRuntime, State: 'S', Started: started(50)},
		{PID: 70, PPID: 1, Name: "containerd-shim", Role: RoleShim, State: 'D', Started: started(70)},
		{PID: 71, PPID: 70, Name: "runc", Role: RoleOCI, ObjectID: idB, State: 'S', Started: started(71)},
		{PID: 72, PPID: 1, Name: "conmon", Role: RoleShim, State: 'D', Started: started(72)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Processes (-want +got):\n%s", diff)
	}
}

func TestStateWord(t *testing.T) {
	for state, want := range map[byte]string{'D': "uninterruptible sleep", 'T': "stopped", 'x': "state x"} {
		if got := (Process{State: state}).StateWord(); got != want {
			t.Errorf("StateWord of %c = %q, want %q", state, got, want)
		}
	}
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
		if _, err := Processes(b.Context(), n.root); err != nil {
			b.Fatal(err)
		}
	}
}
