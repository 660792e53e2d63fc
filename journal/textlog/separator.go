package textlog

import (
	"bytes"
	"time"

	"github.com/kdiag/kdiag/journal/klog"
)

// separator reports whether a line separates records, and reads what it states about them: remarks of journalctl, the
// head of the files of klog, heads of tables, and marks of what was left out.
func (s *scanner) separator(line []byte) bool {
	line = bytes.TrimSpace(line)
	if len(line) == 0 || len(line) > 400 {
		return false
	}
	if s.columnHead(line) {
		return true
	}
	switch line[0] {
	case '-':
		return s.remark(line)
	case 'L', 'R', 'B':
		return s.fileHead(line)
	case '.', '[', '(', '<', 0xe2:
		switch string(bytes.ToLower(line)) {
		case "...", "[...]", "(...)", "<...>", "…", "....", "<snip>", "[snip]", "(snip)":
			return true
		}
	case 'T', 'E', 'C', 'N', 'A':
		return tableHead(line)
	}
	return false
}

// remark reads "-- Logs begin at Mon 2019-02-11 09:26:20 UTC, end at ... --", "-- Boot 0123... --", "-- Reboot --",
// "-- cursor: ...".
func (s *scanner) remark(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("-- "))
	if !ok {
		return len(bytes.Trim(line, "- \t|+")) == 0 && len(line) > 1
	}
	if bytes.HasPrefix(rest, []byte("Logs begin at ")) || bytes.HasPrefix(rest, []byte("Journal begins at ")) {
		// The year in which the journal ends comes first: the records are nearer to it.
		for n := len(rest); n > 0; n = max(0, bytes.LastIndex(rest[:n], []byte(" at "))) {
			if stamp, _, _, ok := parseWeekday(bytes.TrimPrefix(rest[n:], []byte(" at "))); ok {
				s.header(stamp)
			}
		}
		return true
	}
	if id, ok := bytes.CutPrefix(rest, []byte("Boot ")); ok {
		s.boot = string(bytes.TrimSuffix(id, []byte(" --")))
		return true
	}
	return bytes.HasSuffix(line, []byte(" --")) || bytes.HasPrefix(rest, []byte("cursor: "))
}

// header takes the year of a head, the first one of the stream.
func (s *scanner) header(stamp klog.Stamp) {
	if stamp.Known && stamp.Year && s.stats.HeaderYear == 0 {
		s.stats.HeaderYear = time.UnixMicro(stamp.Micros).UTC().Year()
	}
}

// fileHead reads the head of a file that klog has written.
func (s *scanner) fileHead(line []byte) bool {
	if when, ok := bytes.CutPrefix(line, []byte("Log file created at: ")); ok {
		if stamp, _, ok := klog.ParseISO(when); ok {
			s.header(stamp)
		}
		return true
	}
	return bytes.HasPrefix(line, []byte("Running on machine: ")) ||
		bytes.HasPrefix(line, []byte("Binary: Built with ")) || bytes.HasPrefix(line, []byte("Log line format: "))
}

// tableHead reports whether a line is the head of one of kubectl's tables.
func tableHead(line []byte) bool {
	switch string(line) {
	case "Events:", "Conditions:", "Events:  <none>", "Events:              <none>":
		return true
	}
	return bytes.Contains(line, []byte(" Reason ")) && bytes.HasSuffix(line, []byte("Message"))
}
