package textlog

import (
	"bytes"
	"unicode/utf8"

	"github.com/kdiag/kdiag/internal/lazyregexp"
)

// assemble returns the text of a record: one line as it is, several joined.
func (s *scanner) assemble(c openRecord) []byte {
	raw := bytes.Trim(s.buf[c.start:c.end], "\x00")
	raw = bytes.TrimRight(raw, "\r\n")
	if c.kind == kindExport {
		return raw
	}
	if c.lines > 1 && c.kind != kindVerbose && c.kind != kindPretty {
		raw = s.join(bytes.Split(raw, []byte("\n")), c.kind == kindJSON)
	}
	return stripColour(raw) // last: a wrap may have cut the codes, too
}

// join returns the lines of a record, which may be a JSON object, as one text.
func (s *scanner) join(lines [][]byte, object bool) []byte {
	for i := range lines {
		lines[i] = bytes.TrimRight(lines[i], "\r")
	}
	s.joined = append(s.joined[:0], lines[0]...)
	width := utf8.RuneCount(lines[0])
	for i, line := range lines[1:] {
		hard := len(lines) > 2 && utf8.RuneCount(lines[i]) == width || object && len(line) > 0 && !wordByte(line[0])
		s.joined = s.seam(s.joined, line, hard)
	}
	return s.joined
}

// seam appends the line that continues dst. hard is set if no blank was lost at the line end: the line before is as
// long as the first one, as a terminal wraps, or a sign of JSON follows.
func (s *scanner) seam(dst, right []byte, hard bool) []byte {
	if len(right) == 0 || right[0] == '\t' || bytes.HasSuffix(dst, []byte("=<")) ||
		bytes.HasPrefix(right, []byte(" >")) ||
		bytes.HasPrefix(right, []byte("goroutine ")) {
		return append(append(dst, '\n'), right...)
	}
	trimmed := trimBlanks(right)
	if glue, text, ok := s.joinLiteral(dst, right, trimmed); ok {
		return append(append(dst, glue...), text...)
	}
	if len(dst) == 0 || len(trimmed) == 0 {
		return append(dst, trimmed...)
	}
	left := dst[len(dst)-1]
	flush := len(trimmed) == len(right)
	switch {
	case left == ' ' || left == '\\', midToken(dst, trimmed), flush && (hard || wordByte(left) && wordByte(right[0])):
		return append(dst, trimmed...)
	}
	return append(append(dst, ' '), trimmed...)
}

// joinLiteral tries the ways to join two lines and returns the first that makes a literal whole which the line end
// cuts.
func (s *scanner) joinLiteral(left, right, trimmed []byte) (glue string, text []byte, ok bool) {
	if s.opts.Next == nil || s.opts.Longest < 2 {
		return "", nil, false
	}
	left = left[max(0, len(left)-s.opts.Longest+1):]
	for _, try := range [...]struct {
		glue string
		text []byte
	}{{"", right}, {"", trimmed}, {" ", trimmed}} {
		s.scratch = append(
			append(append(s.scratch[:0], left...), try.glue...),
			try.text[:min(len(try.text), s.opts.Longest)]...)
		if s.spans(s.scratch, len(left)) {
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

// The texts on both sides of a line end that cuts a number, a duration or an id.
var (
	tokenTail = lazyregexp.New(`[0-9][0-9a-fhms.-]*$`)
	tokenHead = lazyregexp.New(`^[a-fhms.-]*[0-9]`)
)

// midToken reports whether a number, a duration or an id is cut between left and right.
func midToken(left, right []byte) bool {
	return tokenTail.Match(left[max(0, len(left)-40):]) && tokenHead.Match(right[:min(len(right), 40)])
}
