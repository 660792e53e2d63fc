package journal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/internal/lazyregexp"
)

// kmsgName is the kernel's own buffer, which is read where the node has no journal.
const kmsgName = "/dev/kmsg"

// A kmsg reads the kernel's own buffer as lines of text. The end is where a read would block.
type kmsg struct {
	fd     int
	booted time.Time
	record [64 << 10]byte
}

// openKmsg opens the kernel's buffer. Its stamps count from the start of the machine, by a clock that stands still
// while the machine is suspended, so after a suspend older records seem younger than they are, by as much.
func openKmsg(now time.Time) (*kmsg, error) {
	fd, err := syscall.Open(kmsgName, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("opening", err)
	}
	var up unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &up) // every Linux has this clock
	return &kmsg{fd: fd, booted: now.Add(-time.Duration(up.Nano()))}, nil
}

func (k *kmsg) close() { _ = syscall.Close(k.fd) } // was only read

// kmsgRecord matches `6,339,5140900,-;NET: Registered protocol family 10`: priority and facility, number, µs since the
// machine started, flags, text. Lines of key=value follow (the kernel's Documentation/ABI/testing/dev-kmsg).
var kmsgRecord = lazyregexp.New(`^(\d+),\d+,(\d+),[^;]*;(.*)`)

// Read gives one record as dmesg --raw --time-format iso writes it.
func (k *kmsg) Read(b []byte) (int, error) {
	for {
		n, err := syscall.Read(k.fd, k.record[:])
		switch m := kmsgRecord.FindSubmatch(k.record[:max(n, 0)]); {
		case errors.Is(err, syscall.EAGAIN) || err == nil && n == 0:
			return 0, io.EOF
		case errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.EINTR):
			continue // the record was overwritten meanwhile: the next one is there
		case err != nil:
			return 0, os.NewSyscallError("reading", err)
		case m != nil:
			since, _ := time.ParseDuration(string(m[2]) + "us") // digits
			at := k.booted.Add(since).UTC().Format("2006-01-02T15:04:05.000000Z")
			return copy(b, fmt.Sprintf("<%s>[%s] %s\n", m[1], at, m[3])), nil
		}
	}
}
