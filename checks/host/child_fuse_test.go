package host

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A deadFuse is a mounted file system whose server reads what it is asked and never answers, as one does that waits for
// a bucket behind a dead network. Who asks it sleeps until the connection is cut; no signal ends that, since the server
// has the question already.
type deadFuse struct {
	point string
	dev   int
}

// newDeadFuse mounts one below a folder of a test's.
func newDeadFuse(t *testing.T, point string) *deadFuse {
	t.Helper()
	needsRoot(t)
	if err := os.MkdirAll(point, 0o755); err != nil {
		t.Fatal(err)
	}
	dev, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		unavailable(t, "opening /dev/fuse: %v", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", dev)
	if err := unix.Mount("dead.example:/bucket", point, "fuse.dead", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		unix.Close(dev)
		unavailable(t, "mounting fuse: %v", err)
	}
	f := &deadFuse{point: point, dev: dev}
	go f.serve()
	t.Cleanup(f.cut)
	return f
}

// serve answers FUSE_INIT (include/uapi/linux/fuse.h), and nothing after that.
func (f *deadFuse) serve() {
	const headerIn, headerOut, initOut, opInit = 40, 16, 64, 26
	b := make([]byte, 1<<17)
	for {
		n, err := unix.Read(f.dev, b)
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}
		if err != nil || n < headerIn {
			return
		}
		if binary.LittleEndian.Uint32(b[4:]) != opInit {
			continue
		}
		out := make([]byte, headerOut+initOut)
		binary.LittleEndian.PutUint32(out, uint32(len(out)))
		copy(out[8:16], b[8:16])                                // the number of the question
		binary.LittleEndian.PutUint32(out[headerOut:], 7)       // FUSE_KERNEL_VERSION
		binary.LittleEndian.PutUint32(out[headerOut+4:], 31)    // minor version
		binary.LittleEndian.PutUint32(out[headerOut+20:], 4096) // max_write
		_, _ = unix.Write(f.dev, out)
	}
}

// cut ends the connection: whoever waits is told so, and ends.
func (f *deadFuse) cut() {
	_ = unix.Unmount(f.point, unix.MNT_FORCE|unix.MNT_DETACH)
	_ = unix.Close(f.dev)
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
	if os.Getenv("KDIAG_E2E") != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
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
	return Child{Program: self}
}

// left returns the children of this kind that are stuck in a path below dir.
func left(t *testing.T, dir string) []earlier {
	t.Helper()
	var in []earlier
	for _, e := range stuckChildren(t.Context(), "/") {
		if strings.HasPrefix(e.path, dir) {
			in = append(in, e)
		}
	}
	return in
}

// eventually waits until something is so, and gives up long after it should have been.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for range 1000 {
		if so() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("not so: %s", what)
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }
