// Package screen shows a picture that moves on the whole terminal, until the work that it shows ends or the person at
// the terminal leaves it.
package screen

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/kdiag/kdiag/cmd/internal/cli"
)

const (
	redrawEvery = 500 * time.Millisecond
	patience    = time.Second // how long the work may take to end before a person reads why nothing happens
)

// The escape codes for the alternate screen, which leaves the shell's history alone, without a cursor.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[0m\x1b[?25h\x1b[?1049l"
)

// A Screen is a terminal to draw on.
type Screen struct {
	out  io.Writer
	err  io.Writer // for a message after the picture is gone
	size func() (width, height int, err error)
	keys io.Reader               // nil where nobody can type
	mute func() (restore func()) // ends the echo of what is typed, and the wait for the end of a line
}

// Open returns the terminal of this process, or an error if standard output is none.
func Open(env cli.Env) (*Screen, error) {
	out, ok := env.Out.(interface{ Fd() uintptr })
	if !ok || !env.OutTTY || env.Getenv("TERM") == "dumb" {
		return nil, cli.Usage("--tui needs a terminal on standard output", "leave out --tui to get text, line by line")
	}
	s := &Screen{
		out: env.Out, err: env.Err,
		size: func() (int, int, error) { return term.GetSize(int(out.Fd())) },
	}
	if in, ok := env.In.(interface{ Fd() uintptr }); ok && env.InTTY {
		s.keys, s.mute = env.In, func() func() { return mute(int(in.Fd())) }
	}
	return s, nil
}

// Show works, and draws a picture of it, until the work or ctx ends. Whoever types q wants it to end: Show calls leave,
// which has to end ctx. The terminal is restored before the work has ended: a runtime that hangs may take minutes.
func (s *Screen) Show(
	ctx context.Context, leave func(), draw func(width, height int) []string, work func(context.Context) error,
) error {
	restore := func() {}
	if s.keys != nil {
		restore = s.mute()
		go s.listen(leave)
	}
	worked := make(chan error, 1)
	go func() { worked <- work(ctx) }()
	_, _ = io.WriteString(s.out, enterScreen)
	end := func() {
		_, _ = io.WriteString(s.out, leaveScreen)
		restore()
	}
	for {
		if width, height, err := s.size(); err == nil {
			lines := draw(cmp.Or(width, 80), cmp.Or(height, 24)) // a serial line does not know its size
			lines = lines[:min(len(lines), cmp.Or(height, 24))]
			_, _ = io.WriteString(s.out, "\x1b[H"+strings.Join(lines, "\x1b[K\r\n")+"\x1b[K\x1b[J")
		}
		select {
		case <-time.After(redrawEvery):
			continue
		case err := <-worked:
			end()
			return err
		case <-ctx.Done():
			end()
		}
		select {
		case err := <-worked:
			return err
		case <-time.After(patience):
			_, _ = fmt.Fprintln(s.err, "kdiag: ending; Ctrl-C, twice, ends at once")
			return <-worked
		}
	}
}

// listen waits for a q.
func (s *Screen) listen(leave func()) {
	typed := make([]byte, 64)
	for {
		n, err := s.keys.Read(typed)
		if bytes.ContainsAny(typed[:n], "qQ") {
			leave()
			return
		}
		if err != nil {
			return
		}
	}
}

// mute makes a terminal pass on each key at once, without an echo. Ctrl-C stays a signal.
func mute(fd int) (restore func()) {
	before, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil {
		return func() {}
	}
	quiet := *before
	quiet.Lflag &^= unix.ICANON | unix.ECHO
	quiet.Cc[unix.VMIN], quiet.Cc[unix.VTIME] = 1, 0
	_ = unix.IoctlSetTermios(fd, setTermios, &quiet)
	return func() { _ = unix.IoctlSetTermios(fd, setTermiosFlushed, before) } // what was typed meanwhile is dropped
}
