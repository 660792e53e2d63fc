package gc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrLocked is wrapped by Lock's error when another run holds the lock.
var ErrLocked = errors.New("another run removes from this runtime already")

// Lock keeps other runs away from the runtime behind a socket until the result is closed or the process ends. It locks
// the folder that holds the socket: that needs no file, and is the same folder from within a container.
func Lock(socket string) (io.Closer, error) {
	if real, err := filepath.EvalSymlinks(socket); err == nil {
		socket = real
	}
	dir, err := os.Open(filepath.Dir(socket))
	if err != nil {
		return nil, fmt.Errorf("locking the runtime's folder: %w", err)
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrLocked
		}
		return nil, errors.Join(fmt.Errorf("locking %s: %w", dir.Name(), err), dir.Close())
	}
	return dir, nil
}
