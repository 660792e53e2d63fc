//go:build e2e

package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
)

// TestMain runs the tests again in namespaces of their own: what they mount and let hang disturbs nothing else, and
// goes when they end, however they do. Children that the tests of another package leave behind are not seen.
func TestMain(m *testing.M) {
	beChild()
	const mark = "KDIAG_TEST_APART"
	if os.Getenv(mark) != "" {
		if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
			fmt.Fprintln(os.Stderr, "mounting proc:", err)
			os.Exit(1)
		}
		// With the name of a host's process 1: another one's namespace shows no host (hidden).
		if err := os.WriteFile("/proc/1/comm", []byte("init"), 0); err != nil {
			fmt.Fprintln(os.Stderr, "naming process 1:", err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), mark+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Cloneflags: syscall.CLONE_NEWPID}
	if err := cmd.Run(); cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, "starting the tests in namespaces, which needs root:", err)
		os.Exit(1)
	}
	os.Exit(cmd.ProcessState.ExitCode())
}

// hostPeople is the processes of this machine. What had no time on a busy one is read again.
func hostPeople(t *testing.T) (processes Population) {
	t.Helper()
	var err error
	for range 100 {
		processes, err = ReadPopulation(t.Context(), "/", testNames, Population{})
		if !errors.Is(err, context.DeadlineExceeded) {
			break
		}
	}
	must(t, err)
	return processes
}

// mount mounts a file system at a new folder below dir until the test ends.
func mount(t *testing.T, source, dir, name, kind, options string) (point string) {
	t.Helper()
	point = filepath.Join(dir, name)
	must(t, os.MkdirAll(point, 0o755))
	if err := unix.Mount(source, point, kind, 0, options); err != nil {
		t.Fatalf("mounting %s: %v", kind, err)
	}
	t.Cleanup(func() { _ = unix.Unmount(point, unix.MNT_FORCE|unix.MNT_DETACH) })
	return point
}

// mountDeadFuse mounts a file system that never answers. Cut ends the connection, and all that wait in it.
func mountDeadFuse(t *testing.T, dir, name string) (point string, cut func()) {
	t.Helper()
	f := nodebox.OpenDeadFuse(t)
	point = mount(t, "dead.example:/bucket", dir, name, "fuse.dead", f.Options(f.Dev.Fd()))
	cut = func() {
		_ = unix.Unmount(point, unix.MNT_FORCE|unix.MNT_DETACH)
		_ = f.Dev.Close()
	}
	t.Cleanup(cut)
	go f.Serve()
	return point, cut
}

// left returns the children that are stuck in a path below dir.
func left(t *testing.T, dir string) (pids []int) {
	t.Helper()
	processes := hostPeople(t)
	stuck := processes.stuckChildren()
	for pid, st := range processes.all {
		for _, thread := range processes.threads(pid) { // of a dead first thread the arguments are empty
			args := strings.Join(nulSeparated(thread, "cmdline"), " ")
			if stuck[st.comm] > 0 && strings.Contains(args, dir) && !slices.Contains(pids, pid) {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// TestEndToEndProbeMounts mounts a dead fuse among mounts that answer. Each run names it, by the one child that the
// first run left.
func TestEndToEndProbeMounts(t *testing.T) {
	const uid = "11111111-2222-3333-4444-555555555555"
	dir := mount(t, "tmpfs", t.TempDir(), "kubelet", "tmpfs", "size=1m")
	dead, cut := mountDeadFuse(t, dir, "pods/"+uid+"/volumes/kubernetes.io~csi/a b/mount")
	var first []int
	for run := range 3 {
		table, err := ProbeMounts(limited(t), "/", hostPeople(t), dir, testChild(t))
		must(t, err)
		i := slices.IndexFunc(table.Probed, func(m Mount) bool { return m.Point == dead })
		if i < 0 {
			t.Fatalf("run %d: the mount is not among %+v", run, table.Probed)
		}
		got := table.Probed[i]
		if got.Waiting < hangTimeout || table.Kubelet != 2 || table.Left != 0 {
			t.Errorf("run %d: waiting for %s, %+v", run, got.Waiting, table)
		}
		got.Waiting = 0
		equal(t, "the dead mount", Mount{
			Point: dead, Type: "fuse.dead", Source: "dead.example:/bucket", Network: true, PodUID: uid,
			Driver: "kubernetes.io~csi", Asked: true, Hung: true,
		}, got)
		pids := left(t, dir)
		if run == 0 && len(pids) == 1 {
			first = pids
			holdsNothing(t, pids[0])
		}
		equal(t, "the children", first, pids)
	}
	cut()
	eventually(t, "the child is gone", func() bool { return syscall.Kill(first[0], 0) != nil })
}

// holdsNothing checks that a child that is left behind holds nothing of this process: the readers of kdiag's output
// would wait for the child's end too, and a terminal for its session's.
func holdsNothing(t *testing.T, pid int) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/", pid)
	own := map[string]bool{}
	for _, fd := range names("/proc/self/fd") {
		target, _ := os.Readlink("/proc/self/fd/" + fd)
		kind, _, _ := strings.Cut(target, ":")
		own[target] = kind == "pipe" || kind == "socket" || strings.HasPrefix(target, "/dev/pts/")
	}
	for _, fd := range names(dir + "fd") {
		target, err := os.Readlink(dir + "fd/" + fd)
		if err != nil || own[target] || (fd == "0" || fd == "2") && target != "/dev/null" {
			t.Errorf("descriptor %s of the child is %s, %v", fd, target, err)
		}
	}
	// The first thread may be dead already, and has no working directory then.
	if dir, err := os.Readlink(dir + "cwd"); err == nil && dir != "/" {
		t.Errorf("the child is in %s, which that keeps busy", dir)
	}
	if sid, err := unix.Getsid(pid); err != nil || sid != pid {
		t.Errorf("the child is of session %d, %v", sid, err)
	}
}

// TestEndToEndManyDeadMounts has more dead mounts than children may be.
func TestEndToEndManyDeadMounts(t *testing.T) {
	dir := t.TempDir()
	var cuts []func()
	for i := range maxChildren + 3 {
		_, cut := mountDeadFuse(t, dir, fmt.Sprintf("pods/uid/volumes/kubernetes.io~csi/v%02d/mount", i))
		cuts = append(cuts, cut)
	}
	for run := range 2 {
		table, err := ProbeMounts(limited(t), "/", hostPeople(t), dir, testChild(t))
		must(t, err)
		hung := 0
		for _, m := range table.Probed {
			if m.Hung && strings.HasPrefix(m.Point, dir) {
				hung++
			}
		}
		if stuck := len(left(t, dir)); hung != maxChildren || stuck != maxChildren || table.Left < 3 {
			t.Errorf("run %d: %d hang, %d children, %d not asked", run, hung, stuck, table.Left)
		}
	}
	for _, cut := range cuts {
		cut()
	}
	eventually(t, "the children are gone", func() bool { return len(left(t, dir)) == 0 })
}
