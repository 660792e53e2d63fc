package crictl

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/crictl/deadline"
	"github.com/kdiag/kdiag/crictl/kubeletconfig"
	"github.com/kdiag/kdiag/crictl/proc"
)

// lookTimeout bounds each access to the host: the search for the kubelet, each configuration file, each socket. Reading
// /proc or a file can hang on a node with stuck processes or a dead disk; the next source may still answer.
const lookTimeout = 2 * time.Second

// within runs one access to the host within lookTimeout, under the name that its error tells.
func within[T any](ctx context.Context, name string, look func() (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	return deadline.Run(ctx, name, func(context.Context) (T, error) { return look() })
}

// HostFiles are the files that one process sees, or, without a process, the host. Their errors are worded for people,
// without the name.
type HostFiles struct {
	bases []string
	cwd   string // of the process, for names that are relative
}

// SeenBy returns the files of a process: through its own root, which is the right one when it runs in a container, and
// through the host's, for users who may not look through another's. Without a pid they are the host's.
func SeenBy(root string, pid int) HostFiles {
	if pid <= 0 {
		return HostFiles{bases: []string{root}}
	}
	dir := proc.Dir(root, pid)
	return HostFiles{[]string{filepath.Join(dir, "root"), root}, filepath.Join(dir, "cwd")}
}

// Read reads a regular file that is not large.
func (f HostFiles) Read(name string) ([]byte, error) { return firstOf(f, name, kubeletconfig.ReadFile) }

// Stat describes the file to which a name leads.
func (f HostFiles) Stat(name string) (fs.FileInfo, error) { return firstOf(f, name, os.Stat) }

// List lists a folder.
func (f HostFiles) List(dir string) ([]fs.DirEntry, error) { return firstOf(f, dir, os.ReadDir) }

// Look has a name looked at, as path, below the first base where that succeeds.
func (f HostFiles) Look(name string, look func(path string) error) error {
	_, err := firstOf(f, name, func(path string) (struct{}, error) { return struct{}{}, look(path) })
	return err
}

// Kubelet returns the files for a kubelet's settings.
func (f HostFiles) Kubelet() kubeletconfig.Files {
	return kubeletconfig.Files{Read: f.Read, DropIns: func(dir string) ([]string, error) {
		return firstOf(f, dir, kubeletconfig.DropIns)
	}}
}

// firstOf opens a name below the first base where that succeeds.
func firstOf[T any](f HostFiles, name string, open func(path string) (T, error)) (found T, err error) {
	bases := f.bases
	if !filepath.IsAbs(name) {
		bases = []string{f.cwd}
	}
	var first error
	for _, base := range bases {
		err := InRoot(base, name, func(path string) (err error) {
			found, err = open(path)
			return err
		})
		if err == nil {
			return found, nil
		}
		// The second base's "does not exist" must not hide that the first may not be looked through.
		if first == nil || errors.Is(first, fs.ErrNotExist) {
			first = err
		}
	}
	return found, errors.New(reasonOf(first))
}

// Absent is the error of a file that does not exist, as text.
const Absent = "does not exist"

// reasonOf words a failed look, without the path, which is shown beside it.
func reasonOf(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return Absent
	case errors.Is(err, fs.ErrPermission):
		return "may not be read by this user"
	case errors.Is(err, deadline.ErrAbandoned):
		return fmt.Sprintf("no answer within %s", lookTimeout)
	}
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = path.Err
	}
	return printable(strings.Join(strings.Fields(err.Error()), " "))
}
