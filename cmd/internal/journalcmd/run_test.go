package journalcmd

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the machine may have none

	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/journal"
)

// TestExitCodes ends a reading in each way, and checks the exit code and what is printed.
func TestExitCodes(t *testing.T) {
	const fine, interrupted, late = 0, 1, 2
	found := func() *journal.Report {
		return &journal.Report{
			Lines: 3, Episodes: []journal.Episode{{Kind: journal.Incident, Lines: 3}},
			Sources: []journal.Source{{Name: "a", Lines: 3}},
		}
	}
	quiet := func() *journal.Report {
		return &journal.Report{
			Lines: 3, Episodes: []journal.Episode{{Kind: journal.Startup, Lines: 3}},
			Sources: []journal.Source{{Name: "a", Lines: 3}, {Name: "b", Problem: "permission denied"}},
		}
	}
	denied := &journal.Report{Sources: []journal.Source{
		{Name: "a", Problem: "permission denied"},
		{Name: "b", Problem: "is a socket"},
	}}
	empty := &journal.Report{Sources: []journal.Source{{Name: "a", Problem: journal.ErrEmpty.Error()}}}
	for _, tt := range []struct {
		name    string
		report  *journal.Report
		err     error
		ended   int
		follow  bool
		code    int
		message string
		hint    string
		stdout  string
	}{
		{
			"denied", denied, nil, fine, false, 2, "a: permission denied; and 1 more that could not be read",
			"run kdiag as root", "",
		},
		{"nothing to read", nil, nil, fine, false, 2, "there was nothing to read", "--help", ""},
		{
			"late, and nothing found", quiet(), context.DeadlineExceeded, late, false, 2, errOutOfTime.Error(),
			"--timeout 5m", "Not read: what was left",
		},
		{"late, and found", found(), nil, late, false, 1, "", "", "UNHEALTHY"},
		{"interrupted, and found", found(), nil, interrupted, false, 2, "", "", "UNHEALTHY"},
		{"following, and found", found(), nil, interrupted, true, 1, "", "", "UNHEALTHY"},
		{"following, and none", quiet(), nil, interrupted, true, 0, "", "", "NOTHING FOUND"},
		{"following an empty file", empty, nil, interrupted, true, 0, "", "", "NOTHING FOUND"},
		{"following a quiet log", nil, nil, interrupted, true, 0, "", "", "nothing was logged"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			env := cli.Env{Out: &stdout, Err: &stderr, Now: time.Now}
			s := &session{env: env, opts: &options{follow: tt.follow}, how: render.Options{Format: render.Text}}
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			limited, end := context.WithCancelCause(ctx)
			defer end(nil)
			switch tt.ended {
			case interrupted:
				interrupt()
			case late:
				end(errOutOfTime)
			}
			code, message, hint := cli.ExitCode(s.finish(ctx, limited, tt.report, journal.Options{}, tt.err))
			if code != tt.code || message != tt.message || !strings.Contains(hint, tt.hint) ||
				(hint != "") != (tt.hint != "") {
				t.Errorf("%d %q, hint %q; want %d %q, hint %q", code, message, hint, tt.code, tt.message, tt.hint)
			}
			if !strings.Contains(stdout.String(), tt.stdout) || tt.stdout == "" && stdout.Len() > 0 {
				t.Errorf("stdout %q, want %q", stdout.String(), tt.stdout)
			}
		})
	}
}
