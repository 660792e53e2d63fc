package textlog

import (
	"bytes"
	"unicode/utf8"
)

// take looks at the line buf[from:to].
func (s *scanner) take(from, to int) {
	s.stats.Lines++
	line := s.buf[from:to]
	k := none
	switch s.cur.kind {
	case kindExport:
		if s.inExport(line) {
			s.follow(from, to)
			return
		}
	case kindVerbose, kindPretty:
	case kindJSON: // the text of a wrapped object may begin like any record
	default:
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
		s.skipping = false
		s.stats.Records++
		s.cur = openRecord{kind: k, start: from, end: to, lines: 1}
	}
}

// separates is the kind of lines that stand between records.
const separates = kind(255)

// classify returns the kind of a line that does not look like the record before it.
func (s *scanner) classify(line []byte) kind {
	b := stripColour(bytes.TrimRight(bytes.TrimLeft(line, "\x00"), "\r"))
	var rec []byte
	if s.cur.lines > 0 {
		rec = s.buf[s.cur.start:s.cur.end]
	}
	switch s.cur.kind {
	case kindPretty:
		object := bytes.TrimRight(rec, " \t\r\n,")
		if n := len(object); n > 0 && (object[n-1] == '}' || object[n-1] == '[') && string(bytes.TrimSpace(b)) == "{" {
			return kindPretty // one of a list
		}
		if !bytes.HasSuffix(object, []byte("\n}")) && len(rec) < s.opts.maxRecord {
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
	if b = trimBlanks(b); string(b) == "{" {
		return kindPretty
	}
	h := head{}
	if len(b) >= 4 {
		h = parseHead(b)
	}
	k := h.kind
	switch {
	case k == kindVerbose || k == kindPretty:
		return k
	case k == none:
		if s.separator(b) {
			return separates
		}
	case s.cur.kind == kindVerbose && k != kindSyslog:
		return none
	case s.cur.lines == 0 || s.cur.kind == kindBare:
		return k
	case !h.sure && k != s.cur.kind, k == kindCaller && cutHeader.Match(rec),
		// a wrapped object
		k == kindBehind && s.cur.kind == kindJSON && !bytes.HasSuffix(bytes.TrimSpace(rec), []byte("}")):
		return none
	}
	return k
}

// follow takes a line without a beginning.
func (s *scanner) follow(from, to int) {
	line := s.buf[from:to]
	empty := len(bytes.TrimSpace(line)) == 0
	if s.cur.kind == kindBare && !s.continues(line) {
		s.close()
	}
	switch {
	case !empty && s.cur.kind != kindExport && garbage(line):
		s.close()
		s.stats.Unparsed++
		s.stats.Binary++
		s.stats.addRange(Range{Offset: s.base + int64(from), Bytes: int64(to - from), Why: "bytes that are not text"})
	case s.cur.lines > 0 && to-s.cur.start <= s.opts.maxRecord:
		if !empty || s.cur.kind == kindVerbose || s.cur.kind == kindExport {
			s.cur.end = to
			s.cur.lines++
		}
	case empty:
	case s.cur.lines > 0 || s.skipping: // the rest of a record that is too long
		s.close()
		s.skipping = true
		s.stats.addRange(Range{Offset: s.base + int64(from), Bytes: int64(to - from), Why: whyLong})
	default:
		s.cur = openRecord{kind: kindBare, start: from, end: to, lines: 1}
	}
}

// continues reports whether a line belongs to the one before it, which has no beginning: it is indented more, and that
// one contains a literal or is cut in one. Otherwise it is prose.
func (s *scanner) continues(line []byte) bool {
	rec := s.buf[s.cur.start:s.cur.end]
	trimmed := bytes.TrimSpace(line)
	indent := func(b []byte) int { return len(b) - len(trimBlanks(b)) }
	if len(trimmed) == 0 || trimmed[0] == '-' || indent(line) <= indent(rec) || s.opts.Next == nil {
		return false
	}
	_, _, cut := s.joinLiteral(bytes.TrimRight(rec, "\r"), trimmed, trimmed)
	return cut || s.opts.Next(rec) >= 0
}

// garbage reports whether a line is not text: an eighth of it are control characters, or a third of it is not UTF-8.
func garbage(line []byte) bool {
	b := line[:min(len(line), 1024)]
	control, broken := 0, 0
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		switch {
		case r < ' ' && r != '\t' && r != '\r' && r != 0x1b || r == 0x7f:
			control++
		case r == utf8.RuneError && n == 1 && i+utf8.UTFMax <= len(b):
			broken++
		}
		i += n
	}
	return control*8 > len(b) || broken*3 > len(b)
}
