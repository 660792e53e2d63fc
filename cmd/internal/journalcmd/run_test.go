package journalcmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/journal"
)

func found() *journal.Report {
	return &journal.Report{
		Lines: 3, Episodes: []journal.Episode{{Kind: journal.Incident, Lines: 3}},
		Sources: []journal.Source{{Name: "a", Lines: 3}},
	}
}

func quiet() *journal.Report {
	return &journal.Report{
		Lines: 3, Episodes: []journal.Episode{{Kind: journal.Startup, Lines: 3}},
		Sources: []journal.Source{{Name: "a", Lines: 3}, {Name: "b", Problem: "permission denied"}},
	}
}

func denied() *journal.Report {
	return &journal.Report{Sources: []journal.Source{
		{Name: "a", Problem: "permission denied"},
		{Name: "b", Problem: "is a socket"},
	}}
}

// TestExitCodes holds the exit code, and what is said on the way out, against what was found and how the reading ended.
func TestExitCodes(t *testing.T) {
	const fine, interrupted, late = 0, 1, 2
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
		{"an incident", found(), nil, fine, false, 1, "", "", "UNHEALTHY"},
		{"none", quiet(), nil, fine, false, 0, "", "", "NOTHING FOUND"},
		{
			"no record in the range", &journal.Report{Sources: []journal.Source{{Name: "a"}}}, nil, fine, false, 0, "",
			"", "there is no record",
		},
		{
			"denied", denied(), nil, fine, false, 2, "a: permission denied; and 1 more that could not be read",
			"run kdiag as root", "",
		},
		{
			"a name like a word", &journal.Report{Sources: []journal.Source{{
				Name:    "e",
				Problem: journal.ErrNoLogs.Error(),
			}}}, fs.ErrNotExist,
			fine, false, 2, "e: " + journal.ErrNoLogs.Error(), "a folder that holds", "",
		},
		{
			"missing", nil, fmt.Errorf("reading x: %w", fs.ErrNotExist), fine, false, 2,
			"reading x: file does not exist", "check the path", "",
		},
		{"nothing to read", nil, nil, fine, false, 2, "there was nothing to read", "--help", ""},
		{"late, and nothing read", nil, nil, late, false, 2, errOutOfTime.Error(), "--timeout 5m", ""},
		{
			"late, and nothing found", quiet(), context.DeadlineExceeded, late, false, 2, errOutOfTime.Error(),
			"--timeout 5m", "this is not all",
		},
		{
			"late: the headline", quiet(), context.DeadlineExceeded, late, false, 2, errOutOfTime.Error(),
			"--timeout 5m", "NOTHING FOUND YET  ",
		},
		{"late, and found", found(), nil, late, false, 1, "", "", "UNHEALTHY"},
		{"interrupted, and found", found(), nil, interrupted, false, 2, "", "", "UNHEALTHY"},
		{"interrupted, and nothing read", nil, nil, interrupted, false, 2, "", "", ""},
		{"following, and found", found(), nil, interrupted, true, 1, "", "", "UNHEALTHY"},
		{"following, and none", quiet(), nil, interrupted, true, 0, "", "", "NOTHING FOUND"},
		{"following a quiet log", nil, nil, interrupted, true, 0, "", "", "nothing was logged"},
		{
			"following what is not there", nil, journal.ErrNoJournal, fine, true, 2, journal.ErrNoJournal.Error(),
			"name what to read", "",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			env := cli.Env{Out: &stdout, Err: &stderr, Now: threeAtNight}
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

// TestDocumentOfNothing wants one whole document when nothing could be read.
func TestDocumentOfNothing(t *testing.T) {
	var stdout, stderr bytes.Buffer
	s := &session{
		env: cli.Env{Out: &stdout, Err: &stderr, Now: threeAtNight}, opts: &options{},
		how: render.Options{Format: render.JSON},
	}
	reading := journal.Options{Inputs: []journal.Input{{Path: "gone.log"}}}
	err := s.finish(t.Context(), t.Context(), nil, reading, fs.ErrNotExist)
	if code, _, _ := cli.ExitCode(err); code != cli.ExitUnknown {
		t.Errorf("exit code %d", code)
	}
	var r journal.Report
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		t.Fatalf("%v: %s", err, stdout.String())
	}
	if r.Kind != "JournalReport" || r.Episodes == nil || len(r.Sources) != 1 || r.Sources[0].Name != "gone.log" ||
		r.Sources[0].Problem == "" {
		t.Errorf("%+v", r)
	}
}

// TestPageIsKept wants an earlier page to stay when there is nothing for a new one.
func TestPageIsKept(t *testing.T) {
	name := filepath.Join(t.TempDir(), "incident.html")
	if err := os.WriteFile(name, []byte("earlier"), 0o600); err != nil {
		t.Fatal(err)
	}
	finish := func(r *journal.Report) {
		t.Helper()
		page, err := cli.OpenDestination("--html", name)
		if err != nil {
			t.Fatal(err)
		}
		defer page.Close()
		var out bytes.Buffer
		s := &session{
			env: cli.Env{Out: &out, Err: &out, Now: threeAtNight}, opts: &options{}, how: render.Options{},
			page: page,
		}
		_ = s.finish(t.Context(), t.Context(), r, journal.Options{}, nil)
	}
	for _, tt := range []struct {
		report *journal.Report
		want   string
	}{{denied(), "earlier"}, {found(), "<!DOCTYPE html>"}} {
		finish(tt.report)
		got, err := os.ReadFile(name)
		if err != nil || !strings.HasPrefix(string(got), tt.want) {
			t.Errorf("the page begins %.20q, %v; want %q", got, err, tt.want)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(name), ".kdiag-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestRangeNote(t *testing.T) {
	from, to := threeAtNight().Add(-time.Hour), threeAtNight()
	r := &journal.Report{From: &from, To: &to}
	for _, tt := range []struct {
		since, until time.Time
		want         string
	}{
		{time.Time{}, time.Time{}, ""},
		{from, time.Time{}, "only what lies after 2026-11-21 02:12:09 +08:00 was asked for"},
		{from, to, "only what lies after 2026-11-21 02:12:09 +08:00 and before 2026-11-21 03:12:09 +08:00 was asked for"},
		{time.Time{}, from.Add(-1), "only what lies before 2026-11-21 02:12:08 +08:00 was asked for, and no record that was read does"},
		{to.Add(time.Second), time.Time{}, "only what lies after 2026-11-21 03:12:10 +08:00 was asked for, and no record that was read does"},
	} {
		if got := rangeNote(r, journal.Options{Since: tt.since, Until: tt.until}); got != tt.want {
			t.Errorf("got  %q\nwant %q", got, tt.want)
		}
	}
}

func TestHints(t *testing.T) {
	for _, err := range []error{
		fs.ErrPermission, fs.ErrNotExist, journal.ErrNoJournal, journal.ErrNoLogs, journal.ErrNoMatch,
		journal.ErrNoBoot,
		journal.ErrEmpty, errOutOfTime,
	} {
		for _, e := range []error{fmt.Errorf("reading x: %w", err), errors.New("x: " + err.Error())} {
			if got := hint(e); got == generalHint && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%v: no hint of its own", e)
			}
		}
	}
}
