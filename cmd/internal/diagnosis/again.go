package diagnosis

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/incident"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/cmd/internal/screen"
)

// How often --watch reports, and in which time it asks about each object once.
const (
	watchInterval = 5 * time.Second
	watchSweep    = time.Minute
)

// A repetition is one run with --watch.
type repetition struct {
	env     cli.Env
	flags   *cli.Flags
	command string
	show    Show
	watch   *Watch
	tracker *incident.Tracker

	mu      sync.Mutex
	last    *checks.Report
	changes []string // the newest last
}

// reportAgain is Report with --watch: it reports again and again, until ctx ends or, with --until-healthy, until
// nothing is wrong any more. In a terminal the verdict stays on top, with the changes below. Elsewhere the first report
// is printed, and then each change in a line; documents are printed whole, one for each change.
func reportAgain(ctx context.Context, env cli.Env, f *cli.Flags, r Request, show Show) error {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	a := &repetition{
		env: f.Host(env), flags: f, command: r.Command, show: show, tracker: incident.New(),
		watch: NewWatch(ctx, env, f, WatchOptions{Interval: watchInterval, Sweep: watchSweep, Request: r}),
	}
	defer a.watch.Close()
	var err error
	if view, problem := screen.Open(env); problem == nil && f.Output == string(render.Text) {
		err = view.Show(ctx, leave, a.draw, func(ctx context.Context) error {
			return a.run(ctx, func(bool) error { return nil })
		})
		if err == nil && a.last != nil {
			err = a.print(false)
		}
	} else {
		err = a.run(ctx, a.print)
	}
	if err != nil || a.last == nil {
		return cmp.Or(err, error(&cli.ExitError{Code: cli.ExitUnknown}))
	}
	return document.Exit(context.WithoutCancel(ctx), a.last.Status, f.FailOn)
}

// run reports until ctx ends or nothing is wrong. changed is called after the first report and after each that differs.
func (a *repetition) run(ctx context.Context, changed func(again bool) error) error {
	for again := false; ; again = true {
		began := time.Now()
		node, err := a.watch.Observe(ctx, true)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		r := judge.NewReport(document.Header(a.env, a.command, ""), node.Facts)
		document.Complete(r, node.Problems)
		news := a.take(r, node.Facts)
		if news || !again {
			if err := changed(again); err != nil {
				return err
			}
		}
		if a.flags.UntilHealthy && r.Status == checks.Healthy && len(a.tracker.Active()) == 0 {
			return nil
		}
		select {
		case <-time.After(watchInterval - time.Since(began)):
		case <-ctx.Done():
			return nil
		}
	}
}

// take updates the state by a report, and reports whether anything changed.
func (a *repetition) take(r *checks.Report, in *facts.Input) bool {
	changed := a.tracker.Update(r, incident.Began(in))
	a.mu.Lock()
	defer a.mu.Unlock()
	differs := len(changed) > 0 || a.last == nil || a.last.Status != r.Status
	for _, t := range changed {
		what := map[string]string{
			checks.CauseOnset: "begins", checks.CauseConfirmed: "confirmed", checks.CauseClear: "is gone",
		}[t.To]
		if t.From == t.To {
			what = "is critical"
		}
		a.changes = append(a.changes, fmt.Sprintf("%s %s %s: %s", t.At.Format(time.TimeOnly), t.Cause, what, t.Summary))
	}
	if a.last != nil && a.last.Status != r.Status {
		a.changes = append(a.changes, fmt.Sprintf("%s %s", r.GeneratedAt.Format(time.TimeOnly),
			strings.ToUpper(string(r.Status))))
	}
	a.changes = a.changes[max(0, len(a.changes)-mostChanges):]
	a.last = r
	return differs
}

// The number of changes kept for the screen, and of those shown above a longer report.
const (
	mostChanges  = 100
	leastChanges = 2
)

// print prints the report, or, in text and not for the first time, the changes.
func (a *repetition) print(again bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !again || a.flags.Output != string(render.Text) {
		a.changes = nil
		return a.show(a.env.Out, a.last, document.Options(a.env, a.flags))
	}
	for _, line := range a.changes {
		if _, err := fmt.Fprintln(a.env.Out, render.Printable(line)); err != nil {
			return err
		}
	}
	a.changes = nil
	return nil
}

// draw draws the verdict, and the changes below it, the newest last.
func (a *repetition) draw(width, height int) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last == nil {
		return []string{"looking..."}
	}
	how := document.Options(a.env, a.flags)
	how.Width, how.NoWrap = min(width-1, document.Widest), false
	how.Rows = max(height-2-min(len(a.changes), leastChanges), 1)
	var text bytes.Buffer
	if err := a.show(&text, a.last, how); err != nil {
		return []string{err.Error()}
	}
	last := "looked at " + a.last.GeneratedAt.Format(time.TimeOnly) + " UTC, again each " + watchInterval.String() +
		"; q ends"
	return render.Above(text.String(), a.changes, last, width, height)
}
