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

	"github.com/kdiag/kdiag/crictl/safefile"
	"github.com/kdiag/kdiag/journal/journalfile"
	"github.com/kdiag/kdiag/journal/signature"
	"github.com/kdiag/kdiag/journal/textlog"
)

// formatJournal is the format of sources that are systemd journal files.
const formatJournal = "journal"

// formatKmsg is the format of the kernel's own buffer.
const formatKmsg = "kmsg"

// journalMagic is how a systemd journal file begins.
const journalMagic = "LPKSHHRH"

// headLength is how many bytes of a file identify its kind.
const headLength = 64

// A source is one file or stream: its place, the matches read from it, and how to read its stamps.
type source struct {
	Source // for the report

	name    string
	path    string
	kind    sourceKind
	stream  io.Reader
	size    int64
	changed time.Time
	id      string // of a file, under any name: the journal's own, else the inode and up to headLength first bytes

	// next is, of a file that is followed, the entry of a journal, or the byte of a text, that is to be read next.
	next *uint64
	read bool // at least in part
	bad  []Unreadable
	err  error

	matches *matches // nil before the first reading
	hint    calendarHint
	cal     *calendar
	blank   bool  // a text without a line that holds anything
	binary  int64 // lines of a text that are not text
	skipped bool  // a journal file that by its header holds nothing of the time asked for

	// State while it is read.
	reader         *reader
	active         *signature.Matcher
	seq            uint32
	last           int64
	ups, downs     int // how often time went up and down from record to record
	afterUnhealthy bool
	failed         []byte // the record before, where it is an error of a volume, and the process that wrote it
	failedAt       timestamp
	failedBy       int
	joined         bool   // the record has the words of the one before, which has been counted
	pending        *Burst // the latest proof that the loop runs, not kept yet
	found          []signature.Match
	dump           *timestamp // of the latest record of a goroutine dump
	kept           []byte     // of a pipe: where a dump is
}

type sourceKind int

const (
	kindRefused sourceKind = iota // cannot be read, as err has it
	kindJournal
	kindText
	kindStream
	kindKmsg
)

func refused(name string, err error) *source { return &source{name: name, err: plain(err)} }

// plain takes the name of the system call off an error; the caller names the file.
func plain(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// discover lists the sources of the inputs, each file once.
func discover(inputs []Input) []*source {
	if len(inputs) == 0 {
		inputs = []Input{{Kind: Root, Path: "/"}}
	}
	var sources []*source
	had := map[string]bool{"": false}
	for _, in := range inputs {
		for _, s := range expand(in) {
			if !had[s.path] {
				had[s.path] = s.path != ""
				sources = append(sources, s)
			}
		}
	}
	return sources
}

// expand turns an input into files.
func expand(in Input) []*source {
	if in.Path == "" || in.Path == "-" {
		in.Path = "standard input"
	}
	switch in.Kind {
	case Stream:
		return []*source{{name: in.Path, kind: kindStream, stream: in.Reader}}
	case Glob:
		names, err := filepath.Glob(in.Path)
		if err == nil && len(names) == 0 {
			err = ErrNoMatch
		}
		if err != nil {
			return []*source{refused(in.Path, err)}
		}
		return files(names)
	case Root:
		return node(in.Path)
	}
	if info, err := os.Stat(in.Path); err == nil && info.IsDir() {
		return directory(in.Path)
	}
	return []*source{file(in.Path)}
}

func files(names []string) []*source {
	var sources []*source
	for _, n := range names {
		sources = append(sources, expand(Input{Path: n})...)
	}
	return sources
}

// isJournal reports whether a file is a journal by its name.
func isJournal(name string) bool {
	return strings.HasSuffix(name, ".journal") || strings.HasSuffix(name, ".journal~")
}

// file classifies a regular file by its first bytes.
func file(name string) *source {
	f, err := safefile.Open(name, 0)
	if err != nil {
		return refused(name, err)
	}
	defer f.Close() // was only read
	head := make([]byte, headLength)
	n, err := f.ReadAt(head, 0)
	switch {
	case n == 0 && errors.Is(err, io.EOF):
		return refused(name, ErrEmpty)
	case n == 0:
		return refused(name, err)
	}
	info, err := f.Stat()
	if err != nil {
		return refused(name, err)
	}
	s := &source{name: name, path: name, kind: kindText, size: info.Size(), changed: info.ModTime()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.id = fmt.Sprint(st.Ino, " ") + string(head[:n])
	}
	if strings.HasPrefix(string(head), journalMagic) || isJournal(name) {
		s.kind = kindJournal
		s.id = string(head[24:40]) // its file_id: systemd's docs/JOURNAL_FILE_FORMAT.md
	}
	return s
}

// directory is a journal directory, a directory of text logs, or both.
func directory(dir string) []*source {
	journals, err := journalfile.Find(dir)
	texts, textErr := textlog.Files(dir)
	if err != nil && textErr != nil {
		return []*source{refused(dir, err)}
	}
	sources := files(append(journals, slices.DeleteFunc(texts, isJournal)...))
	if len(sources) == 0 {
		return []*source{refused(dir, ErrNoLogs)}
	}
	return sources
}

// ownLog is where RKE2's kubelet writes, and nowhere else. Older ones beside it, which rotation left, are not read.
const ownLog = "var/lib/rancher/rke2/agent/logs/kubelet.log"

// node is the logs of a machine whose root is mounted somewhere: its journal, else its text logs; and a kubelet's own
// file.
func node(root string) []*source {
	if _, err := os.Stat(root); err != nil {
		return []*source{refused(root, err)}
	}
	var sources []*source
	add := func(dir string, names []string, err error) {
		sources = append(sources, files(names)...)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			sources = append(sources, refused(dir, err))
		}
	}
	for _, dir := range []string{"var/log/journal", "run/log/journal"} {
		dir = filepath.Join(root, dir)
		names, err := journalfile.Find(dir)
		add(dir, names, err)
	}
	if !slices.ContainsFunc(sources, func(s *source) bool { return s.err == nil }) {
		dir := filepath.Join(root, "var/log")
		names, err := textlog.Files(dir)
		add(dir, slices.DeleteFunc(names, func(n string) bool { return !systemLog(filepath.Base(n)) }), err)
		if filepath.Clean(root) == "/" {
			if f, err := os.OpenFile(kmsgName, os.O_RDONLY|syscall.O_NONBLOCK, 0); err == nil {
				_ = f.Close() // was only opened
				sources = append(sources, &source{name: kmsgName, path: kmsgName, kind: kindKmsg})
			}
		}
	}
	if own := file(filepath.Join(root, ownLog)); !errors.Is(own.err, fs.ErrNotExist) && !errors.Is(own.err, ErrEmpty) {
		sources = append(sources, own)
	}
	if len(sources) == 0 {
		return []*source{refused(root, ErrNoJournal)}
	}
	return sources
}

// systemLog reports whether a file under /var/log can hold records of kubelet, runtime or kernel.
func systemLog(base string) bool {
	return slices.ContainsFunc([]string{
		"syslog", "messages", "kern.log", "daemon.log", "kubelet", "containerd", "crio", "docker", "k3s", "rke2",
	}, func(prefix string) bool { return strings.HasPrefix(base, prefix) })
}
