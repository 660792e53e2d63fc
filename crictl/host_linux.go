package crictl

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// openTries bounds how often InRoot tries a lookup again. One takes microseconds.
const openTries = 128

// InRoot opens a name with base as its root, for symbolic links too: kubelet-client-current.pem is a link with an
// absolute target, which would lead out of a host's root that is mounted at /host. Only a handle is opened, so a FIFO
// does not block; look gets a path that leads through the handle.
func InRoot(base, name string, look func(path string) error) error {
	dir, err := unix.Open(base, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(dir)
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT}
	fd, err := unix.Openat2(dir, strings.TrimLeft(name, "/"), &how)
	// A rename or mount anywhere on the host at the same time makes the lookup of a name with ".." fail with EAGAIN;
	// openat2(2) leaves it to the caller to try again.
	for tries := 0; errors.Is(err, unix.EAGAIN) && tries < openTries; tries++ {
		fd, err = unix.Openat2(dir, strings.TrimLeft(name, "/"), &how)
	}
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // before Linux 5.6, or filtered
		return look(filepath.Join(base, name))
	}
	if err != nil {
		return &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	return look("/proc/self/fd/" + strconv.Itoa(fd))
}

// peerPID returns the process at the other end of a Unix socket; 0 when not known.
func peerPID(fd int) int {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0
	}
	return int(cred.Pid)
}
