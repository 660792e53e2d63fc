package textlog

import "bytes"

// verbose takes an entry of journalctl -o verbose: a head with the time, then fields, each behind four blanks; the lines of a
// value that has several stand further right.
func (s *scanner) verbose(p *peeling, raw []byte) {
	lines := bytes.Split(raw, []byte("\n"))
	if stamp, _, _, ok := parseWeekday(trimBlanks(lines[0])); ok {
		p.stamp(stamp)
	}
	p.Format = "journal-verbose"
	var message [][]byte
	name := ""
	for _, line := range lines[1:] {
		line = bytes.TrimRight(line, "\r")
		if n, value, ok := fieldLine(trimBlanks(line)); ok {
			if name = n; n == "MESSAGE" {
				message = [][]byte{value}
			} else {
				p.field(n, string(value))
			}
			continue
		}
		if name == "MESSAGE" {
			message = append(message, line)
		}
	}
	if len(message) == 0 {
		p.Message = nil
		return
	}
	text := message[0]
	if len(message) > 1 {
		text = s.join(make([]byte, 0, len(raw)), message, joining{lead: len("    MESSAGE=")})
	}
	p.layers = 1
	p.peel(text)
}

// fieldLine parses NAME=value of a journal field.
func fieldLine(b []byte) (name string, value []byte, ok bool) {
	n := bytes.IndexByte(b[:min(len(b), 65)], '=')
	if n < 1 || !fieldName(b[:n]) {
		return "", nil, false
	}
	return string(b[:n]), b[n+1:], true
}

// fieldName reports whether b may be the name of a field: capitals, digits and underscores, 64 at most.
func fieldName(b []byte) bool {
	if len(b) == 0 || len(b) > 64 || digit(b[0]) {
		return false
	}
	for _, c := range b {
		if c != '_' && (c < 'A' || c > 'Z') && !digit(c) {
			return false
		}
	}
	return true
}
