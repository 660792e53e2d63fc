package target

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/journal"
)

// TestLookAtJournal holds what becomes of each way in which the logs can be had or not, and that the answer never comes
// later than a third of the command's time, or five seconds.
func TestLookAtJournal(t *testing.T) {
	const window = 15 * time.Minute
	report := &journal.Report{Lines: 7}
	hangs := func(context.Context, string, time.Time) (*journal.Report, error) { // deaf to its context, as a dead disk is
		time.Sleep(time.Hour)
		return report, nil
	}
	for _, tt := range []struct {
		name    string
		flags   cli.Flags
		window  time.Duration
		read    reader
		lines   int64 // of the report; 0: none
		missing string
		within  time.Duration
	}{
		{"read", cli.Flags{}, window, func(context.Context, string, time.Time) (*journal.Report, error) { return report, nil }, 7, "", 0},
		{"no permission", cli.Flags{}, window, func(context.Context, string, time.Time) (*journal.Report, error) {
			return nil, &fs.PathError{Op: "open", Path: "/var/log/journal", Err: fs.ErrPermission}
		}, 0, "open /var/log/journal: permission denied", 0},
		{"in part", cli.Flags{}, window, func(context.Context, string, time.Time) (*journal.Report, error) {
			return report, errors.New("one file is damaged")
		}, 7, "one file is damaged", 0},
		{"nothing", cli.Flags{}, window, func(context.Context, string, time.Time) (*journal.Report, error) { return nil, nil }, 0, "there is none", 0},
		{"hangs", cli.Flags{}, window, hangs, 0, "it took longer than 5s", 5 * time.Second},
		{"hangs, with little time", cli.Flags{Timeout: 2 * time.Second}, window, hangs, 0, "it took longer than 567ms", time.Second},
		{"ends with its context", cli.Flags{}, window, func(ctx context.Context, _ string, _ time.Time) (*journal.Report, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, 0, "it took longer than 5s", 5 * time.Second},
		{"simulated", cli.Flags{Simulate: "healthy"}, window, hangs, 0, "the runtime is simulated", 0},
		{"not wanted", cli.Flags{}, 0, hangs, 0, "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if tt.flags.Timeout == 0 {
					tt.flags.Timeout = 30 * time.Second
				}
				start := time.Now()
				got := <-lookAtJournal(t.Context(), cli.Env{Now: time.Now, Root: "/"}, &tt.flags, tt.window, tt.read)
				if d := time.Since(start); d > tt.within {
					t.Errorf("after %v, want %v", d, tt.within)
				}
				if got.missing != tt.missing {
					t.Errorf("missing %q, want %q", got.missing, tt.missing)
				}
				var lines int64
				if got.report != nil {
					lines = got.report.Lines
					if got.report.GeneratedAt.IsZero() {
						t.Error("the report does not say when it was read")
					}
				}
				if lines != tt.lines {
					t.Errorf("report of %d lines, want %d", lines, tt.lines)
				}
				time.Sleep(2 * time.Hour) // lets what was left behind end
			})
		})
	}
}

// TestJournalWindow wants the reader to be given the root and the beginning of the window.
func TestJournalWindow(t *testing.T) {
	now := time.Date(2026, 3, 14, 3, 9, 26, 0, time.UTC)
	env := cli.Env{Root: "/host", Now: func() time.Time { return now }}
	var root string
	var since time.Time
	<-lookAtJournal(t.Context(), env, &cli.Flags{Timeout: 30 * time.Second}, 15*time.Minute, func(_ context.Context, r string, s time.Time) (*journal.Report, error) {
		root, since = r, s
		return &journal.Report{}, nil
	})
	if root != "/host" || !since.Equal(now.Add(-15*time.Minute)) {
		t.Errorf("root %q, since %v", root, since)
	}
}

// TestLongProblem wants an error of any length to fit a report.
func TestLongProblem(t *testing.T) {
	view := <-lookAtJournal(t.Context(), cli.Env{Now: time.Now}, &cli.Flags{Timeout: time.Minute}, time.Minute, func(context.Context, string, time.Time) (*journal.Report, error) {
		return nil, errors.New(strings.Repeat("x", 1<<16))
	})
	if len(view.missing) > 200 {
		t.Errorf("%d bytes", len(view.missing))
	}
}
