package journal

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/kdiag/kdiag/journal/textlog"
)

// sampleEvery is how many stamped records of a text lie between two whose stamps are looked at, so that its zone, its
// year and its range become known without reading every stamp.
const sampleEvery = 256

// sniffed is how much of a stream is looked at to tell text from anything else.
const sniffed = 4096

// text reads a file of text or a stream.
func (r *reading) text(ctx context.Context, j *job, c *collector) ([]Unreadable, error) {
	var in io.Reader
	if j.kind == jobStream {
		in = newPipeReader(ctx, j.reader, false) // a Read that waits for more must not outlast ctx
	}
	if j.kind == jobText {
		f, err := os.OpenFile(j.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return nil, plain(err)
		}
		defer f.Close() // was only read
		in = f
	}
	b := bufio.NewReaderSize(in, 64<<10)
	head, err := b.Peek(1) // what a pipe has given so far is enough to go by
	if n := min(b.Buffered(), sniffed); n > 1 {
		head, err = b.Peek(n)
	}
	if len(head) == 0 {
		if err == nil || errors.Is(err, io.EOF) {
			return nil, ErrEmpty
		}
		return nil, plain(err)
	}
	looksBinary := binary(head)
	if string(head[:min(8, len(head))]) == "LPKSHHRH" {
		return nil, errors.New("a journal file; give its name, it cannot be read from a pipe")
	}
	stats, err := r.scan(ctx, j.name, b, c)
	var bad []Unreadable
	for _, t := range stats.Truncated {
		bad = append(bad, Unreadable{Source: c.Name, Offset: t.Offset, Bytes: t.Bytes, Why: t.Why})
	}
	if err == nil && looksBinary && stats.Compression == "" && c.passed == 0 {
		c.Lines = 0
		return bad, ErrBinary
	}
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return bad, err
}

// scan reads one text to its end.
func (r *reading) scan(ctx context.Context, name string, in io.Reader, c *collector) (textlog.Stats, error) {
	var done int64
	opts := textlog.Options{
		Next: c.next, Longest: c.m.full.Longest(), SampleEvery: sampleEvery,
		Progress: func(read int64) {
			r.advance(name, read-done)
			done = read
		},
	}
	take := textTaker(c)
	stats, err := textlog.Scan(ctx, in, opts, func(t *textlog.Record) bool { take(t); return true })
	c.Lines, c.Bytes, c.Unparsed = stats.Lines, stats.Bytes, stats.Unparsed
	c.Format, c.Compressed = stats.Format, stats.Compression
	if stats.HeaderYear != 0 {
		c.hint.year, c.hint.yearHow = stats.HeaderYear, "by a header in the log"
	}
	return stats, err
}

// textTaker returns a function that hands records of a text to the collector.
func textTaker(c *collector) func(*textlog.Record) {
	var r record
	return func(t *textlog.Record) {
		r = record{
			msg: t.Message, inner: t.Inner, outer: t.Outer, mono: t.Monotonic, boot: t.Boot, host: t.Host,
			senders: append(r.senders[:0], t.Unit, t.Identifier), pid: t.PID, sample: t.Sample,
		}
		if t.Kernel {
			r.senders = append(r.senders, "kernel")
		}
		if t.InnerPID != 0 {
			r.pid = t.InnerPID
		}
		c.take(&r)
	}
}

// binary reports whether the beginning of a file is neither text nor compressed text, as far as that can be seen.
func binary(head []byte) bool {
	for _, bom := range []string{"\xff\xfe", "\xfe\xff"} { // UTF-16 is full of zeros
		if bytes.HasPrefix(head, []byte(bom)) {
			return false
		}
	}
	odd := 0
	for _, b := range head {
		if b == 0 || b < ' ' && b != '\n' && b != '\r' && b != '\t' && b != 0x1b && b != '\f' {
			odd++
		}
	}
	return odd*50 > len(head)
}
