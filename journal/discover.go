package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kdiag/kdiag/journal/journalfile"
	"github.com/kdiag/kdiag/journal/textlog"
)

// formatJournal is the format of sources that are systemd journal files.
const formatJournal = "journal"

// A job is one thing to read, and what reading it came to.
type job struct {
	name    string
	path    string
	kind    jobKind
	reader  io.Reader // of a stream
	size    int64
	changed time.Time

	source *logSource // nil: nothing was read
	bad    []Unreadable
	err    error
}

type jobKind int

const (
	jobJournal jobKind = iota
	jobText
	jobStream
	jobKmsg
)

// A refusal is an input that cannot be read, and why.
type refusal struct {
	name string
	err  error
}

// discover finds what there is to read. What cannot be looked at stands in the refusals.
func discover(inputs []Input) ([]*job, []refusal) {
	if len(inputs) == 0 {
		inputs = []Input{{Kind: Root, Path: "/"}}
	}
	var jobs []*job
	var refused []refusal
	had := map[string]bool{}
	for _, in := range inputs {
		if in.Path == "" || in.Path == "-" {
			in.Path = "standard input"
		}
		found, err := expand(in)
		if err != nil {
			refused = append(refused, refusal{name: in.Path, err: err})
		}
		for _, j := range found {
			if j.path == "" || !had[j.path] {
				had[j.path] = true
				jobs = append(jobs, j)
			}
		}
	}
	return jobs, refused
}

// expand turns an input into files.
func expand(in Input) ([]*job, error) {
	switch in.Kind {
	case Stream:
		return []*job{{name: in.Path, kind: jobStream, reader: in.Reader}}, nil
	case Glob:
		names, err := filepath.Glob(in.Path)
		if err != nil {
			return nil, fmt.Errorf("pattern %q: %w", in.Path, err)
		}
		if len(names) == 0 {
			if _, err := os.Lstat(in.Path); err != nil {
				return nil, ErrNoMatch
			}
			names = []string{in.Path} // a name with characters of a pattern
		}
		return files(names)
	case Directory:
		return directory(in.Path)
	case Root:
		return node(in.Path)
	}
	info, err := os.Stat(in.Path)
	switch {
	case err != nil:
		return nil, plain(err)
	case info.IsDir():
		return directory(in.Path)
	}
	j, err := file(in.Path)
	if err != nil {
		return nil, err
	}
	return []*job{j}, nil
}

// plain takes the name of the system call off an error; the caller names the file.
func plain(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// isJournal reports whether a file is a journal by its name.
func isJournal(name string) bool {
	return strings.HasSuffix(name, ".journal") || strings.HasSuffix(name, ".journal~")
}

// file finds out by its first bytes what a regular file is.
func file(name string) (*job, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe nobody writes to must not hold us up
	if err != nil {
		return nil, plain(err)
	}
	defer f.Close() // was only read
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, plain(err)
	case !info.Mode().IsRegular():
		return nil, errors.New("not a regular file")
	}
	head := make([]byte, 8)
	n, err := f.ReadAt(head, 0)
	switch {
	case n == 0 && info.Size() == 0:
		return nil, ErrEmpty
	case n == 0:
		return nil, plain(err)
	}
	j := &job{name: name, path: name, kind: jobText, size: info.Size(), changed: info.ModTime()}
	if string(head[:n]) == "LPKSHHRH" || isJournal(name) {
		j.kind = jobJournal
	}
	return j, nil
}

// files looks at several files or directories. One that cannot be read does not keep the others from being read.
func files(names []string) ([]*job, error) {
	var jobs []*job
	var errs []error
	for _, n := range names {
		found, err := expand(Input{Path: n})
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", n, err))
		}
		jobs = append(jobs, found...)
	}
	return jobs, errors.Join(errs...)
}

// directory is a journal directory, a directory of text logs, or both.
func directory(dir string) ([]*job, error) {
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return nil, plain(err)
	case !info.IsDir():
		return nil, errors.New("not a directory")
	}
	journals, err := journalfile.Find(dir)
	texts, textErr := textlog.Files(dir)
	if err != nil && textErr != nil {
		return nil, plain(err)
	}
	jobs, err := files(append(journals, slices.DeleteFunc(texts, isJournal)...))
	if len(jobs) == 0 && err == nil {
		return nil, ErrNoLogs
	}
	return jobs, err
}

// ownLog is where RKE2's kubelet writes, and nowhere else. Older ones beside it, which rotation left, are not read.
const ownLog = "var/lib/rancher/rke2/agent/logs/kubelet.log"

// node is the logs of a machine whose root is mounted somewhere: its journal, else its text logs; the kernel's buffer
// of this machine where no journal has it; and a kubelet's own file.
func node(root string) ([]*job, error) {
	if _, err := os.Stat(root); err != nil {
		return nil, plain(err)
	}
	var jobs []*job
	var denied error // the first
	deny := func(name string, err error) {
		if err = plain(err); err != nil && denied == nil && !errors.Is(err, fs.ErrNotExist) {
			denied = fmt.Errorf("%s: %w", name, err)
		}
	}
	add := func(names []string) {
		found, err := files(names)
		jobs = append(jobs, found...)
		if denied == nil {
			denied = err
		}
	}
	for _, dir := range journalDirs(root) {
		names, err := journalfile.Find(dir)
		deny(dir, err)
		add(names)
	}
	journal := len(jobs) > 0
	if !journal {
		dir := filepath.Join(root, "var/log")
		texts, err := textlog.Files(dir)
		deny(dir, err)
		add(slices.DeleteFunc(texts, func(n string) bool { return !systemLog(filepath.Base(n)) }))
	}
	if j, ok := ring(); ok && filepath.Clean(root) == "/" && !(journal && hasKernel(jobs)) {
		jobs = append(jobs, j)
	}
	own := filepath.Join(root, ownLog)
	if j, err := file(own); err == nil {
		jobs = append(jobs, j)
	} else if !errors.Is(err, ErrEmpty) {
		deny(own, err)
	}
	if len(jobs) == 0 && denied == nil {
		denied = ErrNoJournal
	}
	return jobs, denied
}

// journalDirs are the folders in which journald of a machine keeps its files: those of its machine ID and of its
// namespaces, or all if the ID is unknown.
func journalDirs(root string) []string {
	id, err := os.ReadFile(filepath.Join(root, "etc/machine-id"))
	machine := strings.TrimSpace(string(id))
	var dirs []string
	for _, base := range []string{"var/log/journal", "run/log/journal"} {
		dir := filepath.Join(root, base)
		own, globErr := filepath.Glob(filepath.Join(dir, machine+"*"))
		if err != nil || len(machine) != 32 || globErr != nil || len(own) == 0 {
			own = []string{dir}
		}
		dirs = append(dirs, own...)
	}
	return dirs
}

// systemLog reports whether a file under /var/log can hold records of kubelet, runtime or kernel.
func systemLog(base string) bool {
	return slices.ContainsFunc([]string{
		"syslog", "messages", "kern.log", "daemon.log", "kubelet", "containerd",
		"crio", "docker", "k3s", "rke2",
	},
		func(prefix string) bool { return strings.HasPrefix(base, prefix) })
}

// ring is the kernel's own buffer, if it may be read.
func ring() (*job, bool) {
	const name = "/dev/kmsg"
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, false
	}
	_ = f.Close() // was only opened
	return &job{name: name, path: name, kind: jobKmsg}, true
}
