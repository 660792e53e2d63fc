package kubelet

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/kubeletconfig"
)

// maxText bounds, in runes, a text of another party that is kept.
const maxText = 300

// files reads what one process sees, or, without a process, what the host sees.
type files struct {
	bases []string
	cwd   string // of the process, for names that are relative
}

// seenBy returns the files of a process: through its own root, which is the right one when it runs in a container, and
// through the host's, for users who may not look through another's.
func seenBy(root string, pid int) files {
	if pid <= 0 {
		return files{bases: []string{root}}
	}
	proc := filepath.Join(root, "proc", strconv.Itoa(pid))
	return files{[]string{filepath.Join(proc, "root"), root}, filepath.Join(proc, "cwd")}
}

func (f files) read(name string) ([]byte, error) { return each(f, name, kubeletconfig.ReadFile) }

func (f files) stat(name string) (fs.FileInfo, error) { return each(f, name, os.Stat) }

func (f files) list(dir string) ([]fs.DirEntry, error) { return each(f, dir, os.ReadDir) }

// each opens a name below each base until one exists. The error is the first other than that it does not exist.
func each[T any](f files, name string, open func(path string) (T, error)) (found T, first error) {
	bases := f.bases
	if !filepath.IsAbs(name) {
		bases = []string{f.cwd}
	}
	for _, base := range bases {
		err := crictl.InRoot(base, name, func(path string) (err error) {
			found, err = open(path)
			return err
		})
		if err == nil {
			return found, nil
		}
		if first == nil || errors.Is(first, fs.ErrNotExist) {
			first = err
		}
	}
	return found, first
}

// absent is what reasonOf returns for a file that does not exist.
const absent = "does not exist"

// reasonOf words the error of opening a file, whose name stands before it.
func reasonOf(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return absent
	case errors.Is(err, fs.ErrPermission):
		return "may not be read by this user"
	}
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = path.Err
	}
	return oneLine(err.Error())
}

// oneLine makes a text of another party fit to be kept: one line, nothing invisible, bounded.
func oneLine(s string) string {
	s = crictl.Shorten(s, maxText)
	visible := func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if !unicode.IsGraphic(r) {
			return -1
		}
		return r
	}
	return strings.Join(strings.Fields(strings.Map(visible, strings.ToValidUTF8(s, "?"))), " ")
}
