package stacks

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/internal/lazyregexp"
	"github.com/kdiag/kdiag/journal/textlog"
)

const (
	maxPiece = 256 << 10 // of a line that is looked at as a whole: an entry of journald as an array of bytes fits
	maxLine  = 8 << 10   // of a dump
	lineMax  = 48 << 10  // at which journald splits records (journald.conf(5))
)

// An unwrapper finds the lines of dumps in the lines of a log.
//
// A dump is in a log in one of two ways: each of its lines is a record, or all of it is one record, quoted. A quote
// ends a quoted text, and a letter behind any number of backslashes is an escape: a dump has neither, so it does not
// matter how often its text was quoted. Long records are split by journald, Docker and CRI (16 KiB) and rsyslog: while
// a quoted text has no end, the next line of the sender continues it.
type unwrapper struct {
	from   sender // of the dump
	at     time.Time
	quoted bool   // the text is quoted, and has no end yet
	rest   []byte // of the text, a line of the dump that has no end yet
	mixed  bool   // dumps of several senders stand between each other

	skip    bool // the rest of the line of the log does not matter
	trimmed bool // a blank is missing at the end of it: journald removes those where it splits a record
}

// A sender is who wrote a line of a log, as far as the log states it.
type sender struct {
	identifier string
	pid        int
	stream     string
}

// read reads all of r.
func (l *log) read(ctx context.Context, r io.Reader) error {
	text, _, err := textlog.Unpack(r)
	if err != nil {
		return err
	}
	defer text.Close()
	in := bufio.NewReaderSize(text, maxPiece)
	head, _ := in.Peek(4 << 10) // an error comes again
	// A profile in another form: as text, or as profile.proto with its table of strings.
	if bytes.HasPrefix(head, []byte("goroutine profile: total ")) || bytes.Contains(head, []byte("\x32\x09goroutine")) {
		l.hint = "this profile has no states and no waits; get /debug/pprof/goroutine?debug=2"
	}
	export := bytes.HasPrefix(head, []byte("__CURSOR=")) || bytes.HasPrefix(head, []byte("__REALTIME_TIMESTAMP="))
	var entry []byte // in the export format
	for first := true; err == nil && ctx.Err() == nil; {
		var line []byte
		line, err = in.ReadSlice('\n')
		ended := err == nil
		if errors.Is(err, bufio.ErrBufferFull) {
			err = nil
		}
		if !export {
			l.piece(bytes.TrimSuffix(line, []byte("\n")), first, ended)
		} else {
			if bytes.HasPrefix(line, []byte("__")) && bytes.HasSuffix(entry, []byte("\n\n")) {
				l.piece(entry, true, true)
				entry = entry[:0]
			}
			entry = append(entry, line[:min(len(line), maxPiece-len(entry))]...)
		}
		first = ended
	}
	if export {
		l.piece(entry, true, true)
	}
	l.end()
	if l.mixed {
		for _, d := range l.dumps {
			addCut(d, "it may lack goroutines: another process wrote a dump at the same time")
		}
	}
	if err == nil {
		err = ctx.Err()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// piece takes a line of the log, or a part of one that is longer than maxPiece.
func (l *log) piece(b []byte, first, ended bool) {
	if first {
		b = l.unwrap(b)
	}
	if !l.skip {
		l.take(b)
	}
	switch {
	case !ended || l.skip:
	case !l.quoted:
		l.line(l.rest)
		l.rest = l.rest[:0]
	case l.trimmed:
		l.rest = append(l.rest, ' ')
	}
}

// unwrap returns the text of a dump in a line of the log, and sets skip if there is none.
func (l *log) unwrap(line []byte) []byte {
	if bytes.HasPrefix(line, []byte("{")) && bytes.Contains(line, []byte(`"MESSAGE":null`)) {
		l.hint = "journalctl leaves long messages out; add --all to -o json"
	}
	r := textlog.Line(line)
	from, text := sender{r.Identifier, r.PID, r.Stream}, r.Message
	ours := from == l.from
	l.skip, l.trimmed = false, len(text) == lineMax-1
	if ours && l.quoted && !bytes.HasPrefix(text, []byte(`time="`)) && !bytes.HasPrefix(text, []byte(`{"`)) {
		return text
	}
	var first []int // goroutine
	if bytes.Contains(text, []byte("goroutine ")) && bytes.Contains(text, []byte("]:")) {
		first = headerWithin.FindSubmatchIndex(text)
	}
	writes := first != nil && bytes.HasPrefix(text[first[4]:], []byte("running")) // the dump, and so begins it
	if !ours && (l.quoted || l.dump != nil) && !writes {
		l.skip, l.mixed = true, l.mixed || first != nil
		return nil
	}
	if !ours || l.quoted {
		l.end()
	}
	if first == nil {
		return text
	}
	if l.from = from; l.dump == nil || writes {
		l.at = written(r)
	}
	if bytes.HasPrefix(text[first[6]:], []byte(`\`)) {
		quote := bytes.LastIndexByte(text[:first[2]], '"')
		l.quoted = quote >= 0
		return text[quote+1:]
	}
	return text
}

// headerWithin matches the first line of a goroutine in a text whose line feeds may be escaped.
var headerWithin = lazyregexp.New(`(?:^|[\n"]|\\n|#012)[ \t]*` + header + `[ \r]*($|[\n\\#])`)

// take splits the next piece of the text of a dump into lines.
func (l *log) take(b []byte) {
	l.rest = append(l.rest, b...)
	b = l.rest
	for i := 0; ; {
		n := bytes.IndexAny(b[i:], "\n\\#\"")
		if n < 0 {
			break
		}
		i += n
		switch feed := lineFeed(b[i:]); {
		case feed > 0:
			l.line(b[:i])
			b, i = b[i+feed:], 0
		case b[i] == '"' && l.quoted:
			l.line(b[:i])
			l.rest, l.quoted, l.skip = l.rest[:0], false, true
			l.tail(b[i+1:])
			return
		default:
			i++
		}
	}
	l.rest = append(l.rest[:0], b[:min(len(b), maxLine)]...)
}

// lineFeed returns the length of the line feed, or of its escape (#012 is rsyslog's), at the beginning of a text; 0 if
// there is none.
func lineFeed(b []byte) int {
	for _, feed := range [...]string{"\n", `\n`, "#012"} {
		if bytes.HasPrefix(b, []byte(feed)) {
			return len(feed)
		}
	}
	return 0
}

// escapes undoes those within a line: of Go, JSON and rsyslog. Backslashes are left of escapes that were escaped.
var escapes = strings.NewReplacer(`\t`, "\t", `\r`, "", `\u003c`, "<", `\u003e`, ">", `\u0026`, "&", `\`, "",
	"#011", "\t", "#015", "")

// end ends the dump of a sender. Of a line that is cut off, only a header and a file are known to be whole.
func (l *log) end() {
	if bytes.Contains(l.rest, []byte(" +0x")) || bytes.HasSuffix(l.rest, []byte("]:")) {
		l.line(l.rest)
	}
	l.rest = l.rest[:0]
	if l.quoted && l.dump != nil {
		addCut(l.dump, "its record in the log has no end")
	}
	l.quoted = false
	l.finish()
}

// shimFields matches the fields that containerd adds to the records of a shim.
var shimFields = lazyregexp.New(`\bpath[\\"]*[=:][^\s,]*/([0-9a-f]{64})\b[\\" ,]*pid[\\"]*[=:](\d{1,9})\b`)

// tail reads the fields behind a quoted dump in its record.
func (l *log) tail(b []byte) {
	l.finish()
	if m := shimFields.FindSubmatch(b); m != nil && len(l.dumps) > 0 {
		if s := &l.dumps[len(l.dumps)-1].Source; strings.HasPrefix(s.Process, shim) {
			s.ObjectID = string(m[1])
			s.PID, _ = strconv.Atoi(string(m[2])) // has at most 9 digits
		}
	}
}

// written returns the time of a line of a log, by the transport or the program; 0 if neither has year and zone.
func written(line textlog.Record) time.Time {
	stamp := line.Outer
	if !stamp.Year || !stamp.Zone || stamp.Monotonic {
		stamp = textlog.Entry(line.Message, slices.Values[[][]byte](nil)).Inner
	}
	if !stamp.Year || !stamp.Zone {
		return time.Time{}
	}
	return time.UnixMicro(stamp.Micros - int64(stamp.Offset)*1e6).UTC()
}

// dumpFile matches the names of files in which containerd, CRI-O and dockerd put their dumps.
var dumpFile = lazyregexp.New(
	`^(containerd)\.(\d{1,9})\.stacks\.log|goroutine-stacks-(\d{4}-\d\d-\d\dT\d{6}(?:Z|[-+]\d{4}))`)

// source returns the source of the dump that begins, as far as it is known.
func (l *log) source() checks.StackSource {
	s := checks.StackSource{Name: l.name, Process: l.from.identifier, PID: l.from.pid}
	at := l.at
	if m := dumpFile.FindStringSubmatch(filepath.Base(l.name)); m != nil {
		pid, _ := strconv.Atoi(m[2])
		s.Process, s.PID = cmp.Or(s.Process, m[1]), cmp.Or(s.PID, pid)
		if named, err := time.Parse("2006-01-02T150405Z0700", m[3]); err == nil {
			at = named
		}
	}
	if !at.IsZero() {
		s.CapturedAt = &at
	}
	return s
}
