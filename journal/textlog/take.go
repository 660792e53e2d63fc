package textlog

import (
	"bytes"
	"unicode/utf8"

	"github.com/kdiag/kdiag/journal/klog"
)

// take looks at the line buf[from:to].
func (s *scanner) take(from, to int) {
	s.stats.Lines++
	line := s.buf[from:to]
	if s.cur.kind == kindExport && s.inExport(line) {
		s.follow(from, to)
		return
	}
	k := none
	if s.cur.kind != kindVerbose && s.cur.kind != kindPretty {
		k = quick(line, s.cur.kind)
	}
	if k == none {
		k = s.classify(line)
	}
	switch k {
	case none:
		s.follow(from, to)
	case separates:
		s.close()
	default:
		s.close()
		s.parent = nil
		if k != kindYAML && k != kindPretty {
			s.yaml = nodeNames{}
		}
		s.stats.Records++
		s.cur = open{kind: k, start: from, end: to, line: s.stats.Lines, lines: 1}
	}
}

// separates is the kind of lines that stand between records.
const separates = kind(255)

// classify decides what a line is that does not look like the record before it.
func (s *scanner) classify(line []byte) kind {
	b := bytes.TrimRight(bytes.TrimLeft(line, "\x00"), "\r")
	b = stripColour(b)
	switch s.cur.kind {
	case kindPretty:
		if t := bytes.TrimSpace(line); string(s.lastByte()) == "}" && (string(t) == "{" || len(t) == 0) {
			return kindPretty
		}
		if s.cur.end-s.cur.start < s.opts.MaxRecord && !s.prettyClosed() {
			return none
		}
	case kindVerbose:
		if len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
			return none
		}
	}
	if len(bytes.TrimSpace(b)) == 0 {
		return none
	}
	k, sure := begin(b)
	switch {
	case k == kindVerbose || k == kindPretty:
		return k
	case k == none:
		if s.separator(b) {
			return separates
		}
		return none
	case s.cur.kind == kindVerbose && k != kindSyslog:
		return none
	case s.cur.lines == 0 || s.cur.kind == kindBare:
		return k
	case !sure && k != s.cur.kind, k == kindCaller && s.cutHeader():
		return none
	case s.inJSON(k, b):
		s.cur.held = true
		return none
	}
	return k
}

// cutHeader reports whether the record's first line ends in the middle of a klog header.
func (s *scanner) cutHeader() bool {
	first, _, _ := bytes.Cut(s.buf[s.cur.start:s.cur.end], []byte("\n"))
	return s.cur.kind != kindCaller && cutHeader(bytes.TrimRight(first, "\r"))
}

// maxJSONLines bounds how many lines a wrapped JSON object may have before any beginning ends it: it was cut, not
// wrapped.
const maxJSONLines = 200

// inJSON reports whether a line that begins like k is inside the JSON object of the record. If the object turns out to
// be cut, splitTorn undoes it.
func (s *scanner) inJSON(k kind, b []byte) bool {
	if s.cur.kind != kindJSON && k != kindJSON || s.cur.lines > maxJSONLines {
		return false
	}
	rec := bytes.TrimRight(s.buf[s.cur.start:s.cur.end], " \t\r\n")
	object := bytes.IndexByte(rec[:min(len(rec), 200)], '{')
	closed := bytes.HasSuffix(rec, []byte("}")) || bytes.HasSuffix(rec, []byte(">"))
	if object < 0 || !jsonBegins(rec[object:]) || closed {
		return false
	}
	if k != kindJSON {
		return true
	}
	at := bytes.IndexByte(b, '{')
	if at != 0 && object != 0 || len(b) < 4 {
		return false // both have the same kind of text in front
	}
	whole := b[max(at, 0):]
	if _, n, ok := klog.ParseObject(whole); ok && whole[n-1] == '}' && len(bytes.TrimSpace(whole[n:])) == 0 {
		return false // the one before was cut
	}
	return true
}

// lastByte returns the last byte of the record that is not blank.
func (s *scanner) lastByte() []byte {
	rec := bytes.TrimRight(s.buf[s.cur.start:s.cur.end], " \t\r\n,")
	return rec[max(0, len(rec)-1):]
}

// prettyClosed reports whether the last line of the record is a brace that closes it.
func (s *scanner) prettyClosed() bool {
	rec := bytes.TrimRight(s.buf[s.cur.start:s.cur.end], " \t\r\n,")
	return bytes.HasSuffix(rec, []byte("\n}"))
}

// follow takes a line without a beginning.
func (s *scanner) follow(from, to int) {
	line := s.buf[from:to]
	empty := len(bytes.TrimSpace(line)) == 0
	s.yaml.read(line)
	if s.alone(line) {
		s.close()
	} else if s.cur.kind == kindYAML && empty {
		return
	}
	switch {
	case !empty && s.cur.kind != kindExport && garbage(line):
		s.close()
		s.stats.Unparsed++
		s.stats.addRange(Range{Offset: s.base + int64(from), Bytes: int64(to - from), Why: "bytes that are not text"})
	case s.cur.lines > 0 && to-s.cur.start <= s.opts.MaxRecord:
		if !empty || s.cur.kind == kindPretty || s.cur.kind == kindVerbose || s.cur.kind == kindExport {
			s.cur.end = to
			s.cur.lines++
		}
	case empty:
	case s.cur.lines > 0:
		s.overlong()
		fallthrough
	default:
		s.cur = open{kind: kindBare, start: from, end: to, line: s.stats.Lines, lines: 1}
		if s.parent != nil {
			s.close()
		}
	}
}

// overlong closes a record that is longer than the limit; the lines that follow get its stamps.
func (s *scanner) overlong() {
	r := s.parse(s.cur)
	parent := *r.Record
	parent.Raw, parent.Message = nil, nil
	s.close()
	s.parent = &parent
}

// bare yields a line without a beginning, with those that continue it, as a record.
func (s *scanner) bare(c open) {
	if s.parent == nil {
		s.stats.Unparsed++
	}
	if !s.opts.All && c.lines == 1 && s.hit.next(s.buf[:s.end], c.start) >= c.end && !s.hides(c) {
		return
	}
	p := s.parse(c)
	found := s.found(p.Record)
	if s.parent == nil && found && s.contained(p, false) {
		s.stats.Unparsed--
		return
	}
	if s.parent != nil {
		raw, msg, line, off := p.Raw, p.Message, p.Line, p.Offset
		*p.Record = *s.parent
		p.Raw, p.Message, p.Line, p.Offset = raw, msg, line, off
	} else if found {
		s.stats.Unparsed--
	}
	if found || s.opts.All {
		s.emit(p.Record)
	}
}

// garbage reports whether a line is not text: an eighth of it are control characters, or a third of it is not UTF-8.
func garbage(line []byte) bool {
	b := line[:min(len(line), 1024)]
	control, broken := 0, 0
	for i := 0; i < len(b); {
		c := b[i]
		if c < utf8.RuneSelf {
			if c < ' ' && c != '\t' && c != '\r' && c != 0x1b || c == 0x7f {
				control++
			}
			i++
			continue
		}
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 && i+utf8.UTFMax <= len(b) {
			broken++
		}
		i += n
	}
	return control > 0 && control*8 > len(b) || broken*3 > len(b)
}

// torn reports whether the object of a record that has taken lines which begin like records does not close: it was cut,
// and they are records.
func (s *scanner) torn(c open) bool {
	raw := s.assemble(c)
	n := bytes.IndexByte(raw[:min(len(raw), 200)], '{')
	if n < 0 {
		return true
	}
	_, size, ok := klog.ParseObject(raw[n:])
	rest := bytes.TrimSpace(raw[n:][size:])
	return !ok || raw[n+size-1] != '}' || len(bytes.Trim(rest, "],")) > 0
}

// splitTorn takes the lines of a record as several, where they begin like one.
func (s *scanner) splitTorn(c open) {
	cur := open{kind: c.kind, start: c.start, line: c.line}
	for from, line := c.start, c.line; from < c.end; line++ {
		to := c.end
		if n := bytes.IndexByte(s.buf[from:c.end], '\n'); n >= 0 {
			to = from + n
		}
		b := stripColour(bytes.TrimRight(s.buf[from:to], "\r"))
		k, sure := begin(b)
		switch {
		case cur.lines > 0 && (sure || k != none && k == cur.kind) && k != kindPretty && k != kindVerbose:
			s.finish(cur)
			s.stats.Records++
			cur = open{kind: k, start: from, end: to, line: line, lines: 1}
		case cur.lines == 0 || len(bytes.TrimSpace(b)) > 0:
			cur.end, cur.lines = to, cur.lines+1
		}
		from = to + 1
	}
	if !s.stop {
		s.finish(cur)
	}
}
