//go:build e2e

package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
)

// TestMain runs the tests apart: children that the tests of another package leave behind are not seen.
func TestMain(m *testing.M) {
	beChild()
	nodebox.Main(m)
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

// mountDeadFuse mounts a file system that never answers. Cut ends the connection, and all that wait in it.
func mountDeadFuse(t *testing.T, dir, name string) (point string, cut func()) {
	t.Helper()
	f := nodebox.OpenDeadFuse(t)
	point = filepath.Join(dir, name)
	must(t, os.MkdirAll(point, 0o755))
	must(t, unix.Mount("dead.example:/bucket", point, "fuse.dead", 0, f.Options(f.Dev.Fd())))
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

// TestEndToEndManyDeadMounts has more dead mounts than children may be. The second run starts none.
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
		stuck := left(t, dir)
		if hung != maxChildren || len(stuck) != maxChildren || table.Left < 3 {
			t.Errorf("run %d: %d hang, children %v, %d not asked", run, hung, stuck, table.Left)
		}
		holdsNothing(t, stuck[0])
	}
	for _, cut := range cuts {
		cut()
	}
	eventually(t, "the children are gone", func() bool { return len(left(t, dir)) == 0 })
}
