package textlog

import (
	"bytes"
	"strconv"

	"github.com/kdiag/kdiag/journal/klog"
)

func caller(file string, line int) string { return file + ":" + strconv.Itoa(line) }

// parsePriority parses "<30>" of syslog.
func parsePriority(b []byte) (rest []byte, pri int, ok bool) {
	if len(b) < 4 || b[0] != '<' {
		return nil, 0, false
	}
	pri, rest, ok = number(b[1:])
	if !ok || pri > 191 || len(rest) < 2 || rest[0] != '>' {
		return nil, 0, false
	}
	return rest[1:], pri, true
}

// rfc5424 parses the header of RFC 5424 behind its version: stamp, host, program, process, message id and structured data.
func rfc5424(b []byte) (s klog.Stamp, by sender, msg []byte) {
	var f [5]string
	for i := range f {
		word, rest := cut(b)
		if string(word) != "-" {
			f[i] = string(word)
		}
		b = rest
	}
	s, _, _ = klog.ParseISO([]byte(f[0]))
	by = sender{host: f[1], identifier: f[2]}
	by.pid, _ = strconv.Atoi(f[3])
	if b = trimBlanks(b); len(b) > 0 && b[0] == '-' {
		b = b[1:]
	}
	for len(b) > 0 && b[0] == '[' {
		b = b[elementLength(b):]
	}
	return s, by, bytes.TrimPrefix(trimBlanks(b), []byte("\xef\xbb\xbf"))
}

// elementLength returns the length of an element of structured data, [id name="value" ...].
func elementLength(b []byte) int {
	quoted := false
	for i := 0; i < len(b); i++ {
		switch {
		case b[i] == '\\':
			i++
		case b[i] == '"':
			quoted = !quoted
		case b[i] == ']' && !quoted:
			return i + 1
		}
	}
	return len(b)
}

// parseCRI parses what follows the stamp of a container's log: " stderr F message"; P marks a part of a line.
func parseCRI(b []byte) (stream string, partial bool, msg []byte, ok bool) {
	if len(b) < 10 || b[0] != ' ' || b[1] != 's' {
		return "", false, nil, false
	}
	word, rest := cut(b[1:])
	stream = string(word)
	if stream != "stdout" && stream != "stderr" || len(rest) == 0 || (rest[0] != 'F' && rest[0] != 'P') {
		return "", false, nil, false
	}
	n := bytes.IndexByte(rest[:min(len(rest), 40)], ' ')
	if n < 0 {
		return stream, rest[0] == 'P', nil, len(rest) == 1
	}
	if n > 1 && rest[1] != ':' {
		return "", false, nil, false
	}
	return stream, rest[0] == 'P', rest[n+1:], true
}

// parseNode parses "192.168.231.8: " before a record of a program, as talosctl writes it.
func parseNode(b []byte) (host string, rest []byte, ok bool) {
	n := bytes.Index(b[:min(len(b), 120)], []byte(": "))
	if n < 1 || bytes.ContainsAny(b[:n], " \t\"={}[]()<>,;") {
		return "", nil, false
	}
	rest = trimBlanks(b[n+2:])
	if known(rest) {
		return string(b[:n]), rest, true
	}
	if _, _, ok := parseFacility(rest); ok {
		return string(b[:n]), rest, true
	}
	return "", nil, false
}

// parseFacility parses "kern  :info  : " before the bracket of dmesg -x and talosctl dmesg.
func parseFacility(b []byte) (severity byte, rest []byte, ok bool) {
	facility, after, ok := bytes.Cut(b[:min(len(b), 40)], []byte(":"))
	level, after, ok2 := bytes.Cut(after, []byte(":"))
	if !ok || !ok2 || len(after) == 0 {
		return 0, nil, false
	}
	switch string(bytes.TrimSpace(facility)) {
	case "kern", "user", "daemon", "syslog", "auth", "authpriv", "cron", "mail":
	default:
		return 0, nil, false
	}
	rest = trimBlanks(b[len(facility)+len(level)+2:])
	if len(rest) == 0 || rest[0] != '[' {
		return 0, nil, false
	}
	return klog.SeverityOf(string(bytes.TrimSpace(level))), rest, true
}

// bracketISO parses "[2023-07-03T19:59:01.123Z]: " of talosctl dmesg, and the same without the colon.
func bracketISO(b []byte) (s klog.Stamp, rest []byte, ok bool) {
	if len(b) < 22 || b[0] != '[' {
		return s, nil, false
	}
	s, rest, ok = klog.ParseISO(b[1:])
	if !ok || len(rest) == 0 || rest[0] != ']' {
		return s, nil, false
	}
	return s, trimBlanks(bytes.TrimPrefix(rest[1:], []byte(":"))), true
}
