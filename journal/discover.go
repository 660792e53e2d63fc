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

// A job is one thing to read.
type job struct {
	name    string
	path    string
	kind    jobKind
	reader  io.Reader // of a stream
	size    int64
	changed time.Time

	// What reading it came to.
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
	for _, in := range inputs {
		found, err := expand(in)
		if err != nil {
			refused = append(refused, refusal{name: inputName(in), err: err})
		}
		jobs = append(jobs, found...)
	}
	had := map[string]bool{}
	jobs = slices.DeleteFunc(jobs, func(j *job) bool {
		again := j.path != "" && had[j.path]
		had[j.path] = true
		return again
	})
	return jobs, refused
}

func inputName(in Input) string {
	if in.Path == "" || in.Path == "-" {
		return "standard input"
	}
	return in.Path
}

// expand turns an input into files.
func expand(in Input) ([]*job, error) {
	switch in.Kind {
	case Stream:
		return []*job{{name: inputName(in), kind: jobStream, reader: in.Reader}}, nil
	case Glob:
		return globbed(in.Path)
	case Directory:
		return directory(in.Path)
	case Root:
		return node(in.Path)
	}
	return path(in.Path)
}

// path is one file or directory.
func path(name string) ([]*job, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return nil, plain(err)
	case info.IsDir():
		return directory(name)
	}
	j, err := file(name)
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

// file tells by its first bytes what a regular file is.
func file(name string) (*job, error) {
	j := &job{name: name, path: name, kind: jobText}
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe nobody writes to must not hold us up
	if err != nil {
		return j, plain(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return j, plain(err)
	}
	if !info.Mode().IsRegular() {
		return j, errors.New("not a regular file")
	}
	j.size, j.changed = info.Size(), info.ModTime()
	head := make([]byte, 8)
	n, err := f.ReadAt(head, 0)
	if n == 0 && err != nil {
		if info.Size() == 0 {
			return j, ErrEmpty
		}
		return j, plain(err)
	}
	if string(head[:n]) == "LPKSHHRH" || strings.HasSuffix(name, ".journal") || strings.HasSuffix(name, ".journal~") {
		j.kind = jobJournal
	}
	return j, nil
}

// globbed is all files that a pattern matches, in the order of their names.
func globbed(pattern string) ([]*job, error) {
	names, err := filepath.Glob(pattern)
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", pattern, err)
	}
	if len(names) == 0 {
		if _, err := os.Lstat(pattern); err == nil {
			names = []string{pattern}
		} else {
			return nil, ErrNoMatch
		}
	}
	return files(names)
}

// files looks at several files. One that cannot be read does not keep the others from being read.
func files(names []string) ([]*job, error) {
	var jobs []*job
	var errs []error
	for _, n := range names {
		found, err := path(n)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", n, err))
		}
		jobs = append(jobs, found...)
	}
	return jobs, errors.Join(errs...)
}

// directory is a journal directory, a directory of text logs, or both.
func directory(dir string) ([]*job, error) {
	if info, err := os.Stat(dir); err != nil {
		return nil, plain(err)
	} else if !info.IsDir() {
		return nil, errors.New("not a directory")
	}
	journals, jerr := journalfile.Find(dir)
	texts, terr := textlog.Files(dir)
	if jerr != nil && terr != nil {
		return nil, plain(jerr)
	}
	texts = slices.DeleteFunc(texts, func(n string) bool {
		return slices.Contains(journals, n) || strings.HasSuffix(n, ".journal") || strings.HasSuffix(n, ".journal~")
	})
	jobs, err := files(append(journals, texts...))
	var kept []error
	if err != nil {
		kept = append(kept, err)
	}
	if len(jobs) == 0 && len(kept) == 0 {
		return nil, ErrNoLogs
	}
	return jobs, errors.Join(kept...)
}

// ownLog is where RKE2's kubelet writes, and nowhere else. Older ones beside it, which rotation left, are not read.
const ownLog = "var/lib/rancher/rke2/agent/logs/kubelet.log"

// node is the logs of a machine whose root is mounted somewhere: those of the system, and of a kubelet that has a file of its own.
func node(root string) ([]*job, error) {
	if _, err := os.Stat(root); err != nil {
		return nil, plain(err)
	}
	jobs, denied := system(root)
	own, err := file(filepath.Join(root, ownLog))
	switch {
	case err == nil:
		jobs = append(jobs, own)
	case denied == nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrEmpty):
		denied = fmt.Errorf("%s: %w", own.name, err)
	}
	return jobs, denied
}

// system is the journal of a machine, else its text logs and the kernel's ring.
func system(root string) ([]*job, error) {
	var names []string
	var denied error
	for _, dir := range journalDirs(root) {
		found, err := journalfile.Find(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			denied = fmt.Errorf("%s: %w", dir, plain(err))
		}
		names = append(names, found...)
	}
	jobs, err := files(names)
	if err != nil && denied == nil {
		denied = err
	}
	if len(jobs) > 0 {
		if j, ok := ring(); ok && filepath.Clean(root) == "/" && !hasKernel(jobs) {
			jobs = append(jobs, j)
		}
		return jobs, denied
	}
	texts, err := textlog.Files(filepath.Join(root, "var/log"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) && denied == nil {
		denied = plain(err)
	}
	texts = slices.DeleteFunc(texts, func(n string) bool { return !systemLog(filepath.Base(n)) })
	jobs, err = files(texts)
	if err != nil && denied == nil {
		denied = err
	}
	if filepath.Clean(root) == "/" {
		if j, ok := ring(); ok {
			jobs = append(jobs, j)
		}
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
		if err == nil && len(machine) == 32 && globErr == nil && len(own) > 0 {
			dirs = append(dirs, own...)
			continue
		}
		dirs = append(dirs, dir)
	}
	return dirs
}

// systemLog reports whether a file under /var/log can hold records of kubelet, runtime or kernel.
func systemLog(base string) bool {
	for _, p := range []string{"syslog", "messages", "kern.log", "daemon.log", "kubelet", "containerd", "crio", "docker", "k3s", "rke2"} {
		if strings.HasPrefix(base, p) {
			return true
		}
	}
	return false
}

// ring is the kernel's own buffer, if it may be read.
func ring() (*job, bool) {
	f, err := os.OpenFile("/dev/kmsg", os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, false
	}
	f.Close()
	return &job{name: "/dev/kmsg", path: "/dev/kmsg", kind: jobKmsg}, true
}
