package textlog

import (
	"bytes"
	"strings"

	"github.com/kdiag/kdiag/journal/klog"
)

// columns is what the head of a table with commas says.
type columns struct {
	host int  // the column of the host, 0 none: the first is the time
	utc  bool // the times are in UTC
}

// rowStart parses the first column of a row: a time, quoted or not, and what follows its comma or semicolon.
func rowStart(b []byte) (s klog.Stamp, rest []byte, ok bool) {
	if len(b) < 12 {
		return s, nil, false
	}
	var n int
	if b[0] == '"' {
		end := bytes.IndexByte(b[1:min(len(b), 50)], '"')
		if n = end + 2; end < 10 || n >= len(b) {
			return s, nil, false
		}
	} else if n = bytes.IndexAny(b[:min(len(b), 40)], ",;"); n < 10 {
		return s, nil, false
	}
	if b[n] != ',' && b[n] != ';' || n+1 == len(b) {
		return s, nil, false
	}
	after := b[n+1:]
	if b[0] != '"' && len(after) > 3 && len(bytes.Trim(after[:3], "0123456789")) == 0 && after[3] != ',' && after[3] != ';' {
		return s, nil, false // decimals
	}
	s, ok = writtenTime(string(bytes.Trim(b[:n], `"`)))
	return s, b[n:], ok
}

// rowHead is the head of what rowStart takes. Only a quoted column, or one that begins like a record, makes it sure: the text
// of a record may have times and commas.
func rowHead(b []byte, s klog.Stamp, rest []byte) head {
	sure := b[0] == '"' || rest[1] == '"' || known(rest[1:])
	return head{kind: kindRow, sure: sure, open: func(p *peeling, _ []byte) ([]byte, string, bool) {
		return p.row(s, rest), "csv", true
	}}
}

// row takes a row of a table with commas, as CloudWatch, Kibana, Grafana and Azure export it, and returns the column with the
// line: the first that begins like a record, else the longest.
func (p *peeling) row(s klog.Stamp, rest []byte) []byte {
	if p.columns.utc {
		s.Zone = true
	}
	p.stamp(s)
	comma := rest[0]
	best, rank := "", 0
	for i := 1; len(rest) > 0 && rest[0] == comma; i++ {
		var column string
		column, rest = cell(rest[1:], comma)
		if i == p.columns.host && column != "" {
			p.Host = column
		}
		r := 1
		if carries([]byte(column)) {
			if r = 3; column[0] == '{' { // labels are JSON, too
				r = 2
			}
		}
		if r > rank || r == rank && r == 1 && len(column) > len(best) {
			best, rank = column, r
		}
	}
	return p.inner(best)
}

// cell parses a column: text up to the comma, or text in quotes with quotes doubled within.
func cell(b []byte, comma byte) (text string, rest []byte) {
	if len(b) == 0 || b[0] != '"' {
		n := bytes.IndexByte(b, comma)
		if n < 0 {
			n = len(b)
		}
		return string(b[:n]), b[n:]
	}
	for i := 1; i < len(b); i++ {
		if b[i] != '"' {
			continue
		}
		if i+1 < len(b) && b[i+1] == '"' {
			i++
			continue
		}
		return strings.ReplaceAll(string(b[1:i]), `""`, `"`), b[i+1:]
	}
	return strings.ReplaceAll(string(b[1:]), `""`, `"`), nil
}

// columnHead reads the names of a table's columns: a time first, and somewhere a line.
func (s *scanner) columnHead(line []byte) bool {
	comma := byte(',')
	if bytes.IndexByte(line, comma) < 0 {
		comma = ';'
	}
	var c columns
	var lines bool
	rest := line
	for i := 0; ; i++ {
		var name string
		name, rest = cell(rest, comma)
		name, utc := strings.CutSuffix(strings.ToLower(name), " [utc]")
		if i == 0 && !timeColumn(name) {
			return false
		}
		c.utc = c.utc || i == 0 && (utc || name == "@timestamp" && bytes.Contains(line, []byte("@message"))) // CloudWatch
		switch name {
		case "computer", "host", "hostname", "node", "instance":
			c.host = i
		case "line", "message", "@message", "body", "_raw", "msg", "text", "log", "logmessage", "logentry", "syslogmessage", "textpayload":
			lines = true
		}
		if len(rest) == 0 || rest[0] != comma {
			break
		}
		rest = rest[1:]
	}
	if lines {
		s.columns = c
	}
	return lines
}

func timeColumn(name string) bool {
	switch name {
	case "time", "timestamp", "@timestamp", "tsns", "ts", "date", "_time", "timegenerated", "datetime":
		return true
	}
	return false
}
