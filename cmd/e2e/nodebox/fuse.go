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

// Options returns the options of mount(2) for a process that has Dev under this number.
func (f *DeadFuse) Options(fd uintptr) string {
	return fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)
}

// Serve answers FUSE_INIT (include/uapi/linux/fuse.h), and nothing after that. It begins when the mount is there, since
// nothing can be read before, and returns when the connection is cut.
func (f *DeadFuse) Serve() {
	const headerIn, headerOut, initOut, opInit = 40, 16, 64, 26
	slow := map[uint32][]byte{3: make([]byte, 104), 17: make([]byte, 80)} // FUSE_GETATTR, FUSE_STATFS
	binary.LittleEndian.PutUint32(slow[3][76:], unix.S_IFDIR)             // the mode
	b := make([]byte, 1<<17)
	for {
		n, err := f.Dev.Read(b)
		if err != nil || n < headerIn {
			return
		}
		if op := binary.LittleEndian.Uint32(b[4:]); slow[op] != nil && f.Delay > 0 {
			out := append(make([]byte, headerOut), slow[op]...)
			binary.LittleEndian.PutUint32(out, uint32(len(out)))
			copy(out[8:16], b[8:16])
			time.AfterFunc(f.Delay, func() { _, _ = f.Dev.Write(out) })
			continue
		} else if op != opInit {
			f.Held.Add(1)
			continue
		}
		out := make([]byte, headerOut+initOut)
		binary.LittleEndian.PutUint32(out, uint32(len(out)))
		copy(out[8:16], b[8:16])                                // the number of the question
		binary.LittleEndian.PutUint32(out[headerOut:], 7)       // FUSE_KERNEL_VERSION
		binary.LittleEndian.PutUint32(out[headerOut+4:], 31)    // minor version
		binary.LittleEndian.PutUint32(out[headerOut+20:], 4096) // max_write
		_, _ = f.Dev.Write(out)
	}
}
