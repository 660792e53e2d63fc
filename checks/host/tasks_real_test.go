package host

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	if b.Name != "kubelet" || b.Role != RoleKubelet || len(b.Stack) == 0 || b.TID == 0 {
		t.Errorf("of a kubelet in vfork: %+v", b)
	}
	if !slices.ContainsFunc(b.Stack, func(f string) bool { return strings.Contains(f, "clone") || strings.Contains(f, "fork") }) {
		t.Errorf("stack of a process in vfork: %v", b.Stack)
	}
	if tasks.Processes < 3 || tasks.Threads < tasks.Processes {
		t.Errorf("%d processes, %d threads", tasks.Processes, tasks.Threads)
	}
	t.Logf("%+v", b)
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
