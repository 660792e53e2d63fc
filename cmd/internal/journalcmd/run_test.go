package journalcmd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

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
			"denied", denied(), nil, fine, false, 2, "a: permission denied; and 1 more that could not be read",
			"run kdiag as root", "",
		},
		{
			"missing", nil, fmt.Errorf("reading x: %w", syscall.ENOENT), fine, false, 2,
			"reading x: no such file or directory", "check the path", "",
		},
		{"nothing to read", nil, nil, fine, false, 2, "there was nothing to read", "--help", ""},
		{"late, and nothing read", nil, nil, late, false, 2, errOutOfTime.Error(), "--timeout 5m", ""},
		{
			"late, and nothing found", quiet(), context.DeadlineExceeded, late, false, 2, errOutOfTime.Error(),
			"--timeout 5m", "this is not all",
		},
		{"late, and found", found(), nil, late, false, 1, "", "", "UNHEALTHY"},
		{"interrupted, and found", found(), nil, interrupted, false, 2, "", "", "UNHEALTHY"},
		{"following, and found", found(), nil, interrupted, true, 1, "", "", "UNHEALTHY"},
		{"following, and none", quiet(), nil, interrupted, true, 0, "", "", "NOTHING FOUND"},
		{"following a quiet log", nil, nil, interrupted, true, 0, "", "", "nothing was logged"},
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

// TestPage has an earlier page replaced, and anything else left as it is.
func TestPage(t *testing.T) {
	dir := t.TempDir()
	for name, want := range map[string]string{"incident.html": "<!DOCTYPE html>", "kubelet.log": "earlier"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("earlier"), 0o600); err != nil {
			t.Fatal(err)
		}
		log := "../../../journal/testdata/derived/d01-short.log"
		opts := &options{html: path}
		opts.Output = "brief"
		env := cli.Env{Out: io.Discard, Err: io.Discard, Now: threeAtNight, Getenv: func(string) string { return "" }}
		if code, _, _ := cli.ExitCode(run(t.Context(), env, opts, []string{log})); (code == 2) != (want == "earlier") {
			t.Errorf("%s: exit code %d", name, code)
		}
		got, err := os.ReadFile(path)
		if err != nil || !strings.HasPrefix(string(got), want) {
			t.Errorf("%s begins %.20q, %v; want %q", name, got, err, want)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".kdiag-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
