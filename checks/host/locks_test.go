package host_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/checks/host"
)

// TestLocksBefore has this process hold a lock, and looks at it as the parent's and as its own.
func TestLocksBefore(t *testing.T) {
	name := filepath.Join(t.TempDir(), "meta.db")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	files := []*os.File{nil, nil, nil, f}
	other, err := os.StartProcess("/bin/sleep", []string{"sleep", "60"}, &os.ProcAttr{Files: files})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Kill(); _, _ = other.Wait() }()
	got, err := host.LocksBefore(t.Context(), "/", other.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) == 1 {
		got[0].Name, got[0].State = "", 0
	}
	if diff := cmp.Diff([]host.FileLock{{Path: name, PID: os.Getpid()}}, got); diff != "" {
		t.Error(diff)
	}
	if got, err := host.LocksBefore(t.Context(), "/", os.Getpid()); len(got) > 0 || err != nil {
		t.Errorf("its own locks: %+v, %v", got, err)
	}
}
