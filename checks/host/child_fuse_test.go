package host

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/plegbench/nodebox"
)

// A deadFuse is a dead file system, mounted.
type deadFuse struct {
	*nodebox.DeadFuse
	point string
}

// newDeadFuse mounts one below a folder of a test's.
func newDeadFuse(t *testing.T, point string) *deadFuse {
	t.Helper()
	needsRoot(t)
	if err := os.MkdirAll(point, 0o755); err != nil {
		t.Fatal(err)
	}
	f := &deadFuse{nodebox.OpenDeadFuse(t), point}
	t.Cleanup(f.cut)
	if err := unix.Mount("dead.example:/bucket", point, "fuse.dead", unix.MS_NOSUID|unix.MS_NODEV, f.Options(f.Dev.Fd())); err != nil {
		unavailable(t, "mounting fuse: %v", err)
	}
	go f.Serve()
	return f
}

// cut ends the connection: whoever waits is told so, and ends.
func (f *deadFuse) cut() {
	_ = unix.Unmount(f.point, unix.MNT_FORCE|unix.MNT_DETACH)
	_ = f.Dev.Close()
}

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		unavailable(t, "needs root")
	}
}

// unavailable skips a test that this machine cannot run, and fails it where it is promised.
func unavailable(t *testing.T, format string, args ...any) {
	t.Helper()
	nodebox.Need(t, fmt.Sprintf(format, args...))
}

func mountTmpfs(t *testing.T, point, options string) {
	t.Helper()
	needsRoot(t)
	if err := os.MkdirAll(point, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", point, "tmpfs", 0, options); err != nil {
		unavailable(t, "mounting tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(point, unix.MNT_DETACH) })
}

// testChild is this test's program as a child: see TestMain.
func testChild(t *testing.T) Child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return NewChild(self)
}

// left returns the children of this kind that are stuck in a path below dir.
func left(t *testing.T, dir string) []earlier {
	t.Helper()
	var in []earlier
	for _, e := range hostPeople(t).stuckChildren() {
		if strings.HasPrefix(e.path, dir) {
			in = append(in, e)
		}
	}
	return in
}

// eventually waits until something is so, and gives up long after it should have been.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for range 10_000 {
		if so() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("not so: %s", what)
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }
