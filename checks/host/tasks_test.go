package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// stackInNFS is what a task shows that waits for a file server.
const stackInNFS = "[<0>] rpc_wait_bit_killable+0x20/0xb0 [sunrpc]\n[<0>] __rpc_execute+0x107/0x370 [sunrpc]\n[<0>] nfs4_proc_getattr+0x8a/0x120 [nfsv4]\n"

// threaded adds a process with threads, all in one state but the main one, which sleeps.
func (n *node) threaded(pid, ppid int, comm, args string, state byte, tids ...int) {
	n.process(pid, ppid, comm, 'S', args)
	dir := fmt.Sprintf("proc/%d/", pid)
	line := statLineOf(stat{pid: pid, comm: comm, state: 'S', ppid: ppid, start: uint64(pid) * userHZ, threads: 1 + len(tids)})
	n.write(dir+"stat", line)
	n.write(dir+"task/"+strconv.Itoa(pid)+"/stat", line)
	for _, tid := range tids {
		n.thread(pid, tid, comm, state, "nfs_wait", 5)
	}
}

func (n *node) thread(pid, tid int, comm string, state byte, wchan string, switches int) {
	dir := fmt.Sprintf("proc/%d/task/%d/", pid, tid)
	n.write(dir+"stat", statLine(tid, comm, state, 1, uint64(tid)*userHZ))
	n.write(dir+"wchan", wchan)
	n.write(dir+"status", fmt.Sprintf("Name:\t%s\nvoluntary_ctxt_switches:\t%d\nnonvoluntary_ctxt_switches:\t1\n", comm, switches))
}

func TestReadTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.process(1, 0, "systemd", 'S', "init")
		n.threaded(20, 1, "containerd", "containerd", 'D', 21, 22)
		n.write("proc/20/cgroup", "0::/system.slice/containerd.service\n")
		n.write("proc/20/task/21/stack", stackInNFS)
		n.process(30, 1, "containerd-shim", 'T', "containerd-shim-runc-v2 -namespace k8s.io -id "+idB)
		n.process(31, 30, "app", 'D', "app")
		n.thread(31, 31, "app", 'D', "fuse_wait", 9)
		n.write("proc/31/cgroup", "0::/kubepods/pod7/"+idA+"\n")
		n.process(40, 1, "dd", 'D', "dd") // runs in between, in the same place
		n.thread(40, 40, "dd", 'D', "io_schedule", 1)
		n.process(42, 1, "mv", 'D', "mv") // never runs
		n.write("proc/42/task/42/wchan", "jbd2_wait")
		n.process(43, 1, "ls", 'D', "ls") // goes on
		n.thread(43, 43, "ls", 'D', "x", 1)
		n.process(44, 1, "rm", 'D', "rm") // another process has its id by the second look
		n.thread(44, 44, "rm", 'D', "x", 1)
		n.write("proc/2/stat", statLineOf(stat{pid: 2, comm: "kthreadd", state: 'S', kernel: true, threads: 1}))
		jbd2 := statLineOf(stat{pid: 50, ppid: 2, comm: "jbd2/sda1-8", state: 'D', kernel: true, threads: 1, start: 5000})
		n.write("proc/50/stat", jbd2)
		n.thread(50, 50, "jbd2/sda1-8", 'D', "jbd2_journal_commit", 3)
		n.write("proc/50/task/50/stat", jbd2)
		for pid := range 3 {
			n.process(60+pid, 31, "child", 'Z', "")
		}
		n.process(70, 1, "old", 'Z', "")
		n.threaded(80, 1, "leaderless", "", 'S', 81) // a main thread that ended first
		line, _ := os.ReadFile(filepath.Join(n.root, "proc/80/stat"))
		n.write("proc/80/stat", strings.Replace(string(line), ") S", ") Z", 1))

		go func() {
			time.Sleep(150 * time.Millisecond)
			n.thread(20, 22, "containerd", 'S', "0", 6)
			n.thread(40, 40, "dd", 'D', "io_schedule", 2)
			n.thread(43, 43, "ls", 'S', "0", 2)
			n.write("proc/44/task/44/stat", statLine(44, "rm", 'D', 1, 99))
		}()
		got, err := ReadTasks(t.Context(), n.people(), 300*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		want := Tasks{
			Processes: 15, Threads: 18,
			Blocked: []BlockedTask{
				{
					PID: 20, TID: 21, Name: "containerd", Wchan: "nfs_wait", Started: started(21),
					Stack: []string{"rpc_wait_bit_killable", "__rpc_execute", "nfs4_proc_getattr"},
					Owner: Owner{Role: RoleRuntime, Unit: "containerd.service"},
				},
				{PID: 31, TID: 31, Name: "app", Wchan: "fuse_wait", Started: started(31), Owner: Owner{ObjectID: idA, PodUID: "7"}},
				{PID: 42, TID: 42, Name: "mv", Wchan: "jbd2_wait", Started: started(42)},
				{PID: 50, TID: 50, Name: "jbd2/sda1-8", Wchan: "jbd2_journal_commit", Started: started(50)},
			},
			BlockedMoments: 4,
			Zombies:        4,
			ZombiesByParent: []ZombieParent{
				{PID: 31, Name: "app", Count: 3, Owner: Owner{ObjectID: idA, PodUID: "7"}},
				{PID: 1, Name: "systemd", Count: 1},
			},
			Stopped: []Process{{PID: 30, PPID: 1, Name: "containerd-shim", Role: RoleShim, ObjectID: idB, State: 'T', Started: started(30)}},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("ReadTasks (-want +got):\n%s", diff)
		}
	})
}

// TestReadTasksKeepsWhatItHas holds the reader in a cgroup that is never answered: the blocked task is there all the same.
func TestReadTasksKeepsWhatItHas(t *testing.T) {
	n := newNode(t)
	n.threaded(20, 1, "kubelet", "kubelet", 'D', 21)
	people := n.people()
	got, err := ReadTasks(untilRead(t, n.fifo("proc/20/cgroup")), people, 0)
	if err == nil || !strings.Contains(err.Error(), "reading the cgroup of process 20 (kubelet): no answer in time") {
		t.Errorf("error %v, want one that says where the look was left behind", err)
	}
	want := []BlockedTask{{PID: 20, TID: 21, Name: "kubelet", Wchan: "nfs_wait", Started: started(21), Owner: Owner{Role: RoleKubelet}}}
	if diff := cmp.Diff(want, got.Blocked); diff != "" {
		t.Errorf("blocked (-want +got):\n%s", diff)
	}
}

// TestReadTasksBudget wants the threads of daemons looked at before those of others.
func TestReadTasksBudget(t *testing.T) {
	n := newNode(t)
	n.threaded(10, 1, "java", "java", 'D', 11, 12)
	n.threaded(20, 1, "kubelet", "kubelet", 'D', 21, 22)
	people, err := ReadPopulation(t.Context(), n.root, testNames)
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	suspects, more := people.suspects(t.Context(), 3)
	for _, s := range suspects {
		pids = append(pids, s.PID)
	}
	if diff := cmp.Diff([]int{20, 20}, pids); diff != "" || more != 0 {
		t.Errorf("%d more, suspects (-want +got):\n%s", more, diff)
	}
}

func TestParseStack(t *testing.T) {
	want := []string{
		"proc_pid_stack", "proc_single_show", "seq_read_iter", "seq_read", "vfs_read", "ksys_read", "do_syscall_64",
		"entry_SYSCALL_64_after_hwframe",
	}
	if diff := cmp.Diff(want, parseStack(fixture(t, "stack"))); diff != "" {
		t.Errorf("recorded stack (-want +got):\n%s", diff)
	}
	odd := "[<0>] x.isra.0+0x1/0x2\n[<0>] \x1b[31m+0x1/0x2\n[<0>] 0xffffffffffffffff\n[<ffffffff81000000>] old_kernel+0x3/0x4\nnothing\n"
	if diff := cmp.Diff([]string{"x.isra.0", "old_kernel"}, parseStack([]byte(odd))); diff != "" {
		t.Errorf("odd lines (-want +got):\n%s", diff)
	}
	if got := len(parseStack([]byte(strings.Repeat("[<0>] f+0x1/0x2\n", 100)))); got != maxFrames {
		t.Errorf("%d frames of a deep stack, want %d", got, maxFrames)
	}
}

func FuzzParseStack(f *testing.F) {
	f.Add([]byte(stackInNFS))
	f.Add(fixture(f, "stack"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, name := range parseStack(b) {
			if !isSymbol(name) {
				t.Errorf("parseStack(%q) has %q", b, name)
			}
		}
	})
}

func BenchmarkReadTasks(b *testing.B) {
	n := newNode(b)
	for pid := range 2000 {
		n.process(pid+10, 1, "nginx", 'S', "nginx")
	}
	for pid := range 50 {
		n.threaded(pid*100+5000, 1, "containerd-shim", "containerd-shim-runc-v2 -namespace k8s.io -id "+idA, 'S', pid*100+5001, pid*100+5002, pid*100+5003)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ReadTasks(b.Context(), n.people(), 0); err != nil {
			b.Fatal(err)
		}
	}
}
