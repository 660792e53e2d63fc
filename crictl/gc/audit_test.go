package gc

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzOpenAudit opens any file as an audit file: its content stays, and nothing is written to one that is refused.
func FuzzOpenAudit(f *testing.F) {
	f.Add("")
	f.Add("{\"at\":\"\",\"event\":\"start\"}\n{\"at\":\"\",\"eve")
	f.Add("\n\n\x00\xff\n[]\n")
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "audit")
		put(t, path, text)
		a, err := OpenAudit(path)
		if err == nil {
			err = a.Close()
		} else if got := get(t, path); got != text {
			t.Errorf("refused, and changed to %q", got)
		}
		if got := get(t, path); !strings.HasPrefix(got, text) || err == nil && !strings.HasSuffix(got, "}\n") {
			t.Errorf("%q became %q", text, got)
		}
	})
}

// TestLock locks a runtime twice, the second time by another name of its folder.
func TestLock(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(dir, link))
	for range 2 { // the second time after the first was released
		l, err := Lock(filepath.Join(dir, "c.sock"))
		must(t, err)
		if _, err = Lock(filepath.Join(link, "c.sock")); !errors.Is(err, ErrLocked) {
			t.Errorf("%v, want %v", err, ErrLocked)
		}
		must(t, l.Close())
	}
	if _, err := Lock(filepath.Join(dir, "none", "c.sock")); err == nil || errors.Is(err, ErrLocked) {
		t.Errorf("a folder that is not there: %v", err)
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(text), 0o600))
}

func get(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}
