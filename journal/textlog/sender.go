package textlog

import (
	"bytes"

	"github.com/kdiag/kdiag/journal/klog"
)

// A sender is what stands between a transport's stamp and the message.
type sender struct {
	host, identifier string
	pid              int
}

// parseSender parses "host identifier[pid]: ", without the host or the pid if they are missing, and LogDNA's "host file "
// before a klog header. sure is false if b may as well be the message itself.
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
	if i := bytes.Index(rest[:min(len(rest), 120)], []byte(": ")); i > 0 || bytes.HasSuffix(rest[:min(len(rest), 120)], []byte(":")) {
		if i < 0 {
			i = min(len(rest), 120) - 1
		}
		if name, pid, ok := identifier(rest[:i+1]); ok {
			return sender{host, name, pid}, bytes.TrimPrefix(rest[i+1:], []byte(" ")), true
		}
	}
	if i := bytes.IndexByte(rest, ' '); i > 0 && i < 100 && known(trimBlanks(rest[i:])) {
		return sender{host: host, identifier: string(bytes.TrimSuffix(rest[:i], []byte(":")))}, trimBlanks(rest[i:]), true
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
	rest := bytes.TrimLeft(b[1:], " \t")
	return len(rest) > 2 && rest[0] == '"' && (letter(rest[1]) || rest[1] == '_' || rest[1] == '@') &&
		bytes.IndexByte(rest[1:min(len(rest), 80)], '"') > 0
}

func letter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
