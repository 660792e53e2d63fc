package host

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLocksBefore has this process hold a lock, and looks at it as a child's that has the file too, and as its own.
func TestLocksBefore(t *testing.T) {
	name := filepath.Join(t.TempDir(), "meta.db")
	f, err := os.Create(name)
	must(t, err)
	defer f.Close()
	must(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	child := testChild(t).program
	other, err := os.StartProcess(child, []string{child, ChildArgument, verbSpace, "/", "/stops"},
		&os.ProcAttr{Files: []*os.File{nil, nil, nil, f}})
	must(t, err)
	defer func() { _ = other.Kill(); _, _ = other.Wait() }()
	got, err := LocksBefore(t.Context(), "/", other.Pid)
	must(t, err)
	if len(got) == 1 {
		got[0].Name, got[0].State = "", 0
	}
	equal(t, "the child's", []FileLock{{Path: name, PID: os.Getpid()}}, got)
	got, err = LocksBefore(t.Context(), "/", os.Getpid())
	if len(got) > 0 || err != nil {
		t.Errorf("its own locks: %+v, %v", got, err)
	}
}
