package textlog

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/kdiag/kdiag/internal/lazyregexp"
	"github.com/kdiag/kdiag/journal/klog"
)

// priority matches "<30>" of syslog.
var priority = lazyregexp.New(`^<(\d{1,3})>.`)

// rfc5424Head matches the header of RFC 5424 behind its version: stamp, host, program, process, message id and
// structured data.
var rfc5424Head = lazyregexp.New(
	`^(\S+) +(\S+) +(\S+) +(\S+) +\S+ +(?:-|(?:\[(?:[^]"]|"(?:[^"\\]|\\.)*")*\])+) *(?:\x{feff})?`)

func rfc5424(b []byte) (s klog.Stamp, by sender, msg []byte) {
	m := rfc5424Head.FindSubmatch(b)
	if m == nil {
		return s, by, b
	}
	s, _, _ = klog.ParseISO(m[1])
	by = sender{host: strings.TrimPrefix(string(m[2]), "-"), identifier: strings.TrimPrefix(string(m[3]), "-")}
	by.pid, _ = strconv.Atoi(string(m[4]))
	return s, by, b[len(m[0]):]
}

// criHead matches the text behind the stamp of a container's log: " stderr F message"; P marks a part of a line.
var criHead = lazyregexp.New(`^ (stdout|stderr)[ \t]+([FP])(?::[^ ]*)?(?: |$)`)

// parseNode parses "192.168.231.8: " before a record of a program, as talosctl writes it.
func parseNode(b []byte) (host string, rest []byte, ok bool) {
	n := bytes.Index(b[:min(len(b), 120)], []byte(": "))
	if n < 1 || bytes.ContainsAny(b[:n], " \t\"={}[]()<>,;") {
		return "", nil, false
	}
	rest = trimBlanks(b[n+2:])
	return string(b[:n]), rest, known(rest)
}

// A sender stands between the stamp of a transport and the message.
type sender struct {
	host, identifier string
	pid              int
}

// parseSender parses "host identifier[pid]: ", without the host or the pid if they are missing, and LogDNA's "host
// file " before a klog header. sure is false if b may as well be the message itself.
func parseSender(b []byte) (s sender, msg []byte, sure bool) {
	if known(b) {
		return s, b, true
	}
	n := bytes.IndexByte(b[:min(len(b), 300)], ' ')
	if n < 0 {
		n = len(b)
	}
	if name, pid, ok := identifier(b[:n]); ok {
		s.identifier, s.pid = name, pid
		rest := trimBlanks(b[n:])
		if pid == 0 && !known(rest) {
			return s, b, true // the word may belong to the message
		}
		return s, rest, true
	}
	if n == 0 || n == len(b) || bytes.ContainsAny(b[:n], "[]{}()=\"'<>,;") || bytes.HasSuffix(b[:n], []byte(":")) {
		return s, b, false
	}
	host, rest := string(b[:n]), trimBlanks(b[n:])
	if known(rest) {
		return sender{host: host}, rest, true
	}
	// An identifier may have blanks in it if a pid follows.
	near := rest[:min(len(rest), 120)]
	if i := bytes.Index(near, []byte(": ")); i > 0 || bytes.HasSuffix(near, []byte(":")) {
		if i < 0 {
			i = len(near) - 1
		}
		if name, pid, ok := identifier(rest[:i+1]); ok {
			return sender{host, name, pid}, bytes.TrimPrefix(rest[i+1:], []byte(" ")), true
		}
	}
	if i := bytes.IndexByte(rest, ' '); i > 0 && i < 100 && known(trimBlanks(rest[i:])) {
		name := string(bytes.TrimSuffix(rest[:i], []byte(":")))
		return sender{host: host, identifier: name}, trimBlanks(rest[i:]), true
	}
	return s, b, false
}

// identifier parses "kubelet[1450]:" or "systemd:".
func identifier(b []byte) (name string, pid int, ok bool) {
	b, ok = bytes.CutSuffix(b, []byte(":"))
	if !ok || len(b) == 0 || len(b) > 100 {
		return "", 0, false
	}
	if open := bytes.LastIndexByte(b, '['); open > 0 && b[len(b)-1] == ']' {
		n, rest, ok := number(b[open+1 : len(b)-1])
		if ok && len(rest) == 0 && !bytes.ContainsAny(b[:open], "\"={}:") {
			return string(b[:open]), n, true
		}
		return "", 0, false
	}
	if bytes.ContainsAny(b, " \t\"={}[]<>,;:") {
		return "", 0, false
	}
	return string(b), 0, true
}

// known reports whether b begins like a record of a program: klog text, JSON, logrus.
func known(b []byte) bool {
	if len(b) < 6 {
		return false
	}
	switch b[0] {
	case 'I', 'W', 'E', 'F':
		return klog.Begins(b)
	case '?':
		return bytes.HasPrefix(b, []byte("??? ")) && klog.Begins(b[4:])
	case '{':
		return jsonBegins(b)
	case 't':
		return bytes.HasPrefix(b, []byte(`time="`))
	}
	return false
}

// jsonBegins reports whether b begins like a JSON object with a member.
func jsonBegins(b []byte) bool {
	rest := bytes.TrimLeft(b[1:], " \t\r\n")
	return len(rest) > 2 && rest[0] == '"' && (letter(rest[1]) || rest[1] == '_' || rest[1] == '@') &&
		bytes.IndexByte(rest[1:min(len(rest), 80)], '"') > 0
}
