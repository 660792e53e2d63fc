package journal

import (
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/journal/klog"
	"github.com/kdiag/kdiag/journal/textlog"
)

// maxKmsg bounds the records taken from the kernel's buffer: it holds a few thousand.
const maxKmsg = 1 << 20

// kmsgName is the kernel's own buffer, which is read where the node has no journal.
const kmsgName = "/dev/kmsg"

// kmsg reads the kernel's own buffer. Each read gives one record; the end is where it would block.
func (r *reading) kmsg(c *collector) error {
	fd, err := syscall.Open(kmsgName, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("opening", err)
	}
	defer syscall.Close(fd) // was only read
	take := textTaker(c)
	c.Format = "kmsg"
	b := make([]byte, 64<<10)
	booted := r.booted()
	for c.Lines < maxKmsg {
		n, err := syscall.Read(fd, b)
		switch {
		case errors.Is(err, syscall.EAGAIN) || err == nil && n == 0 || errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.EINTR):
			continue // the record was overwritten meanwhile: the next one is there
		case err != nil:
			return os.NewSyscallError("reading", err)
		}
		c.Lines++
		c.Bytes += int64(n)
		rec, ok := textlog.Kmsg(b[:n])
		if !ok {
			c.Unparsed++
			continue
		}
		if booted != 0 {
			rec.Outer = klog.Stamp{Micros: booted + rec.Monotonic, Known: true, Year: true, Zone: true}
		}
		if c.next(rec.Message) < 0 {
			rec.Sample = true
		}
		take(&rec)
	}
	return nil
}

// booted is when the kernel's clock stood at zero, in microseconds since 1970; 0: unknown. That clock stands still
// while the machine is suspended, so after a suspend older records seem younger than they are, by as much.
func (r *reading) booted() int64 {
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &up); err != nil {
		return 0
	}
	return r.opts.Now().UnixMicro() - up.Nano()/1000
}
