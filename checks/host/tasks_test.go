package host

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// threaded adds a process with threads, all in one state but the main one, which sleeps.
func (n *node) threaded(pid, ppid int, comm, args string, state byte, tids ...int) {
	n.process(pid, ppid, comm, 'S', args)
	n.stat(stat{pid: pid, comm: comm, state: 'S', ppid: ppid, threads: 1 + len(tids)})
	for _, tid := range tids {
		n.thread(pid, tid, comm, state, "nfs_wait", 5)
	}
}

func (n *node) thread(pid, tid int, comm string, state byte, wchan string, switches int) {
	dir := fmt.Sprintf("proc/%d/task/%d/", pid, tid)
	n.Write(dir+"stat", statLine(stat{pid: tid, ppid: 1, comm: comm, state: state}), dir+"wchan", wchan, dir+"status",
		fmt.Sprintf("Name:\t%s\nvoluntary_ctxt_switches:\t%d\nnonvoluntary_ctxt_switches:\t1\n", comm, switches))
}

// blocked adds a process of one thread in uninterruptible sleep.
func (n *node) blocked(pid, ppid int, comm, wchan string) {
	n.process(pid, ppid, comm, 'D', comm)
	n.thread(pid, pid, comm, 'D', wchan, 1)
}

func TestReadTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.process(1, 0, "systemd", 'S', "init")
		n.threaded(20, 1, "containerd", "containerd", 'D', 21, 22)
		n.process(30, 1, "containerd-shim", 'T', "containerd-shim-runc-v2 -namespace k8s.io -id "+idB)
		n.blocked(31, 30, "app", "fuse_wait")
		n.Write(
			"proc/20/cgroup", "0::/system.slice/containerd.service\n", "proc/31/cgroup", "0::/kubepods/pod7/"+idA+"\n",
			"proc/20/task/21/stack", "[<0>] rpc_wait_bit_killable+0x20/0xb0 [sunrpc]\n"+
				"[<0>] __rpc_execute+0x107/0x370 [sunrpc]\n[<0>] nfs4_proc_getattr+0x8a/0x120 [nfsv4]\n",
		)
		n.blocked(40, 1, "dd", "io_schedule") // runs in between, in the same place
		n.blocked(42, 1, "mv", "jbd2_wait")   // never runs
		n.blocked(44, 1, "rm", "x")           // another process has its id in the second read
		n.stat(stat{pid: 2, comm: "kthreadd", state: 'S', kernel: true})
		n.thread(50, 50, "jbd2/sda1-8", 'D', "jbd2_journal_commit", 3)
		n.stat(stat{pid: 50, ppid: 2, comm: "jbd2/sda1-8", state: 'D', kernel: true})
		for pid := range 3 {
			n.process(60+pid, 31, "child", 'Z', "")
		}
		n.process(70, 1, "old", 'Z', "")
		time.AfterFunc(150*time.Millisecond, func() {
			n.thread(20, 22, "containerd", 'S', "0", 6)
			n.thread(40, 40, "dd", 'D', "io_schedule", 2)
			n.Write("proc/44/task/44/stat", statLine(stat{pid: 44, ppid: 1, comm: "rm", state: 'D', start: 99}))
		})
		got, err := ReadTasks(t.Context(), n.processes(), 300*time.Millisecond)
		must(t, err)
		app := Owner{ObjectID: idA, PodUID: "7"}
		equal(t, "ReadTasks", Tasks{
			Processes: 13, Threads: 15,
			Blocked: []BlockedTask{
				{
					PID: 20, TID: 21, Name: "containerd", Wchan: "nfs_wait", Started: started(21),
					Stack: []string{"rpc_wait_bit_killable", "__rpc_execute", "nfs4_proc_getattr"},
					Owner: Owner{Role: RoleRuntime, Unit: "containerd.service"},
				},
				{PID: 31, TID: 31, Name: "app", Wchan: "fuse_wait", Started: started(31), Owner: app},
				{PID: 42, TID: 42, Name: "mv", Wchan: "jbd2_wait", Started: started(42)},
				{PID: 50, TID: 50, Name: "jbd2/sda1-8", Wchan: "jbd2_journal_commit", Started: started(50)},
			},
			Zombies: 4,
			ZombiesByParent: []ZombieParent{
				{PID: 31, Name: "app", Count: 3, Owner: app}, {PID: 1, Name: "systemd", Count: 1},
			},
			Stopped: []Process{{
				PID: 30, PPID: 1, Name: "containerd-shim", Role: RoleShim, ObjectID: idB, State: 'T',
				Threads: 1, Started: started(30), Namespace: "k8s.io", Program: "containerd-shim-runc-v2",
			}},
			Living: map[string]bool{idA: true},
		}, got)
	})
}

// TestFrozenDisks has a process of a container that waits for the end of a freeze: of what it sees, only file systems
// on disks other than the host's root can be meant, and no file that the kubelet or the runtime made for it.
func TestFrozenDisks(t *testing.T) {
	n := newNode(t)
	n.process(40, 1, "sh", 'D', "sh")
	n.Write("proc/1/mountinfo", "22 1 254:0 / / rw - ext4 /dev/vda rw\n30 22 253:1 / /mnt/vol rw - ext4 /dev/mapper/vol rw\n",
		"proc/40/mountinfo", "1 0 0:50 / / rw - overlay overlay rw\n"+
			"2 1 253:1 / /vol rw - ext4 /dev/mapper/vol rw\n3 1 253:1 /a /a rw - ext4 /dev/mapper/vol rw\n"+
			"4 1 254:0 /x /host rw - ext4 /dev/vda rw\n5 1 253:0 /y /etc/hostname rw - ext4 /dev/mapper/ctd rw\n"+
			"6 1 8:16 / /ro ro - ext4 /dev/sdb ro\n7 1 8:32 / /own rw - xfs /dev/sdc rw\n",
		"sys/dev/block/253:1/dm/suspended", "1\n")
	tasks := []BlockedTask{{PID: 40, Wchan: thawWait}, {PID: 40, Wchan: "folio_wait_bit"}}
	n.processes().explainFrozen(t.Context(), tasks)
	equal(t, "disks", []TaskDisk{{Mount: "/mnt/vol", Source: "/dev/mapper/vol", Suspended: true}, {Source: "/dev/sdc"}},
		tasks[0].Disks)
	equal(t, "of a task that waits for something else", 0, len(tasks[1].Disks))
}

func TestWatchers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.process(1, 0, "systemd", 'S', "init")
		n.process(20, 1, "containerd-shim", 'S', "containerd-shim-runc-v2 -namespace k8s.io -id "+idB)
		n.blocked(21, 20, "containerd-shim", "fanotify_handle_event") // has not begun its program
		n.blocked(22, 1, "cp", "fanotify_handle_event")               // is answered after a while
		for pid, mask := range map[int]string{30: "8", 31: "10000"} {
			n.process(pid, 1, "scand", 'T', "scand")
			n.Link(procFile(pid, "fd/7"), "anon_inode:[fanotify]")
			n.Write(procFile(pid, "fdinfo/7"), "pos:\t0\nfanotify flags:4 event-flags:8000\n"+
				"fanotify mnt_id:1c mflags:0 mask:"+mask+" ignored_mask:0\n",
				procFile(pid, "cgroup"), "0::/system.slice/scan.service\n")
		}
		time.AfterFunc(2*time.Second, func() {
			n.thread(22, 22, "cp", 'D', "fanotify_handle_event", 2)
		})
		got, err := ReadTasks(t.Context(), n.processes(), 300*time.Millisecond)
		must(t, err)
		equal(t, "blocked", []BlockedTask{{
			PID: 21, TID: 21, Name: "containerd-shim", Wchan: "fanotify_handle_event", Started: started(21),
			Waited: watchTime, Owner: Owner{Role: RoleOCI, ObjectID: idB},
		}}, got.Blocked)
		equal(t, "watchers", []Watcher{
			{PID: 31, Name: "scand", State: 'T', Started: started(31), Owner: Owner{Unit: "scan.service"}},
		}, got.Watchers)
	})
}

// TestOutputs has the runtime wait to write its log to a pipe, whose reader is stopped, and to other files, which are
// no logs, or not full any more.
func TestOutputs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.threaded(20, 1, "containerd", "containerd", 'S')
		n.process(30, 1, "logger", 'T', "logger")
		n.process(31, 1, "sibling", 'S', "sibling") // has the end for writing too
		for tid, call := range map[int]string{
			21: "1 0x2 0xc000a12000 0x8c 0x0 0x0 0x0 0x7ffc 0x40", 22: "1 0x9 0xc000a12000 0x8c 0x0 0x0 0x0 0x7ffc 0x40",
			23: "1 0x2 0xc000a12000 0x8c 0x0 0x0 0x0 0x7ffc 0x40", 24: "202 0x2 0x80 0x0 0x0 0x0 0x0 0x7ffc 0x40",
		} {
			wchan := "anon_pipe_write"
			if tid == 24 {
				wchan = "futex_wait_queue"
			}
			n.thread(20, tid, "containerd", 'S', wchan, 5)
			n.Write(fmt.Sprintf("proc/20/task/%d/syscall", tid), call)
		}
		n.stat(stat{pid: 20, ppid: 1, comm: "containerd", state: 'S', threads: 5})
		n.Link("proc/20/fd/2", "pipe:[42]")
		n.Link("proc/20/fd/9", "pipe:[43]")
		n.Link("proc/30/fd/0", "pipe:[42]")
		n.Link("proc/31/fd/1", "pipe:[42]")
		n.Write("proc/30/fdinfo/0", "pos:\t0\nflags:\t00\n", "proc/31/fdinfo/1", "pos:\t0\nflags:\t01\n")
		time.AfterFunc(150*time.Millisecond, func() { n.thread(20, 23, "containerd", 'S', "anon_pipe_write", 6) })
		got, err := ReadTasks(t.Context(), n.processes(), 300*time.Millisecond)
		must(t, err)
		equal(t, "Outputs", []OutputWait{{
			PID: 20, TID: 21, Name: "containerd", File: "pipe:[42]", Owner: Owner{Role: RoleRuntime},
			Reader: &Process{PID: 30, PPID: 1, Name: "logger", State: 'T', Threads: 1, Started: started(30)},
		}}, got.Outputs)
	})
}
