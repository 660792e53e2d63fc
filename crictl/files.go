package crictl

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/crictl/deadline"
	"github.com/kdiag/kdiag/crictl/kubeletconfig"
)

// lookTimeout bounds each look at the host: the search for the kubelet, each configuration file, each socket. Reading
// /proc or a file can hang on a node with stuck processes or a dead disk; the next source may still answer.
const lookTimeout = 2 * time.Second

// within runs one look at the host within lookTimeout.
func within[T any](ctx context.Context, look func() (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	return deadline.Run(ctx, func(context.Context) (T, error) { return look() })
}

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
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // before Linux 5.6, or filtered
		return look(filepath.Join(base, name))
	}
	if err != nil {
		return &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	return look("/proc/self/fd/" + strconv.Itoa(fd))
}

// A view is how a process sees the host's files: below each of its bases, or below dir for relative names.
type view struct {
	bases []string
	dir   string
}

// viewOf returns the files of a process: through its own root, which is the right one when it runs in a container,
// and through the host's, for users who may not look through another's. Without a pid it is the host's view.
func viewOf(root string, pid int) view {
	if pid == 0 {
		return view{bases: []string{root}, dir: root}
	}
	proc := filepath.Join(root, "proc", strconv.Itoa(pid))
	return view{bases: []string{filepath.Join(proc, "root"), root}, dir: filepath.Join(proc, "cwd")}
}

// look calls do with a path to name below each base until one call succeeds. Its error is worded for people, without
// the name.
func (v view) look(name string, do func(path string) error) error {
	bases := v.bases
	if !filepath.IsAbs(name) {
		bases = []string{v.dir}
	}
	var first error
	for _, base := range bases {
		err := InRoot(base, name, do)
		if err == nil {
			return nil
		}
		// The second base's "does not exist" must not hide that the first may not be looked through.
		if first == nil || errors.Is(first, fs.ErrNotExist) {
			first = err
		}
	}
	return errors.New(reasonOf(first))
}

// read reads a small regular file.
func (v view) read(name string) (data []byte, err error) {
	err = v.look(name, func(path string) (err error) {
		data, err = kubeletconfig.ReadFile(path)
		return err
	})
	return data, err
}

// files is the view as the reader of the kubelet's settings takes it.
func (v view) files() kubeletconfig.Files {
	return kubeletconfig.Files{Read: v.read, DropIns: func(dir string) (names []string, err error) {
		err = v.look(dir, func(path string) (err error) {
			names, err = kubeletconfig.DropIns(path)
			return err
		})
		return names, err
	}}
}

// reasonOf words a failed look, without the path, which is shown beside it.
func reasonOf(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return "does not exist"
	case errors.Is(err, fs.ErrPermission):
		return "may not be read by this user"
	case errors.Is(err, deadline.ErrAbandoned) && errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("no answer within %s", lookTimeout)
	}
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = path.Err
	}
	return printable(strings.Join(strings.Fields(err.Error()), " "), errLimit)
}

// statSocket returns the kind of file at a path of the host.
func statSocket(root, path string) (mode fs.FileMode, err error) {
	err = viewOf(root, 0).look(path, func(path string) error {
		info, err := os.Stat(path)
		if err == nil {
			mode = info.Mode()
		}
		return err
	})
	return mode, err
}

// kindOf names a kind of file, with its article.
func kindOf(mode fs.FileMode) string {
	switch mode.Type() {
	case 0:
		return "a regular file"
	case fs.ModeDir:
		return "a directory"
	case fs.ModeSocket:
		return "a socket"
	case fs.ModeNamedPipe:
		return "a named pipe"
	}
	return "a device"
}
