package textlog

import (
	"bytes"
	"encoding/csv"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/journal/klog"
)

// columns is what the head of a CSV table states.
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
	decimals := b[0] != '"' && len(after) > 3 && len(bytes.Trim(after[:3], "0123456789")) == 0
	if decimals && after[3] != ',' && after[3] != ';' {
		return s, nil, false
	}
	s, ok = writtenTime(string(bytes.Trim(b[:n], `"`)))
	return s, b[n:], ok
}

// rowHead is the head of what rowStart takes. Only a quoted column, or one that begins like a record, makes it sure:
// the text of a record may have times and commas.
func rowHead(b []byte, s klog.Stamp, rest []byte) head {
	sure := b[0] == '"' || rest[1] == '"' || known(rest[1:])
	return head{kind: kindRow, sure: sure, open: func(p *peeling, _ []byte) ([]byte, string, bool) {
		return p.row(s, rest), "csv", true
	}}
}

// row takes a row of a table with commas, as CloudWatch, Kibana, Grafana and Azure export it, and returns the column
// with the line: the first that begins like a record, else the longest.
func (p *peeling) row(s klog.Stamp, rest []byte) []byte {
	s.Zone = s.Zone || p.columns.utc
	p.stamp(s)
	best, rank := "", 0
	for i, column := range cells(rest[1:], rest[0]) {
		if i+1 == p.columns.host && column != "" {
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

// cells returns the columns of a row. What is not quite CSV is read leniently.
func cells(row []byte, comma byte) []string {
	r := csv.NewReader(bytes.NewReader(row))
	r.Comma, r.LazyQuotes = rune(comma), true
	columns, _ := r.Read()
	return columns
}

// columnHead reads the names of the columns of a table: a time first, and somewhere a line.
func (s *scanner) columnHead(line []byte) bool {
	n := bytes.IndexAny(line, ",;")
	if n < 0 {
		return false
	}
	var c columns
	first, utc := strings.CutSuffix(strings.ToLower(string(bytes.Trim(line[:n], `"`))), " [utc]")
	if !timeColumn(first) {
		return false
	}
	names := cells(bytes.ToLower(line), line[n])
	c.utc = utc || first == "@timestamp" && slices.Contains(names, "@message") // CloudWatch
	lines := false
	for i, name := range names {
		switch name {
		case "computer", "host", "hostname", "node", "instance":
			c.host = i
		case "line", "message", "@message", "body", "_raw", "msg", "text", "log", "logmessage", "logentry",
			"syslogmessage", "textpayload":
			lines = true
		}
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
