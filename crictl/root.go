package crictl

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// InRoot opens a name with base as its root, for symbolic links too: kubelet-client-current.pem is a link with an absolute
// target, which would lead out of a host's root that is mounted at /host. Nothing is opened but a handle, so that no FIFO
// holds us; the look goes through it.
func InRoot(base, name string, look func(path string) error) error {
	dir, err := unix.Open(base, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(dir)
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT}
	fd, err := unix.Openat2(dir, strings.TrimLeft(name, "/"), &how)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // before Linux 5.6, or filtered
		return look(filepath.Join(base, name))
	}
	if err != nil {
		return &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	return look("/proc/self/fd/" + strconv.Itoa(fd))
}
