package syncloopcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/plegbench/syncloop"
)

const (
	redrawEvery = 500 * time.Millisecond
	endsWithin  = time.Second // how long a syncLoop may take to end before the wait is mentioned
	keptLines   = 200         // of the log
	lastLines   = 10          // of the log that stay on the screen when the syncLoop failed
)

// The escape codes for the view: the alternate screen, which leaves the shell's history alone.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[0m\x1b[?25h\x1b[?1049l"
)

// A terminal is where the view is drawn and its keys are typed.
type terminal struct {
	in   io.Reader
	out  io.Writer
	size func() (width, height int, err error)
	raw  func() (restore func(), err error) // hands over keys as they are typed, unechoed
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
		raw: func() (func(), error) {
			before, err := term.MakeRaw(int(in.Fd()))
			if err != nil {
				return nil, fmt.Errorf("setting the terminal's mode: %w", err)
			}
			return func() { _ = term.Restore(int(in.Fd()), before) }, nil
		},
	}, nil
}

// A viewer shows a syncLoop at work.
type viewer struct {
	term     terminal
	snapshot func() syncloop.Snapshot
	log      *logLines
	err      io.Writer // for what is written when the view is gone
	color    bool

	view   view
	paused bool
}

// run works, and shows it, until a key ends it, ctx ends or work does. The screen is restored before work has ended:
// a runtime that hangs may take minutes.
func (v *viewer) run(ctx context.Context, work func(context.Context) error) error {
	restore, err := v.term.raw()
	if err != nil {
		return err
	}
	ctx, quit := context.WithCancel(ctx)
	defer quit()
	worked := make(chan error, 1)
	go func() {
		worked <- work(ctx)
		quit()
	}()
	err = v.show(ctx)
	quit()
	restore()
	select {
	case workErr := <-worked:
		err = errors.Join(err, workErr)
	case <-time.After(endsWithin):
		_, _ = fmt.Fprintln(v.err, "kdiag: ending; the runtime has not answered yet. Ctrl-C, twice, ends at once")
		err = errors.Join(err, <-worked)
	}
	if err != nil {
		lines := v.log.newest()
		for _, line := range lines[max(0, len(lines)-lastLines):] {
			_, _ = fmt.Fprintln(v.err, printable(line))
		}
	}
	return err
}

// show draws the view until ctx ends or a key ends it.
func (v *viewer) show(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_, _ = io.WriteString(v.term.out, enterScreen)
	defer func() { _, _ = io.WriteString(v.term.out, leaveScreen) }()
	snapshots, keys := make(chan syncloop.Snapshot), make(chan string)
	go func() { // apart from the drawing, which goes on if a snapshot hangs
		for ctx.Err() == nil {
			select {
			case snapshots <- v.snapshot():
			case <-ctx.Done():
			}
			select {
			case <-time.After(redrawEvery):
			case <-ctx.Done():
			}
		}
	}()
	go func() {
		buf := make([]byte, 16)
		for ctx.Err() == nil {
			n, err := v.term.in.Read(buf)
			if err != nil {
				return
			}
			select {
			case keys <- string(buf[:n]):
			case <-ctx.Done():
			}
		}
	}()
	tick := time.NewTicker(redrawEvery)
	defer tick.Stop()
	v.view.At = time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-snapshots:
			if !v.paused {
				v.view.Snapshot = s
			}
		case k := <-keys:
			if !v.press(k) {
				return nil
			}
		case <-tick.C:
		}
		if err := v.draw(); err != nil {
			return fmt.Errorf("drawing the view: %w", err)
		}
	}
}

// press does what a key asks for; it returns false for those that end the view.
func (v *viewer) press(k string) bool {
	const ctrlC, page = "\x03", 10
	switch k {
	case "q", "Q", ctrlC:
		return false
	case "p", "P", " ":
		v.paused = !v.paused
	case "k", "\x1b[A", "\x1bOA":
		v.view.scroll--
	case "j", "\x1b[B", "\x1bOB":
		v.view.scroll++
	case "\x1b[5~":
		v.view.scroll -= page
	case "\x1b[6~":
		v.view.scroll += page
	}
	v.view.scroll = max(0, min(v.view.scroll, len(v.view.Pods)-1))
	return true
}

// draw writes the whole picture, in one write.
func (v *viewer) draw() error {
	width, height, err := v.term.size()
	if err != nil {
		return err
	}
	if v.view.paused = v.paused; !v.paused {
		v.view.now, v.view.log = time.Now(), v.log.newest()
	}
	lines := v.view.lines(width, height, v.color)
	_, err = io.WriteString(v.term.out, "\x1b[H"+strings.Join(lines, "\x1b[K\r\n")+"\x1b[K\x1b[J")
	return err
}

// logLines is a writer that keeps the newest lines. It is safe for use by several goroutines; each write is one line
// or more, as klog's are.
type logLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(b) {
		l.lines = append(l.lines, string(bytes.TrimSuffix(line, []byte("\n"))))
	}
	l.lines = slices.Clone(l.lines[max(0, len(l.lines)-keptLines):])
	return len(b), nil
}

// newest returns the newest lines, oldest first.
func (l *logLines) newest() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}
