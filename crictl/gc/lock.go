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

	"golang.org/x/sys/unix"
)

// ErrLocked is wrapped by TakeLock's error when another run holds the lock.
var ErrLocked = errors.New("another run removes from this runtime already")

// LockPath returns the name of the lock file for an endpoint below dir, such as /run/lock.
func LockPath(dir, endpoint string) string {
	sum := sha256.Sum256([]byte(endpoint))
	return filepath.Join(dir, "kdiag-gc-"+hex.EncodeToString(sum[:6])+".lock")
}

// TakeLock locks the file at path and writes this process's id into it. Closing the result, or the end of the process,
// releases the lock. The error wraps ErrLocked when another run holds it. The file stays: if it were removed, two runs
// could lock two files of one name.
func TakeLock(path string) (io.Closer, error) {
	// The folder may be writable by all, as /run/lock is on some systems: no symbolic link is followed.
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock %s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	if err := lock(f); err != nil {
		_ = f.Close() // nothing was written
		return nil, err
	}
	return f, nil
}

func lock(f *os.File) error {
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is no regular file")
	}
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		pid := "unknown"
		_, _ = fmt.Fscan(io.LimitReader(f, 32), &pid)
		return fmt.Errorf("%w: process %s (it holds %s)", ErrLocked, pid, f.Name())
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		return fmt.Errorf("locking %s: %w", f.Name(), err)
	}
	return nil
}
