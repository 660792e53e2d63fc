package gc

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestAudit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	a, err := OpenAudit(path, here(), 10, noon())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenAudit(path, here(), 10, noon()); err == nil || !strings.Contains(err.Error(), "another run writes to it") {
		t.Errorf("a second run on the same file: %v", err)
	}
	plan := somePlan()
	if err := a.removed([]*Victim{&plan.Remove[0]}, noon()); err != nil {
		t.Fatal(err)
	}
	if err := a.file.Close(); err != nil { // as a SIGKILL does
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	torn := `{"at":"2026-05-04T12:00:00Z","event":"removed","id":"to`
	if _, err := f.WriteString("what is this?\n" + torn); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}

	a, err = OpenAudit(path, here(), 10, noon())
	if err != nil {
		t.Fatal(err)
	}
	if cut, foreign := a.Mended(); cut != len(torn) || foreign != 1 {
		t.Errorf("mended %d bytes, %d foreign lines; want %d and 1", cut, foreign, len(torn))
	}
	if !a.Has(plan.Remove[0].ID) || a.Has("to") {
		t.Error("the file was read wrongly")
	}
	if err := a.Close(0, noon()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(text, []byte{0}) || !bytes.HasSuffix(text, []byte("}\n")) {
		t.Errorf("the file is not whole:\n%s", text)
	}
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		t.Fatal(err)
	}
	if most := int64(8 << 10); stat.Blocks*512 > most {
		t.Errorf("%d bytes are still set aside", stat.Blocks*512)
	}

	other := here()
	other.BootID = "boot-2"
	a, err = OpenAudit(path, other, 10, noon())
	if err != nil {
		t.Fatal(err)
	}
	if a.Has(plan.Remove[0].ID) {
		t.Error("an id of another boot counts as removed")
	}
	if err := a.Close(0, noon()); err != nil {
		t.Fatal(err)
	}
}

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
}

// TestAuditFull asks for more room than any disk has, which is how a full disk shows.
func TestAuditFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	if _, err := OpenAudit(path, here(), math.MaxInt>>21, noon()); err == nil || !strings.Contains(err.Error(), "setting") {
		t.Errorf("%v", err)
	}
}

func FuzzReadAudit(f *testing.F) {
	f.Add([]byte("{\"event\":\"start\"}\n{\"event\":\"removed\",\"id\":\"a\"}\n{\"eve"))
	f.Add([]byte("\n\n\x00\xff\n[]\n"))
	f.Add(bytes.Repeat([]byte("x"), maxAuditLine+10))
	f.Fuzz(func(t *testing.T, text []byte) {
		records, whole, foreign, err := readAudit(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if want := bytes.LastIndexByte(text, '\n') + 1; int(whole) != want {
			t.Errorf("whole lines end at %d, want %d", whole, want)
		}
		if lines := bytes.Count(text, []byte{'\n'}); len(records)+foreign > lines {
			t.Errorf("%d records and %d foreign of %d lines", len(records), foreign, lines)
		}
	})
}

func TestLock(t *testing.T) {
	dir := t.TempDir()
	path := LockPath(dir, "unix:///run/a.sock")
	if path == LockPath(dir, "unix:///run/b.sock") {
		t.Error("two endpoints, one lock")
	}
	l, err := TakeLock(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = TakeLock(path)
	if diff := cmp.Diff(&LockedError{Path: path, PID: os.Getpid()}, err); diff != "" {
		t.Error(diff)
	}
	if want := fmt.Sprintf("process %d", os.Getpid()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q in it", err, want)
	}
	if text := (&LockedError{Path: path}).Error(); strings.Contains(text, "process") {
		t.Error(text)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, err = TakeLock(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
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
