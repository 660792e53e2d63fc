package syncloopcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/plegbench/syncloop"
)

const (
	redrawEvery = 500 * time.Millisecond
	endsWithin  = time.Second // how long the screen may take to be given back, and the syncLoop to end unmentioned
	keptRelists = 60
	lastWords   = 10 // lines of the log that stay on the screen when the syncLoop could not go on
)

// The escape codes for the view: the screen behind the screen, on which no shell's history is lost.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[2J"
	leaveScreen = "\x1b[0m\x1b[2J\x1b[?25h\x1b[?1049l"
	clearScreen = "\x1b[2J"
	clearLine   = "\x1b[2K"
)

// A viewer shows a syncLoop at work.
type viewer struct {
	term     terminal
	snapshot func() syncloop.Snapshot
	log      *ring
	err      io.Writer // for what is said when the view is gone
	opts     render.Options

	view       render.LoopView // as drawn next
	held       time.Time       // since when the picture is paused; zero while it moves
	drawn      []string
	wide, high int
}

// run works, and shows it, until somebody quits, ctx ends or work does. The screen is given back before work has ended: a
// runtime that hangs may hold that up.
func (v *viewer) run(ctx context.Context, work func(context.Context) error) error {
	restore, err := v.term.mode()
	if err != nil {
		return err
	}
	ctx, quit := context.WithCancel(ctx)
	defer quit()
	shown := make(chan error, 1)
	go func() {
		err := v.show(ctx)
		restore()
		quit()
		shown <- err
	}()
	worked := make(chan error, 1)
	go func() { worked <- work(ctx) }()
	select {
	case err = <-worked:
		quit()
		select {
		case <-shown:
		case <-time.After(endsWithin):
		}
	case err = <-shown:
		err = errors.Join(err, v.ending(worked))
	}
	restore() // once more: a terminal that takes no output has kept show from its end
	if err != nil {
		lines := v.log.newest()
		for _, line := range lines[max(0, len(lines)-lastWords):] {
			_, _ = fmt.Fprintln(v.err, render.Printable(line))
		}
	}
	return err
}

// ending waits for the end of work, and says so when that takes its time.
func (v *viewer) ending(worked <-chan error) error {
	select {
	case err := <-worked:
		return err
	case <-time.After(endsWithin):
	}
	_, _ = fmt.Fprintln(v.err, "kdiag: ending; the runtime has not answered yet. Ctrl-C, twice, ends at once")
	return <-worked
}

// show draws the view until ctx ends or somebody quits.
func (v *viewer) show(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	defer reading.Wait() // what is typed from then on is for the shell
	defer cancel()
	_, _ = io.WriteString(v.term.out, enterScreen)
	defer func() { _, _ = io.WriteString(v.term.out, leaveScreen) }()
	snapshots := make(chan syncloop.Snapshot)
	go v.watch(ctx, snapshots)
	keys := make(chan key)
	reading.Go(func() { v.term.readKeys(ctx.Done(), keys) })
	tick := time.NewTicker(redrawEvery)
	defer tick.Stop()
	v.view.At = time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-snapshots:
			v.take(s)
		case k := <-keys:
			if k == keyQuit {
				return nil
			}
			v.press(k)
		case <-tick.C:
		}
		if err := v.draw(time.Now()); err != nil {
			return fmt.Errorf("drawing the view: %w", err)
		}
	}
}

// watch takes snapshots, apart from the drawing: should one hang, the view goes on and says so.
func (v *viewer) watch(ctx context.Context, send chan<- syncloop.Snapshot) {
	tick := time.NewTicker(redrawEvery)
	defer tick.Stop()
	for {
		select {
		case send <- v.snapshot():
		case <-ctx.Done():
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// take makes a snapshot the one to show, unless the picture is paused.
func (v *viewer) take(s syncloop.Snapshot) {
	if !v.held.IsZero() {
		return
	}
	if ended := s.PLEG.Relists - v.view.PLEG.Relists; ended > 0 {
		seconds := s.PLEG.Duration.Seconds()
		if s.PLEG.Failures > v.view.PLEG.Failures {
			seconds = -1
		}
		v.view.Relists = append(v.view.Relists, seconds)
		v.view.Relists = slices.Clone(v.view.Relists[max(0, len(v.view.Relists)-keptRelists):])
	}
	v.view.Snapshot = s
}

// press does what a key asks for.
func (v *viewer) press(k key) {
	const page = 10
	switch k {
	case keyPause:
		if v.held.IsZero() {
			v.held = time.Now()
		} else {
			v.held = time.Time{}
		}
	case keyUp:
		v.view.Scroll--
	case keyDown:
		v.view.Scroll++
	case keyPageUp:
		v.view.Scroll -= page
	case keyPageDown:
		v.view.Scroll += page
	case keyQuit: // is the caller's
	}
}

// draw brings the screen up to date: the lines that have changed, in one write.
func (v *viewer) draw(now time.Time) error {
	width, height, err := v.term.size()
	if err != nil {
		return err
	}
	v.view.Paused = 0
	if v.held.IsZero() {
		v.view.Now, v.view.Log = now, v.log.newest()
	} else {
		v.view.Paused = max(now.Sub(v.held), 1)
	}
	lines, scroll := v.view.Lines(width, height, v.opts)
	v.view.Scroll = scroll
	var out bytes.Buffer
	if width != v.wide || height != v.high {
		v.wide, v.high, v.drawn = width, height, nil
		out.WriteString(clearScreen)
	}
	for i := range max(len(lines), len(v.drawn)) {
		was, is := at(v.drawn, i), at(lines, i)
		if was != is {
			fmt.Fprintf(&out, "\x1b[%d;1H%s%s", i+1, clearLine, is)
		}
	}
	v.drawn = lines
	if out.Len() == 0 {
		return nil
	}
	_, err = v.term.out.Write(out.Bytes())
	return err
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return ""
}
