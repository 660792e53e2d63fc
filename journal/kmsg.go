package journal

import (
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/kdiag/kdiag/journal/textlog"
)

// maxKmsg bounds the records taken from the kernel's buffer: it holds a few thousand.
const maxKmsg = 1 << 20

// kmsg reads the kernel's own buffer. Each read gives one record; the end is where it would block.
func (r *reading) kmsg(j *job, c *collector) error {
	fd, err := syscall.Open(j.path, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("opening", err)
	}
	defer syscall.Close(fd) // was only read
	take := textTaker(c)
	s := &c.part.source
	s.Format = "kmsg"
	b := make([]byte, 64<<10)
	for s.Lines < maxKmsg {
		n, err := syscall.Read(fd, b)
		switch {
		case errors.Is(err, syscall.EAGAIN) || err == nil && n == 0 || errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.EINTR): // overwritten meanwhile: the next one is there
			continue
		case err != nil:
			return os.NewSyscallError("reading", err)
		}
		s.Lines++
		s.Bytes += int64(n)
		rec, ok := textlog.Kmsg(b[:n])
		if !ok {
			s.Unparsed++
			continue
		}
		if c.next(rec.Message) < 0 {
			rec.Sample = true
		}
		take(&rec)
	}
	return nil
}
