package syncloopcmd

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/plegbench/syncloop"
	"github.com/kdiag/kdiag/plegbench/syncloop/podworkers"
)

const (
	redrawEvery = 500 * time.Millisecond
	slow        = 5 * time.Second // a worker that waits so long is coloured
	keptLines   = 200             // of the log
)

// The escape codes for the view: the alternate screen, which leaves the shell's history alone.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[0m\x1b[?25h\x1b[?1049l"
)

// A viewer shows a syncLoop at work, one snapshot after the other.
type viewer struct {
	screen   io.Writer
	size     func() (width, height int, err error)
	snapshot func() syncloop.Snapshot
	log      *logLines
	err      io.Writer // for what is written when the view is gone
	color    bool
}

// run works, and shows it, until ctx or the work ends. The screen is restored before the work has ended: a runtime that
// hangs may take minutes.
func (v *viewer) run(ctx context.Context, work func(context.Context) error) error {
	worked := make(chan error, 1)
	go func() { worked <- work(ctx) }()
	_, _ = io.WriteString(v.screen, enterScreen)
	for {
		if width, height, err := v.size(); err == nil {
			lines := draw(v.snapshot(), v.log.newest(), time.Now(), width, height, v.color)
			_, _ = io.WriteString(v.screen, "\x1b[H"+strings.Join(lines, "\x1b[K\r\n")+"\x1b[K\x1b[J")
		}
		select {
		case <-time.After(redrawEvery):
			continue
		case err := <-worked:
			_, _ = io.WriteString(v.screen, leaveScreen)
			return err
		case <-ctx.Done():
			_, _ = io.WriteString(v.screen, leaveScreen)
			_, _ = fmt.Fprintln(v.err, "kdiag: ending; Ctrl-C, twice, ends at once")
			return <-worked
		}
	}
}

// logLines is a writer that keeps the newest lines, without what a terminal would act on. It is safe for use by several
// goroutines; each write is one line or more, as klog's are.
type logLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(b) {
		l.lines = append(l.lines, render.Printable(string(line)))
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

// The colours of lines, as codes of SGR.
const (
	bold   = 1
	red    = 31
	yellow = 33
)

// draw returns a picture of a snapshot and the log for a terminal of width columns and height lines. Each line is one
// column narrower: some terminals erase the last column together with what is behind it.
func draw(s syncloop.Snapshot, log []string, now time.Time, width, height int, color bool) []string {
	var lines []string
	add := func(ink int, format string, args ...any) {
		text := []rune(fmt.Sprintf(format, args...))
		line := string(text[:max(0, min(len(text), width-1))])
		if color && ink != 0 {
			line = fmt.Sprintf("\x1b[%dm%s\x1b[0m", ink, line)
		}
		lines = append(lines, line)
	}
	since := func(t time.Time) string {
		if t.IsZero() {
			return "long" // never
		}
		return units.Duration(now.Sub(t))
	}
	loop, relist := s.Loop, s.PLEG
	add(bold, "kdiag syncloop  %s UTC  %s  %s", now.UTC().Format(time.TimeOnly), s.Node, s.Runtime)
	add(0, "LOOP    last turn %s ago, %d turns, %d updates pending",
		since(loop.LastTurn), loop.Turns, loop.Updates)
	if !loop.SkippingSince.IsZero() {
		add(red, "        skipping for %s: %s", since(loop.SkippingSince), render.Printable(loop.Why))
	}
	add(0, "PLEG    last good relist %s ago, %d relists, %d failed, %d pods to inspect again",
		since(relist.LastRelist), relist.Relists, relist.Failures, relist.Uninspected)
	if t := relist.InProgressSince; !t.IsZero() {
		add(yellow, "        relist in progress for %s", since(t))
	}
	add(0, "        events: %d pending, %d dropped", relist.Queued, relist.Discarded)
	for _, c := range s.Conditions {
		if age := since(c.LastTransitionTime.Time); (c.Type == "Ready") != (c.Status == "True") {
			add(red, "NODE    %s %s for %s: %s", c.Type, c.Status, age, render.Printable(c.Message))
		}
	}
	phases := map[string]string{}
	for _, p := range s.Pods {
		phases[string(p.UID)] = string(p.Status.Phase)
	}
	slices.SortStableFunc(s.Workers, func(a, b podworkers.WorkerState) int {
		return cmp.Or(strings.Compare(activity(b), activity(a)), a.Since.Compare(b.Since))
	})
	add(bold, "PODS    %d, workers: %d, the busy first", len(s.Pods), len(s.Workers))
	room := max(height-len(lines)-1, 0) // above the log's head
	for _, w := range s.Workers[:min(len(s.Workers), max(room*2/3, room-len(log)))] {
		ink := 0
		if activity(w) != "idle" && now.Sub(w.Since) >= slow {
			ink = yellow
		}
		add(ink, "%-44.44s  %-9s  %s, %s, %s",
			w.Name, cmp.Or(phases[string(w.UID)], "gone"), w.Step, activity(w), since(w.Since))
	}
	add(bold, "LOG")
	for _, text := range log[max(0, len(log)-max(0, height-len(lines))):] {
		add(map[byte]int{'E': red, 'W': yellow}[(text + " ")[0]], "%s", text)
	}
	return lines[:min(len(lines), height)]
}

// activity returns what a worker does.
func activity(w podworkers.WorkerState) string {
	switch {
	case w.WaitingInCache:
		return "waits for PLEG"
	case w.Busy:
		return "works"
	}
	return "idle"
}
