package journal

import (
	"errors"
	"io"
	"time"
)

// An InputKind says how to read the path of an [Input].
type InputKind int

// The kinds of inputs.
const (
	Path   InputKind = iota // a file, or a directory of journals, text logs or both: journal or text, by its content
	Stream                  // Reader, such as standard input; Path is only its name
	Glob                    // a pattern of files, journal or text by content
	Root                    // the root of a mounted disk, or / for this node
)

// An Input is one thing to read. Without any, [Read] reads the logs of this node.
type Input struct {
	Kind   InputKind
	Path   string
	Reader io.Reader // Stream only
}

// Options select what to read and how to understand it. The zero value reads all of the node's own logs.
type Options struct {
	Inputs []Input

	Since, Until time.Time // zero: no limit
	// Units are units or identifiers, with or without ".service". Records that name no sender pass. Empty: all.
	Units []string
	// Boot is a boot ID, "0" for the last boot in the journal, "-1" for the one before, and so on. Empty: all.
	Boot string

	Now   func() time.Time // the clock; nil: time.Now
	Local *time.Location   // zone of stamps that have none and that nothing dates; nil: time.Local
	Year  int              // year of the last record of logs without years; 0: by the logs, else by Now

	everySync  bool // count each record that proves that the sync loop runs; there are very many
	mostBursts int  // kept of a source; 0: maxBursts

	onEvent func(Event) // nil, or called with each match

	// Progress, when not nil, is called now and then with how far the reading is, from several goroutines but one at a
	// time.
	Progress func(Progress)
}

// Progress is how far the reading is.
type Progress struct {
	Source  string // being read now
	Read    int64  // bytes of all sources so far
	Total   int64  // bytes of all sources, as far as known; 0: unknown
	Records int64  // unhealthy records found so far
}

// Errors of an input. Read wraps these and the errors of package fs; a command distinguishes them with
// errors.Is.
var (
	// ErrNoLogs means that a directory holds neither journal files nor text logs.
	ErrNoLogs = errors.New("no journal files and no text logs")
	// ErrNoJournal means that the node keeps no journal where one is kept, and no text logs under /var/log.
	ErrNoJournal = errors.New("no journal below /var/log/journal and /run/log/journal, and no text logs below /var/log")
	// ErrEmpty means that an input has no content but blanks.
	ErrEmpty = errors.New("it is empty")
	// ErrNotLog means that a file is binary, or a text in which hardly a line looks like a record of a log.
	ErrNotLog = errors.New("it does not look like a log")
	// ErrNoMatch means that a glob matches no file.
	ErrNoMatch = errors.New("no file matches")
	// ErrNoBoot means that the journal holds no boot of that number or ID.
	ErrNoBoot = errors.New("no such boot in the journal")
)

// window is the range of time that was asked for.
func (o *Options) window() window { return window{o.Since, o.Until} }
