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

// formatKmsg is the format of the kernel's own buffer.
const formatKmsg = "kmsg"

// journalMagic is how a systemd journal file begins.
const journalMagic = "LPKSHHRH"

// headLength is how many bytes of a file are looked at to find out what it is.
const headLength = 64

// A job is one thing to read, and what reading it came to.
type job struct {
	name    string
	path    string
	kind    jobKind
	reader  io.Reader // of a stream
	size    int64
	changed time.Time
	id      string // of a file, under any name: the journal's own, else the inode and up to headLength first bytes

	// Of a file that is followed: what holds what was read of it, and the entry of a journal, or byte of a text, that
	// is to be read next.
	collector *collector
	next      *uint64

	source *logSource // nil: nothing was read
	bad    []Unreadable
	err    error
}

type jobKind int

const (
	jobRefused jobKind = iota // cannot be read, as err has it
	jobJournal
	jobText
	jobStream
	jobKmsg
)

func refused(name string, err error) []*job { return []*job{{name: name, err: plain(err)}} }

// plain takes the name of the system call off an error; the caller names the file.
func plain(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// discover finds what there is to read, each file once.
func discover(inputs []Input) []*job {
	if len(inputs) == 0 {
		inputs = []Input{{Kind: Root, Path: "/"}}
	}
	var jobs []*job
	had := map[string]bool{"": false}
	for _, in := range inputs {
		for _, j := range expand(in) {
			if !had[j.path] {
				had[j.path] = j.path != ""
				jobs = append(jobs, j)
			}
		}
	}
	return jobs
}

// expand turns an input into files.
func expand(in Input) []*job {
	if in.Path == "" || in.Path == "-" {
		in.Path = "standard input"
	}
	switch in.Kind {
	case Stream:
		return []*job{{name: in.Path, kind: jobStream, reader: in.Reader}}
	case Glob:
		names, err := filepath.Glob(in.Path)
		if err == nil && len(names) == 0 {
			err = ErrNoMatch
		}
		if err != nil {
			return refused(in.Path, err)
		}
		return files(names)
	case Root:
		return node(in.Path)
	}
	if info, err := os.Stat(in.Path); err == nil && info.IsDir() {
		return directory(in.Path)
	}
	return []*job{file(in.Path)}
}

func files(names []string) []*job {
	var jobs []*job
	for _, n := range names {
		jobs = append(jobs, expand(Input{Path: n})...)
	}
	return jobs
}

// isJournal reports whether a file is a journal by its name.
func isJournal(name string) bool {
	return strings.HasSuffix(name, ".journal") || strings.HasSuffix(name, ".journal~")
}

// file finds out by its first bytes what a regular file is.
func file(name string) *job {
	info, err := os.Stat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	if err != nil {
		return refused(name, err)[0]
	}
	f, err := os.Open(name)
	if err != nil {
		return refused(name, err)[0]
	}
	defer f.Close() // was only read
	head := make([]byte, headLength)
	n, err := f.ReadAt(head, 0)
	switch {
	case n == 0 && errors.Is(err, io.EOF):
		return refused(name, ErrEmpty)[0]
	case n == 0:
		return refused(name, err)[0]
	}
	j := &job{name: name, path: name, kind: jobText, size: info.Size(), changed: info.ModTime()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		j.id = fmt.Sprint(st.Ino, " ") + string(head[:n])
	}
	if strings.HasPrefix(string(head), journalMagic) || isJournal(name) {
		j.kind = jobJournal
		j.id = string(head[24:40]) // its file_id: systemd's docs/JOURNAL_FILE_FORMAT.md
	}
	return j
}

// directory is a journal directory, a directory of text logs, or both.
func directory(dir string) []*job {
	journals, err := journalfile.Find(dir)
	texts, textErr := textlog.Files(dir)
	if err != nil && textErr != nil {
		return refused(dir, err)
	}
	jobs := files(append(journals, slices.DeleteFunc(texts, isJournal)...))
	if len(jobs) == 0 {
		return refused(dir, ErrNoLogs)
	}
	return jobs
}

// ownLog is where RKE2's kubelet writes, and nowhere else. Older ones beside it, which rotation left, are not read.
const ownLog = "var/lib/rancher/rke2/agent/logs/kubelet.log"

// node is the logs of a machine whose root is mounted somewhere: its journal, else its text logs; and a kubelet's own
// file.
func node(root string) []*job {
	if _, err := os.Stat(root); err != nil {
		return refused(root, err)
	}
	var jobs []*job
	add := func(dir string, names []string, err error) {
		jobs = append(jobs, files(names)...)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			jobs = append(jobs, refused(dir, err)...)
		}
	}
	for _, dir := range []string{"var/log/journal", "run/log/journal"} {
		dir = filepath.Join(root, dir)
		names, err := journalfile.Find(dir)
		add(dir, names, err)
	}
	if !slices.ContainsFunc(jobs, func(j *job) bool { return j.err == nil }) {
		dir := filepath.Join(root, "var/log")
		names, err := textlog.Files(dir)
		add(dir, slices.DeleteFunc(names, func(n string) bool { return !systemLog(filepath.Base(n)) }), err)
		if f, err := os.OpenFile(kmsgName, os.O_RDONLY|syscall.O_NONBLOCK, 0); err == nil {
			_ = f.Close() // was only opened
			if filepath.Clean(root) == "/" {
				jobs = append(jobs, &job{name: kmsgName, path: kmsgName, kind: jobKmsg})
			}
		}
	}
	if own := file(filepath.Join(root, ownLog)); !errors.Is(own.err, fs.ErrNotExist) && !errors.Is(own.err, ErrEmpty) {
		jobs = append(jobs, own)
	}
	if len(jobs) == 0 {
		return refused(root, ErrNoJournal)
	}
	return jobs
}

// systemLog reports whether a file under /var/log can hold records of kubelet, runtime or kernel.
func systemLog(base string) bool {
	return slices.ContainsFunc([]string{
		"syslog", "messages", "kern.log", "daemon.log", "kubelet", "containerd", "crio", "docker", "k3s", "rke2",
	}, func(prefix string) bool { return strings.HasPrefix(base, prefix) })
}
