package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// vforkUntilStdinEnds stays in vfork, which is uninterruptible sleep, until the child has seen the end of standard input.
func vforkUntilStdinEnds() {
	var b byte
	pid, _, _ := syscall.RawSyscall(syscall.SYS_CLONE, syscall.CLONE_VFORK|uintptr(syscall.SIGCHLD), 0, 0)
	if pid == 0 { // the child has one thread and no scheduler: nothing but system calls
		syscall.RawSyscall(syscall.SYS_READ, 0, uintptr(unsafe.Pointer(&b)), 1)
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
	}
}

// play runs a copy of this binary under a name, with an argument that TestMain knows, until the test ends.
func play(t *testing.T, name, part string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), name)
	copyFile(t, self, program)
	cmd := exec.Command(program, part)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		cmd.Wait()
	})
	if _, err := io.ReadFull(stdout, make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func TestReadTasksReal(t *testing.T) {
	needsRoot(t)
	cmd := play(t, "kubelet", "vfork-until-stdin-ends")
	for range 3 { // children that nobody waits for until the test ends
		child := exec.Command("true")
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		defer child.Wait()
	}
	find := func(tasks Tasks) int {
		return slices.IndexFunc(tasks.Blocked, func(b BlockedTask) bool { return b.PID == cmd.Process.Pid })
	}
	var tasks Tasks
	var zombies int
	for range 1000 { // until it is there and the children have ended
		tasks = retried(t, func() (Tasks, error) { return ReadTasks(t.Context(), hostPeople(t), 100*time.Millisecond) })
		zombies = 0
		for _, parent := range tasks.ZombiesByParent {
			if parent.PID == os.Getpid() {
				zombies = parent.Count
			}
		}
		if find(tasks) >= 0 && zombies == 3 {
			break
		}
	}
	if zombies != 3 {
		t.Errorf("%d zombies of this process, want 3: %+v", zombies, tasks.ZombiesByParent)
	}
	i := find(tasks)
	if i < 0 {
		t.Fatalf("process %d in vfork is not among the blocked: %+v", cmd.Process.Pid, tasks)
	}
	b := tasks.Blocked[i]
	if b.Name != "kubelet" || b.Role != RoleKubelet || b.Kernel || len(b.Stack) == 0 || b.TID == 0 {
		t.Errorf("of a kubelet in vfork: %+v", b)
	}
	if !slices.ContainsFunc(b.Stack, func(f string) bool { return strings.Contains(f, "clone") || strings.Contains(f, "fork") }) {
		t.Errorf("stack of a process in vfork: %v", b.Stack)
	}
	// Another test's daemon may have more threads than are looked at: Unread says nothing here.
	if tasks.Processes < 3 || tasks.Threads < tasks.Processes {
		t.Errorf("%d processes, %d threads, %d unread", tasks.Processes, tasks.Threads, tasks.Unread)
	}
	t.Logf("%+v", b)
}

// cgroupOfOurs makes a cgroup in the hierarchy of a controller, with a process of ours in it.
func cgroupOfOurs(t *testing.T, controller, below string) (cgroup, dir string, h hierarchy) {
	t.Helper()
	needsRoot(t)
	all, err := readHierarchies("/")
	if err != nil {
		unavailable(t, "needs control groups: %v", err)
	}
	h, ok := all.of(controller)
	if !ok {
		unavailable(t, "needs the controller %s", controller)
	}
	cgroup = "/kdiag-test-" + strconv.Itoa(os.Getpid()) + controller + below
	dir, _ = h.dir(cgroup)
	top, _ := h.dir(cgroup[:len(cgroup)-len(below)])
	if err := os.MkdirAll(dir, 0o755); err != nil {
		unavailable(t, "needs a cgroup of its own: %v", err)
	}
	t.Cleanup(func() {
		for d := dir; strings.HasPrefix(d, top); d = filepath.Dir(d) {
			if err := removeCgroup(d); err != nil {
				t.Errorf("cleaning up: %v", err)
			}
		}
	})
	return cgroup, dir, h
}

// removeCgroup removes an empty cgroup; that its last process has ended shows a moment later.
func removeCgroup(dir string) error {
	var err error
	for range 5000 {
		if err = syscall.Rmdir(dir); err == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("removing %s: %w", dir, err)
}

func TestReadCgroupsReal(t *testing.T) {
	cgroup, dir, h := cgroupOfOurs(t, "freezer", "")
	sleeper := exec.Command("sleep", "1000")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	set := func(name, value string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	file, frozen, thawed := "freezer.state", "FROZEN", "THAWED"
	if h.unified {
		file, frozen, thawed = "cgroup.freeze", "1", "0"
	}
	t.Cleanup(func() {
		sleeper.Process.Kill()
		sleeper.Wait()
	})
	set("cgroup.procs", strconv.Itoa(sleeper.Process.Pid))
	set(file, frozen)
	t.Cleanup(func() { set(file, thawed) })
	var last Cgroups
	for range 1000 { // until the kernel has frozen it
		last = retried(t, func() (Cgroups, error) { return ReadCgroups(t.Context(), "/", hostPeople(t), 0) })
		i := slices.IndexFunc(last.Frozen, func(f FrozenCgroup) bool { return f.Path == cgroup })
		if i >= 0 && last.Frozen[i] == (FrozenCgroup{Path: cgroup, Self: true, Tasks: 1}) {
			t.Logf("%+v", last)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("the frozen %s is not among %+v", cgroup, last)
}

func TestReadPIDsReal(t *testing.T) {
	cgroup, dir, _ := cgroupOfOurs(t, "pids", "/kubepods/podtest")
	if err := os.WriteFile(filepath.Join(dir, "pids.max"), []byte("2"), 0); err != nil {
		t.Fatal(err)
	}
	// The shell itself and one sleep are two; the other cannot be started.
	sh := exec.Command("sh", "-c", "echo $$ >"+filepath.Join(dir, "cgroup.procs")+"; sleep 1000 & sleep 1000; wait")
	sh.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := sh.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		syscall.Kill(-sh.Process.Pid, syscall.SIGKILL)
		sh.Wait()
	})
	var last PIDs
	for range 1000 { // until a fork has been refused
		last = retried(t, func() (PIDs, error) { return ReadPIDs(t.Context(), "/", hostPeople(t)) })
		i := slices.IndexFunc(last.Cgroups, func(c CgroupUsage) bool { return c.Path == cgroup })
		if i >= 0 && last.Cgroups[i].Events > 0 {
			c := last.Cgroups[i]
			if c.Max != 2 || c.PodUID != "test" || last.Tasks < 2 || last.PIDMax == 0 || last.ThreadsMax == 0 {
				t.Errorf("of %s: %+v in %+v", cgroup, c, last)
			}
			t.Logf("%+v", last)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("%s, which refused a fork, is not among %+v", cgroup, last.Cgroups)
}

func TestReadInotifyReal(t *testing.T) {
	needsRoot(t)
	const instances = 20 // of the 128 that all of this user's processes share by default
	for range instances {
		fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC)
		if errors.Is(err, syscall.EMFILE) {
			unavailable(t, "needs inotify instances")
		}
		if err != nil {
			t.Fatal(err)
		}
		defer syscall.Close(fd)
		for _, name := range []string{"", "proc"} {
			if _, err := syscall.InotifyAddWatch(fd, filepath.Join("/", name), syscall.IN_DELETE_SELF); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := retried(t, func() (Inotify, error) { return ReadInotify(t.Context(), "/", hostPeople(t)) })
	i := slices.IndexFunc(got.Users, func(u InotifyUser) bool { return u.UID == os.Geteuid() })
	if i < 0 || got.Users[i].Instances < instances || got.Users[i].Watches < 2*instances || got.MaxInstances == 0 {
		t.Fatalf("%+v, want %d instances with two watches each of this user", got, instances)
	}
	ours := slices.IndexFunc(got.Users[i].Top, func(p InotifyProcess) bool { return p.PID == os.Getpid() })
	if ours < 0 || got.Users[i].Top[ours].Instances != instances {
		t.Errorf("of this process: %+v, want %d instances", got.Users[i].Top, instances)
	}
}

func TestReadFilesReal(t *testing.T) {
	cmd := play(t, "crio", "wait-for-stdin")
	got := retried(t, func() (Files, error) { return ReadFiles(t.Context(), "/", hostPeople(t)) })
	i := slices.IndexFunc(got.Processes, func(p ProcessFiles) bool { return p.PID == cmd.Process.Pid })
	if i < 0 || got.System.Current == 0 {
		t.Fatalf("ReadFiles = %+v, want process %d", got, cmd.Process.Pid)
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	listed, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "fd"))
	if err != nil {
		t.Fatal(err)
	}
	p := got.Processes[i]
	if p.Current != uint64(len(listed)) || p.Hard != limit.Max || p.Name != "crio" || p.Role != RoleRuntime {
		t.Errorf("of a runtime with %d files: %+v, want the hard limit %d", len(listed), p, limit.Max)
	}
}

func TestReadConntrackReal(t *testing.T) {
	got, err := ReadConntrack("/")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/proc/sys/net/netfilter/nf_conntrack_max"); (err == nil) != (got.Max > 0) {
		t.Errorf("ReadConntrack = %+v, the file: %v", got, err)
	}
}

// hostPeople is the processes of this machine.
func hostPeople(t *testing.T) Population {
	t.Helper()
	return retried(t, func() (Population, error) { return ReadPopulation(t.Context(), "/", testNames) })
}

// retried makes a look again that had no time on a busy machine, which looks at all of this machine's processes do not get for ever.
func retried[T any](t *testing.T, look func() (T, error)) T {
	t.Helper()
	var got T
	var err error
	for range 100 {
		if got, err = look(); !errors.Is(err, context.DeadlineExceeded) {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return got
}
