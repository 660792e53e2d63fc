package gc

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A LockedError says that another run holds the lock.
type LockedError struct {
	Path string
	PID  int // of the other run; 0 when the file does not say
}

func (e *LockedError) Error() string {
	if e.PID == 0 {
		return "another run removes from this runtime already (it holds " + e.Path + ")"
	}
	return fmt.Sprintf("another run removes from this runtime already: process %d (it holds %s)", e.PID, e.Path)
}

// A Lock keeps other runs away from a runtime until Close, or until the process ends in whatever way.
type Lock struct{ file *os.File }

// LockPath returns the name of the lock file for an endpoint below dir, such as /run/lock.
func LockPath(dir, endpoint string) string {
	sum := sha256.Sum256([]byte(endpoint))
	return filepath.Join(dir, "kdiag-gc-"+hex.EncodeToString(sum[:6])+".lock")
}

// TakeLock takes the lock at path and writes this process's id into it. The error is a *LockedError when another run
// holds it. The file stays when the lock is given back: to remove it would let two runs hold two files of one name.
func TakeLock(path string) (*Lock, error) {
	// The folder may be open to all, as /run/lock is on some systems: no symbolic link is followed.
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock %s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	if err := lock(f, path); err != nil {
		_ = f.Close() // nothing was written
		return nil, err
	}
	return &Lock{file: f}, nil
}

func lock(f *os.File, path string) error {
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("opening the lock: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("opening the lock %s: it is no regular file", path)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return &LockedError{Path: path, PID: holder(f)}
	} else if err != nil {
		return fmt.Errorf("locking %s: %w", path, err)
	}
	if err := f.Truncate(0); err != nil {
		return fmt.Errorf("locking: %w", err)
	}
	if _, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		return fmt.Errorf("locking: %w", err)
	}
	return nil
}

func holder(f *os.File) int {
	text, err := io.ReadAll(io.LimitReader(f, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid < 1 {
		return 0
	}
	return pid
}

// Close gives the lock back.
func (l *Lock) Close() error { return l.file.Close() }
