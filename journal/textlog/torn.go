package textlog

import (
	"bytes"

	"github.com/kdiag/kdiag/journal/klog"
)

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

// again takes the lines of a record as several, where they begin like one.
func (s *scanner) again(c open) {
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
