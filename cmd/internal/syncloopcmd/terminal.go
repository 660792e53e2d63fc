package syncloopcmd

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/kdiag/kdiag/cmd/internal/cli"
)

// A terminal is where the view is drawn and its keys are typed.
type terminal struct {
	in   io.Reader // returns within a moment, with io.EOF if nothing was typed
	out  io.Writer
	size func() (width, height int, err error)
	mode func() (restore func(), err error) // makes it hand over keys as they are typed, unseen
}

// terminalOf returns the terminal of this process, or a usage error.
func terminalOf(env cli.Env) (terminal, error) {
	in, inOK := env.In.(interface{ Fd() uintptr })
	out, outOK := env.Out.(interface{ Fd() uintptr })
	if !env.InTTY || !env.OutTTY || !inOK || !outOK || env.Getenv("TERM") == "dumb" {
		return terminal{}, &cli.UsageError{Problem: "--tui needs a terminal", Hint: "leave it out to get the log"}
	}
	return terminal{
		in: env.In, out: env.Out,
		size: func() (int, int, error) { return term.GetSize(int(out.Fd())) },
		mode: func() (func(), error) { return keyMode(int(in.Fd())) },
	}, nil
}

// keyMode turns off echo and editing. An interrupt stays a signal, so that it ends the command whatever hangs; the keys that
// stop the process or its output have no effect, since both would leave the view on the screen.
func keyMode(fd int) (restore func(), err error) {
	before, err := term.GetState(fd)
	if err != nil {
		return nil, fmt.Errorf("asking for the terminal's mode: %w", err)
	}
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("asking for the terminal's mode: %w", err)
	}
	t.Lflag &^= unix.ICANON | unix.ECHO
	t.Iflag &^= unix.IXON
	t.Cc[unix.VSUSP], t.Cc[unix.VQUIT] = 0, 0
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 0, 1 // a read waits for at most a tenth of a second
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, t); err != nil {
		return nil, fmt.Errorf("setting the terminal's mode: %w", err)
	}
	return func() { _ = term.Restore(fd, before) }, nil
}

// readKeys sends what is typed until done is closed, or until the terminal is gone.
func (t terminal) readKeys(done <-chan struct{}, send chan<- key) {
	var pending []byte
	buf := make([]byte, 64)
	for {
		n, err := t.in.Read(buf)
		var keys []key
		keys, pending = parseKeys(append(pending, buf[:n]...))
		for _, k := range keys {
			select {
			case send <- k:
			case <-done:
				return
			}
		}
		select {
		case <-done:
			return
		default:
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return
		}
	}
}
