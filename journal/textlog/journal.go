package textlog

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"iter"
	"slices"
	"strconv"

	"github.com/kdiag/kdiag/journal/klog"
)

// exportBegins reports whether a line is the first of an entry in the journal's export format (systemd's
// JOURNAL_EXPORT_FORMATS), which is an address field.
func exportBegins(line []byte) bool {
	return bytes.HasPrefix(line, []byte("__CURSOR=")) || bytes.HasPrefix(line, []byte("__REALTIME_TIMESTAMP=")) ||
		bytes.HasPrefix(line, []byte("__SEQNUM="))
}

// inExport reports whether a line belongs to the export entry that is open. An empty line ends an entry, but may also
// be part of a binary value.
func (s *scanner) inExport(line []byte) bool {
	line = trimBlanks(line)
	return !exportBegins(line) || !bytes.HasPrefix(line, []byte("__CURSOR=")) && !s.exportEnded()
}

// exportEnded reports whether the last line of the export entry that is open is empty.
func (s *scanner) exportEnded() bool {
	return bytes.HasSuffix(bytes.TrimRight(s.buf[s.cur.start:s.cur.end], "\r"), []byte("\n"))
}

// Entry returns the record of an entry of a journal, by its message and others of its fields, each NAME=value.
func Entry(message []byte, fields iter.Seq[[]byte]) *Record {
	p := unwrapper{Record: &Record{Raw: message}, layers: 1}
	for field := range fields {
		name, value, _ := bytes.Cut(field, []byte("="))
		p.field(string(name), string(value))
	}
	p.unwrapAll(message)
	return p.Record
}

// entry takes the fields of an entry of journalctl -o export, a line NAME=value, or NAME and a binary value, or of -o
// verbose: a head with the time, then NAME=value behind four blanks. Other lines continue a message of several lines.
func (p *unwrapper) entry(raw []byte, k kind) {
	p.Format = "journal-export"
	if k == kindVerbose {
		p.Format = "journal-verbose"
		if stamp, _, ok := parseWeekday(trimBlanks(raw)); ok {
			p.stamp(stamp)
		}
		_, raw, _ = bytes.Cut(raw, []byte("\n"))
	}
	var message []byte
	last := ""
	for len(raw) > 0 {
		line, rest, _ := bytes.Cut(raw, []byte("\n"))
		field := trimBlanks(bytes.TrimRight(line, "\r"))
		name, value, ok := bytes.Cut(field, []byte("="))
		if ok = ok && fieldName(name); !ok && k == kindExport && fieldName(field) {
			name = field
			value, rest, ok = binaryValue(rest)
		}
		raw = rest
		switch {
		case ok && string(name) == "MESSAGE" && message == nil:
			message = slices.Clip(value)
		case ok:
			p.field(string(name), string(value))
		case last == "MESSAGE" && len(field) > 0:
			message = append(append(message, '\n'), field...)
		}
		if ok {
			last = string(name)
		}
	}
	p.Raw, p.layers = stripColour(message), 1
	p.unwrapAll(p.Raw)
}

// binaryValue parses eight bytes of length, the value, and a line feed. ok is false if no length that fits is there.
func binaryValue(b []byte) (value, rest []byte, ok bool) {
	if len(b) < 8 {
		return nil, b, false
	}
	n := binary.LittleEndian.Uint64(b)
	if n > uint64(len(b)-8) {
		return nil, b, false
	}
	return b[8 : 8+n], bytes.TrimPrefix(b[8+n:], []byte("\n")), true
}

// fieldName reports whether b may be the name of a field: capitals, digits and underscores, 64 at most.
func fieldName(b []byte) bool {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789"
	return len(b) > 0 && len(b) <= 64 && !digit(b[0]) && len(bytes.Trim(b, letters)) == 0
}

// field takes a field of the journal (systemd.journal-fields(7)) into a record. MESSAGE is the caller's.
func (r *Record) field(name, value string) {
	switch name {
	case "__REALTIME_TIMESTAMP":
		if us, err := strconv.ParseInt(value, 10, 64); err == nil && us > 0 {
			r.Outer = klog.Stamp{Micros: us, Known: true, Year: true, Zone: true}
		}
	case "_HOSTNAME":
		r.Host = value
	case "SYSLOG_IDENTIFIER":
		r.Identifier = value
	case "_COMM":
		r.Identifier = cmp.Or(r.Identifier, value)
	case "_SYSTEMD_UNIT", "_SYSTEMD_USER_UNIT", "CONTAINER_NAME", "UNIT": // the last: systemd itself, about a unit
		r.Units = append(r.Units, value)
	case "_PID":
		r.PID, _ = strconv.Atoi(value)
	case "SYSLOG_PID":
		if r.PID == 0 {
			r.PID, _ = strconv.Atoi(value)
		}
	case "_TRANSPORT":
		r.Kernel = value == "kernel"
	}
}
