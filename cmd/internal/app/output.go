package app

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"

	"github.com/kdiag/kdiag/cmd/internal/cli"
)

// An output is standard output or error. It remembers the first write error, which cobra's help ignores, and ends the
// command when the reader of a pipe has left.
type output struct {
	io.Writer
	mu  sync.Mutex
	err error

	wrote bool   // anything
	gone  func() // called when the reader has left
}

// Write writes, and remembers that it failed.
func (o *output) Write(b []byte) (int, error) {
	n, err := o.Writer.Write(b)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.wrote = o.wrote || len(b) > 0
	if o.err == nil {
		o.err = err
	}
	if errors.Is(err, syscall.EPIPE) {
		o.gone()
	}
	return n, err
}

// state reports whether anything was written, and whether the reader has left.
func (o *output) state() (wrote, left bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.wrote, errors.Is(o.err, syscall.EPIPE)
}

// Fd returns the descriptor below, for what draws on a terminal.
func (o *output) Fd() uintptr {
	if f, ok := o.Writer.(interface{ Fd() uintptr }); ok {
		return f.Fd()
	}
	return ^uintptr(0)
}

// finalError returns err, or the first write error if the command gave an answer.
func (o *output) finalError(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if code, message, _ := cli.ExitCode(err); message != "" && code == cli.ExitUnknown || o.err == nil {
		return err
	}
	return fmt.Errorf("writing to standard output: %w", o.err)
}
