package target

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/incident"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/cmd/internal/screen"
)

// How often --watch looks, and in which time it asks about each object once.
const (
	watchInterval = 5 * time.Second
	watchSweep    = time.Minute
)

// A watching is one run with --watch.
type watching struct {
	env   cli.Env
	f     *cli.Flags
	name  string // of the command
	watch *Watch
	look  func(checks.Header, *facts.Input) *checks.Report
	show  func(io.Writer, *checks.Report, render.Options) error

	tracker *incident.Tracker
	mu      sync.Mutex
	last    *checks.Report
	changes []string // the newest last
}

// DiagnoseAgain is Diagnose with --watch: it looks again and again, until ctx ends, or, with --until-healthy, until
// nothing is wrong any more. In a terminal the verdict stays on top, with what changed below. Else the first answer is
// printed, and then what changes, in a line each; documents are printed whole, one for each change.
func DiagnoseAgain(
	ctx context.Context, env cli.Env, f *cli.Flags, q Question, look func(checks.Header, *facts.Input) *checks.Report,
	show func(io.Writer, *checks.Report, render.Options) error,
) error {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	w := &watching{
		env: f.Host(env), f: f, name: q.Name, look: look, show: show, tracker: incident.New(),
		watch: NewWatch(ctx, env, f, WatchOptions{Interval: watchInterval, Sweep: watchSweep, Question: q}),
	}
	defer w.watch.Close()
	var err error
	if view, problem := screen.Open(env); problem == nil && f.Output == string(render.Text) {
		err = view.Show(ctx, leave, w.draw, func(ctx context.Context) error {
			return w.run(ctx, func(bool) error { return nil })
		})
		if err == nil && w.last != nil {
			err = w.print(false)
		}
	} else {
		err = w.run(ctx, w.print)
	}
	if err != nil || w.last == nil {
		return cmp.Or(err, error(&cli.ExitError{Code: cli.ExitUnknown}))
	}
	return Exit(context.WithoutCancel(ctx), w.last.Status, f.FailOn)
}

// run looks until ctx ends or nothing is wrong. changed is called after the first look and after each that differs.
func (w *watching) run(ctx context.Context, changed func(again bool) error) error {
	for again := false; ; again = true {
		began := time.Now()
		in, problems, err := w.watch.Look(ctx, true)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		r := w.look(Header(w.env, w.name, ""), in)
		Complete(r, problems)
		news := w.take(r, in)
		if news || !again {
			if err := changed(again); err != nil {
				return err
			}
		}
		if w.f.UntilHealthy && r.Status == checks.Healthy && len(w.tracker.Active()) == 0 {
			return nil
		}
		select {
		case <-time.After(watchInterval - time.Since(began)):
		case <-ctx.Done():
			return nil
		}
	}
}

// take takes a report, and reports whether anything changed.
func (w *watching) take(r *checks.Report, in *facts.Input) bool {
	changed := w.tracker.Look(r, incident.Began(in))
	w.mu.Lock()
	defer w.mu.Unlock()
	differs := len(changed) > 0 || w.last == nil || w.last.Status != r.Status
	for _, t := range changed {
		what := map[string]string{
			checks.CauseOnset: "begins", checks.CauseConfirmed: "confirmed", checks.CauseClear: "is gone",
		}[t.To]
		if t.From == t.To {
			what = "is critical"
		}
		w.changes = append(w.changes, fmt.Sprintf("%s %s %s: %s", t.At.Format(time.TimeOnly), t.Cause, what, t.Summary))
	}
	if w.last != nil && w.last.Status != r.Status {
		w.changes = append(w.changes, fmt.Sprintf("%s %s", r.GeneratedAt.Format(time.TimeOnly),
			strings.ToUpper(string(r.Status))))
	}
	w.changes = w.changes[max(0, len(w.changes)-mostChanges):]
	w.last = r
	return differs
}

// How many changes are kept for the screen, and how many are shown before a longer answer.
const (
	mostChanges  = 100
	leastChanges = 2
)

// print prints the answer, or, in text and not for the first time, what changed.
func (w *watching) print(again bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !again || w.f.Output != string(render.Text) {
		w.changes = nil
		return w.show(w.env.Out, w.last, Render(w.env, w.f))
	}
	for _, line := range w.changes {
		if _, err := fmt.Fprintln(w.env.Out, render.Printable(line)); err != nil {
			return err
		}
	}
	w.changes = nil
	return nil
}

// draw draws the verdict, and below it what changed, the newest last.
func (w *watching) draw(width, height int) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == nil {
		return []string{"looking..."}
	}
	how := Render(w.env, w.f)
	how.Width, how.NoWrap = min(width-1, widest), false
	how.Rows = max(height-2-min(len(w.changes), leastChanges), 1)
	var text bytes.Buffer
	if err := w.show(&text, w.last, how); err != nil {
		return []string{err.Error()}
	}
	last := "looked at " + w.last.GeneratedAt.Format(time.TimeOnly) + " UTC, again each " + watchInterval.String() +
		"; q ends"
	return render.Above(text.String(), w.changes, last, width, height)
}
