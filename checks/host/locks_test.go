package host

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLocksBefore has this process hold locks, and looks at them as those of a child that has the file too, and as its
// own.
func TestLocksBefore(t *testing.T) {
	for name, lock := range map[string]func(fd uintptr) error{
		"meta.db": func(fd uintptr) error { return unix.Flock(int(fd), unix.LOCK_EX) },
		"lock":    func(fd uintptr) error { return unix.Flock(int(fd), unix.LOCK_EX) },
		"storage.lock": func(fd uintptr) error {
			return unix.FcntlFlock(fd, unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
		},
	} {
		t.Run(name, func(t *testing.T) { locksBefore(t, name, lock) })
	}
}

func locksBefore(t *testing.T, name string, lock func(fd uintptr) error) {
	name = filepath.Join(t.TempDir(), name)
	f, err := os.Create(name)
	must(t, err)
	defer f.Close()
	must(t, lock(f.Fd()))
	again, err := os.OpenFile(name, os.O_RDWR, 0) // a file description without the lock
	must(t, err)
	defer again.Close()
	child := testChild(t).program
	other, err := os.StartProcess(child, []string{child, ChildArgument, verbSpace, "/", "/stops"},
		&os.ProcAttr{Files: []*os.File{nil, nil, nil, again}})
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
