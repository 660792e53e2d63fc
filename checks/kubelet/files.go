package kubelet

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/kdiag/kdiag/crictl"
)

const (
	// maxFile bounds a configuration file or certificate. The largest in use, a bundle of authorities, has some 300 KiB.
	maxFile = 2 << 20
	// maxText bounds, in runes, a text of another party that is kept.
	maxText = 300
)

// files reads what one process sees, or, without a process, what the host sees.
type files struct {
	bases []string
	cwd   string // of the process, for names that are relative
}

// seenBy are the files of a process: through its own root, which is the right one when it runs in a container, and
// through the host's, for users who may not look through another's.
func seenBy(root string, pid int) files {
	if pid <= 0 {
		return files{bases: []string{root}}
	}
	proc := filepath.Join(root, "proc", strconv.Itoa(pid))
	return files{[]string{filepath.Join(proc, "root"), root}, filepath.Join(proc, "cwd")}
}

func (f files) read(name string) ([]byte, error) {
	var data []byte
	err := f.each(name, func(path string) (err error) {
		data, err = readRegular(path)
		return err
	})
	return data, err
}

func (f files) stat(name string) (fs.FileInfo, error) {
	var info fs.FileInfo
	err := f.each(name, func(path string) (err error) {
		info, err = os.Stat(path)
		return err
	})
	return info, err
}

func (f files) list(dir string) ([]fs.DirEntry, error) {
	var entries []fs.DirEntry
	err := f.each(dir, func(path string) (err error) {
		entries, err = os.ReadDir(path)
		return err
	})
	return entries, err
}

// each does look at a name below each base until one is there. The error is the first that says more than that it is not.
func (f files) each(name string, look func(path string) error) error {
	bases := f.bases
	if !filepath.IsAbs(name) {
		bases = []string{f.cwd}
	}
	var first error
	for _, base := range bases {
		err := crictl.InRoot(base, name, look)
		if err == nil {
			return nil
		}
		if first == nil || errors.Is(first, fs.ErrNotExist) {
			first = err
		}
	}
	return first
}

func readRegular(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("is no regular file")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		return nil, fmt.Errorf("is larger than %d bytes", maxFile)
	}
	return data, err
}

// absent is what reasonOf says of a file that is not there.
const absent = "does not exist"

// reasonOf words a failed look at a file, whose name stands beside it.
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
