//go:build e2e

package nodebox

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A DeadFuse is a file system whose server reads requests and never answers, like one whose backend is unreachable. A
// process that uses it sleeps until the connection is cut; no signal ends that, because the server has the request
// already.
type DeadFuse struct {
	Dev   *os.File      // the server's side, /dev/fuse; closed, and with the mount gone, the connection is cut
	Held  atomic.Int32  // the requests that Serve has read and does not answer
	Delay time.Duration // unless it is 0, statfs and stat are answered after it: the file system is slow
	File  bool          // it has a file of zeros, by any name, which can be opened and read; it takes no write
}

// OpenDeadFuse opens the server's side. Mounting it, with Options, and Serve are left to the test.
func OpenDeadFuse(t testing.TB) *DeadFuse {
	t.Helper()
	const name = "/dev/fuse"
	// os.Open would poll it, which does not work before the mount
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("opening %s: %v", name, err)
	}
	return &DeadFuse{Dev: os.NewFile(uintptr(fd), name)}
}

// Mount mounts it at a folder, and serves it until the test ends or end is called, when all that wait get an error.
func (f *DeadFuse) Mount(t testing.TB, point string) (end func()) {
	t.Helper()
	must(t, os.MkdirAll(point, 0o755))
	must(t, unix.Mount("dead.example:/bucket", point, "fuse.dead", 0, f.Options(f.Dev.Fd())))
	end = func() {
		_ = unix.Unmount(point, unix.MNT_FORCE|unix.MNT_DETACH)
		_ = f.Dev.Close()
	}
	t.Cleanup(end)
	go f.Serve()
	return end
}

// Options returns the options of mount(2) for a process that has Dev under this number.
func (f *DeadFuse) Options(fd uintptr) string {
	return fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)
}

// Serve answers FUSE_INIT (include/uapi/linux/fuse.h), and nothing after that but what Delay and File say. It begins
// when the mount is there, since nothing can be read before, and returns when the connection is cut.
func (f *DeadFuse) Serve() {
	const headerIn, headerOut = 40, 16
	put, b := binary.LittleEndian, make([]byte, 1<<17)
	for {
		n, err := f.Dev.Read(b)
		if err != nil || n < headerIn {
			return
		}
		reply, errno, delay := f.reply(put.Uint32(b[4:]), put.Uint64(b[16:]), b[headerIn:])
		if reply == nil && errno == 0 {
			f.Held.Add(1)
			continue
		}
		out := append(make([]byte, headerOut), reply...)
		put.PutUint32(out, uint32(len(out)))
		put.PutUint32(out[4:], -uint32(errno))
		copy(out[8:16], b[8:16]) // the number of the question
		time.AfterFunc(delay, func() { _, _ = f.Dev.Write(out) })
	}
}

// reply returns what answers a request, after a delay; neither reply nor error where nothing does.
func (f *DeadFuse) reply(op uint32, node uint64, in []byte) (out []byte, errno unix.Errno, delay time.Duration) {
	const opLookup, opGetattr, opOpen, opRead, opWrite, opStatfs, opInit = 1, 3, 14, 15, 16, 17, 26
	const root, file, attrSize = 1, 2, 88
	put := binary.LittleEndian
	attributes := func(out []byte, node uint64) []byte {
		a, mode := out[len(out)-attrSize:], uint32(unix.S_IFREG|0o644)
		if node == root {
			mode = unix.S_IFDIR | 0o755
		}
		put.PutUint64(a, node)
		put.PutUint64(a[8:], 1<<20) // bytes
		put.PutUint32(a[60:], mode)
		put.PutUint32(a[64:], 1) // links
		return out
	}
	switch stats := f.File || f.Delay > 0; {
	case op == opInit:
		out = make([]byte, 64)
		put.PutUint32(out, 7)         // FUSE_KERNEL_VERSION
		put.PutUint32(out[4:], 31)    // minor version
		put.PutUint32(out[20:], 4096) // max_write
		return out, 0, 0
	case stats && op == opGetattr:
		return attributes(make([]byte, 16+attrSize), node), 0, f.Delay
	case stats && op == opStatfs:
		return make([]byte, 80), 0, f.Delay
	case !f.File || op == opWrite:
		return nil, 0, 0
	case op == opLookup:
		out = attributes(make([]byte, 40+attrSize), file)
		put.PutUint64(out, file)
		return out, 0, 0
	case op == opOpen:
		return make([]byte, 16), 0, 0
	case op == opRead:
		return make([]byte, put.Uint32(in[16:])), 0, 0
	}
	return nil, unix.ENOSYS, 0
}
