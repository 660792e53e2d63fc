package gc

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// auditRecords reads the records of an audit file; a line that is none is an error unless it is cut short.
func auditRecords(t *testing.T, path string) []AuditRecord {
	t.Helper()
	var all []AuditRecord
	for line := range strings.Lines(get(t, path)) {
		var r AuditRecord
		if err := json.Unmarshal([]byte(line), &r); err == nil {
			all = append(all, r)
		} else if !strings.HasPrefix(line, `{"at":`) {
			t.Errorf("%q: %v", line, err)
		}
	}
	return all
}

// TestAudit writes, tears the last line as a crash does, and goes on in the same file.
func TestAudit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	a, err := OpenAudit(path, here(), 10, noon())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenAudit(path, here(), 10, noon()); err == nil ||
		!strings.Contains(err.Error(), "another run writes to it") {
		t.Errorf("a second run on the same file: %v", err)
	}
	plan := somePlan()
	// as SIGKILL does
	if err := errors.Join(a.removed(&plan.Remove[0]), a.removed(&plan.Remove[1]), a.file.Close()); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, int64(len(get(t, path))-7)); err != nil {
		t.Fatal(err)
	}
	before := get(t, path)
	if a, err = OpenAudit(path, here(), 10, noon()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.removed(&plan.Remove[1]), a.Close(1, noon())); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(get(t, path), before) {
		t.Error("what was in the file has changed")
	}
	var events []string
	for _, r := range auditRecords(t, path) {
		if r.Candidate != nil {
			r.Event += r.ID
		}
		events = append(events, r.Event)
	}
	if got, want := strings.Join(events, " "), "start removeda start removeds1 end"; got != want {
		t.Errorf("records %q, want %q", got, want)
	}
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil || stat.Blocks*512 > 8<<10 {
		t.Errorf("%d bytes are still reserved, %v", stat.Blocks*512, err)
	}
}

// TestAuditRefused opens what is no audit file: it is refused and left as it is. So is a disk without room.
func TestAuditRefused(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/dev/full":                      "no regular file",
		pipe:                             "no regular file",
		dir:                              "is a directory",
		filepath.Join(dir, "no", "such"): "no such file",
	} {
		if _, err := OpenAudit(path, here(), 1, noon()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	if _, err := OpenAudit(filepath.Join(dir, "full"), here(), math.MaxInt>>21, noon()); err == nil ||
		!strings.Contains(err.Error(), "setting") {
		t.Errorf("more room than any disk has: %v", err)
	}
	for i, text := range []string{
		"my only notes, no newline at end", "my only notes\n", strings.Repeat("x", 2*maxAuditLine), planFile(t),
		`{"at":"noon","what":"lunch"}` + "\n", `{"at":"2026-05-04T12:00:00Z","ev`,
	} {
		path := filepath.Join(dir, fmt.Sprint(i))
		put(t, path, text)
		if _, err := OpenAudit(path, here(), 1, noon()); err == nil ||
			!strings.Contains(err.Error(), "it is no audit file of kdiag") {
			t.Errorf("%.40q: %v", text, err)
		}
		if got := get(t, path); got != text {
			t.Errorf("%.40q: %d bytes are left of %d", text, len(got), len(text))
		}
	}
}

// FuzzOpenAudit opens any file as an audit file: what it holds stays, and nothing is written to one that is refused.
func FuzzOpenAudit(f *testing.F) {
	f.Add("")
	f.Add("{\"event\":\"start\"}\n{\"event\":\"removed\",\"id\":\"a\"}\n{\"eve")
	f.Add("\n\n\x00\xff\n[]\n")
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "audit")
		put(t, path, text)
		a, err := OpenAudit(path, here(), 0, noon())
		if err == nil {
			err = a.Close(0, noon())
		} else if got := get(t, path); got != text {
			t.Errorf("refused, and changed to %q", got)
		}
		if got := get(t, path); !strings.HasPrefix(got, text) || err == nil && !strings.HasSuffix(got, "}\n") {
			t.Errorf("%q became %q", text, got)
		}
	})
}

func TestLock(t *testing.T) {
	dir := t.TempDir()
	path := LockPath(dir, "unix:///run/a.sock")
	if path == LockPath(dir, "unix:///run/b.sock") {
		t.Error("two endpoints, one lock")
	}
	for range 2 { // the second time after the first was released
		l, err := TakeLock(path)
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("another run removes from this runtime already: process %d (it holds %s)", os.Getpid(), path)
		if _, err = TakeLock(path); !errors.Is(err, ErrLocked) || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{link, dir, "/dev/null"} {
		if _, err := TakeLock(bad); err == nil {
			t.Errorf("%s was taken for a lock", bad)
		}
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
