package journal

import (
	"context"
	"errors"
	"io"
	"os"
	"time"
)

// tailPoll is how often a text file is looked at while it is followed. A skip line comes every 5 s.
const tailPoll = 250 * time.Millisecond

// A tailReader reads a file as it grows. It ends when the file has given way to another under its name, when it was
// cut, or with the context.
type tailReader struct {
	ctx  context.Context
	f    *os.File
	path string
	at   int64
	idle bool // the last Read returned nothing
}

// Read waits for something to read. When nothing has come for a moment it returns nothing, once.
func (t *tailReader) Read(b []byte) (int, error) {
	for polls := 0; ; polls++ {
		replaced := t.replaced() // what was written before that is still in the old file
		n, err := t.f.Read(b)
		t.at += int64(n)
		switch {
		case n > 0:
			t.idle = false
			return n, nil
		case err != nil && !errors.Is(err, io.EOF):
			return 0, err
		case replaced:
			return 0, io.EOF
		case polls == 1 && !t.idle:
			t.idle = true
			return 0, nil
		}
		select {
		case <-t.ctx.Done():
			return 0, t.ctx.Err()
		case <-time.After(tailPoll):
		}
	}
}

// A pipeReader reads a pipe as it fills until ctx ends. If asked to, it returns nothing when nothing has come for a
// moment. The goroutine that waits for the pipe is left behind when the context ends first.
type pipeReader struct {
	ctx  context.Context
	come chan []byte
	err  error // why the pipe ended; set before come is closed
	rest []byte
	tell bool // return nothing when nothing comes
	idle bool
}

func newPipeReader(ctx context.Context, r io.Reader, tell bool) *pipeReader {
	p := &pipeReader{ctx: ctx, come: make(chan []byte), tell: tell}
	go func() {
		defer close(p.come)
		for {
			b := make([]byte, 64<<10)
			n, err := r.Read(b)
			if n > 0 {
				select {
				case p.come <- b[:n]:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				p.err = err
				return
			}
		}
	}()
	return p
}

func (p *pipeReader) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		var wait <-chan time.Time
		if p.tell && !p.idle {
			wait = time.After(tailPoll)
		}
		select {
		case <-p.ctx.Done():
			return 0, p.ctx.Err()
		case <-wait:
			p.idle = true
			return 0, nil
		case block, ok := <-p.come:
			if !ok {
				return 0, p.err
			}
			p.rest, p.idle = block, false
		}
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// replaced reports whether the file was cut, or another one has its name.
func (t *tailReader) replaced() bool {
	mine, err := t.f.Stat()
	if err != nil || mine.Size() < t.at {
		return true
	}
	other, err := os.Stat(t.path)
	return err == nil && !os.SameFile(mine, other)
}

// tail follows a text file from its present end on, over renames and cuts.
func (f *following) tail(ctx context.Context, j *job) error {
	at := readSoFar(j)
	if at < 0 {
		return nil
	}
	for {
		file, err := os.Open(j.path)
		if err != nil {
			select { // renamed, and not created yet
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(tailPoll):
				at = 0
				continue
			}
		}
		if info, err := file.Stat(); err == nil && info.Size() < at {
			at = 0
		}
		_, err = file.Seek(at, io.SeekStart)
		if err == nil {
			err = f.lines(ctx, j, &tailReader{ctx: ctx, f: file, path: j.path, at: at})
		}
		_ = file.Close() // was only read
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		at = 0
	}
}

// readSoFar returns how much of a file the first reading took, or -1 if it is compressed, and so will not grow.
func readSoFar(j *job) int64 {
	switch {
	case j.source == nil:
		return 0
	case j.source.Compressed != "":
		return -1
	}
	return j.source.Bytes
}
