package textlog

import (
	"bytes"
	"unicode/utf8"
)

// wrap is what is known of how the lines of a stream were wrapped.
type wrap struct {
	width int  // column at which lines break, 0 unknown
	last  int  // length of the last line that another continued
	flush bool // a line that continued another had no blank in front
	blank int  // lines that had
}

// assemble returns the text of a record: one line as it is, several joined.
func (s *scanner) assemble(c open) []byte {
	raw := bytes.Trim(s.buf[c.start:c.end], "\x00")
	raw = bytes.TrimRight(raw, "\r\n")
	if c.kind == kindExport {
		return raw
	}
	if c.lines > 1 && c.kind != kindVerbose {
		lines := bytes.Split(raw, []byte("\n"))
		for i := range lines {
			lines[i] = bytes.TrimRight(lines[i], "\r")
		}
		s.joined = s.join(s.joined[:0], lines, joining{dense: c.kind == kindPretty, words: c.kind == kindYAML})
		raw = s.joined
	}
	// Codes go last: a wrap may have cut them, too.
	return unmarked(stripColour(raw))
}

// prescan is how much of a stream is looked at to see how it was wrapped, in bytes.
const prescan = 64 << 10

// learnWrap learns from the beginning of a stream how its lines are wrapped, so that its first records are joined as
// well as those that follow.
func (s *scanner) learnWrap() {
	var group [][]byte
	for line := range bytes.SplitSeq(s.buf[:min(s.end, prescan)], []byte("\n")) {
		line = bytes.TrimRight(line, "\r")
		k, _ := begin(stripColour(line[:min(len(line), 512)]))
		if k == none && len(group) > 0 && len(line) > 0 {
			group = append(group, line)
			continue
		}
		if len(group) > 1 {
			s.wrap.learn(group, 0)
		}
		group = group[:0]
		if k != none && k != kindPretty && k != kindVerbose && k != kindExport {
			group = append(group, line)
		}
	}
	if len(group) > 1 {
		s.wrap.learn(group, 0)
	}
}

// joining is how to join the lines of a text.
type joining struct {
	lead  int  // characters in front of the first line that are not part of it
	dense bool // blanks at line ends mean nothing
	words bool // lines end at blanks only
}

// join appends lines to dst as one text.
func (s *scanner) join(dst []byte, lines [][]byte, how joining) []byte {
	if how.words {
		for i, line := range lines {
			if i > 0 {
				dst = append(dst, ' ')
				line = trimBlanks(line)
			}
			dst = append(dst, line...)
		}
		return dst
	}
	indent := s.wrap.learn(lines, how.lead)
	dst = append(dst, lines[0]...)
	for i, line := range lines[1:] {
		width := utf8.RuneCount(lines[i])
		if i == 0 {
			width += how.lead
		}
		dst = s.seam(dst, line, seamed{width: width, indent: indent, dense: how.dense})
	}
	return dst
}

// learn looks at the lengths of the lines of a record and returns the blanks in front of those that continue it.
func (w *wrap) learn(lines [][]byte, lead int) (indent int) {
	indent = 1
	same, first := true, lead+utf8.RuneCount(lines[0])
	for i, line := range lines[1:] {
		if len(line) > 0 && line[0] != ' ' && line[0] != '\t' {
			w.flush = true
		} else if len(line) > 0 {
			w.blank++
		}
		n := utf8.RuneCount(line)
		if i < len(lines)-2 && n != first && n != first+1 {
			same = false
		}
	}
	if same && first >= 40 && (len(lines) > 2 || w.last == first) {
		w.width = first
	}
	w.last = first
	if w.flush {
		return 0
	}
	return indent
}

// seamed is what is known of the end of a line that another continues.
type seamed struct {
	width  int // of the line
	indent int // blanks that the wrap may have put before the next
	dense  bool
}

// seam appends the line that continues dst.
func (s *scanner) seam(dst, right []byte, at seamed) []byte {
	trimmed := trimBlanks(right)
	own := right[min(at.indent, len(right)-len(trimmed)):] // without the wrap's indent
	if at.dense {
		return append(dst, trimmed...)
	}
	if len(right) == 0 || right[0] == '\t' || bytes.HasSuffix(dst, []byte("=<")) || bytes.HasPrefix(right, []byte(" >")) ||
		bytes.HasPrefix(right, []byte("goroutine ")) {
		return append(append(dst, '\n'), right...)
	}
	if glue, text, ok := s.joinLiteral(dst, own, trimmed); ok {
		return append(append(dst, glue...), text...)
	}
	left := dst[max(0, len(dst)-1):]
	unsure := len(right)-len(trimmed) == 1 && !s.wrap.flush && s.wrap.blank < 2 // an indent, or a blank of the text
	hard := s.wrap.width > 0 && (at.width == s.wrap.width || at.width == s.wrap.width+1)
	switch {
	case len(left) == 0 || left[0] == ' ' || left[0] == '\\':
		return append(dst, own...)
	case hard && !unsure:
		return append(dst, own...)
	case len(trimmed) == 0:
		return dst
	case midToken(dst, trimmed),
		len(own) == len(right) && len(trimmed) == len(right) && wordByte(left[0]) && wordByte(trimmed[0]):
		return append(dst, trimmed...)
	}
	return append(append(dst, ' '), trimmed...)
}

// joinLiteral tries the ways to join two lines and returns the first that makes a literal whole which the line end
// cuts.
func (s *scanner) joinLiteral(left, own, trimmed []byte) (glue string, text []byte, ok bool) {
	if s.opts.Next == nil || s.opts.Longest < 2 {
		return "", nil, false
	}
	left = left[max(0, len(left)-s.opts.Longest+1):]
	for _, try := range [...]struct {
		glue string
		text []byte
	}{{"", own}, {"", trimmed}, {" ", trimmed}} {
		s.plain = append(append(append(s.plain[:0], left...), try.glue...), try.text[:min(len(try.text), s.opts.Longest)]...)
		if s.spans(s.plain, len(left)) {
			return try.glue, try.text, true
		}
	}
	return "", nil, false
}

// spans reports whether a literal in b begins before seam and ends behind it.
func (s *scanner) spans(b []byte, seam int) bool {
	for from := 0; from < seam; {
		n := s.opts.Next(b[from:])
		if n < 0 || from+n >= seam {
			return false
		}
		from += n
		if s.opts.Next(b[from:seam]) != 0 {
			return true
		}
		from++
	}
	return false
}

func wordByte(c byte) bool { return letter(c) || digit(c) || c == '_' || c >= utf8.RuneSelf }

// midToken reports whether a number, a duration or an id is cut between left and right.
func midToken(left, right []byte) bool {
	tail := left[max(0, len(left)-40):]
	i := len(tail)
	for i > 0 && (digit(tail[i-1]) || bytes.IndexByte([]byte("abcdefhms.-"), tail[i-1]) >= 0) {
		i--
	}
	tail = tail[i:]
	n := 0
	for n < len(right) && n < 40 && (digit(right[n]) || bytes.IndexByte([]byte("abcdefhms.-"), right[n]) >= 0) {
		n++
	}
	return bytes.ContainsAny(tail, "0123456789") && bytes.ContainsAny(right[:n], "0123456789")
}
