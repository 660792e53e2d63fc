package textlog

import (
	"bytes"
	"strings"
)

// octalEscape is how rsyslog writes the first two bytes of a colour code.
const octalEscape = "#033["

// coloured reports whether b may have colour codes: as a terminal gets them, or written with escapes.
func coloured(b []byte) bool {
	if bytes.IndexByte(b, 0x1b) >= 0 || bytes.Contains(b, []byte(octalEscape)) {
		return true
	}
	n := bytes.IndexByte(b, '\\')
	if n < 0 {
		return false
	}
	for _, name := range escapeNames() {
		if bytes.Contains(b[n:], []byte(name)) {
			return true
		}
	}
	return false
}

// escapeNames are the escape character behind a backslash, and the bracket of a code.
func escapeNames() [6]string {
	return [...]string{"x1b[", "x1B[", "033[", "u001b[", "u001B[", "e["}
}

// stripColour appends b to dst without a terminal's control sequences. dst may be b[:0].
func stripColour(dst, b []byte) []byte {
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '#', '\\':
			if n := written(b[i:]); n > 0 {
				i += n - 1
				continue
			}
			if b[i] == '\\' { // it and what it escapes, but not the next escape
				dst = append(dst, b[i])
				if i+1 < len(b) && b[i+1] == '\\' {
					i++
					dst = append(dst, b[i])
				}
				continue
			}
		case 0x1b:
			i = sequence(b, i)
			continue
		}
		dst = append(dst, b[i])
	}
	return dst
}

// sequence returns the last byte of the control sequence at b[i].
func sequence(b []byte, i int) int {
	if i++; i >= len(b) || b[i] != '[' && b[i] != ']' {
		return i
	}
	for i++; i < len(b) && (b[i] < '@' || b[i] > '~') && b[i] != 0x07 && b[i] != '\n'; i++ {
		continue
	}
	return i
}

// written returns the length of a code that is written with an escape at the beginning of b, with all its backslashes, 0 if there is
// none. Of what else control sequences do, logs have but the erasing of a line.
func written(b []byte) int {
	n := 0
	if bytes.HasPrefix(b, []byte(octalEscape)) {
		n = len(octalEscape)
	} else {
		for n < len(b) && b[n] == '\\' {
			n++
		}
		name := ""
		for _, try := range escapeNames() {
			if n > 0 && bytes.HasPrefix(b[n:], []byte(try)) {
				name = try
			}
		}
		if name == "" {
			return 0
		}
		n += len(name)
	}
	for n < len(b) && (digit(b[n]) || b[n] == ';') {
		n++
	}
	if n < len(b) && (b[n] == 'm' || b[n] == 'K') {
		return n + 1
	}
	return 0
}

// unmarked returns a text of a web page's source as the page shows it: all its quotes are entities.
func unmarked(b []byte) []byte {
	if bytes.IndexByte(b, '&') < 0 || bytes.IndexByte(b, '"') >= 0 || !bytes.Contains(b, []byte("&quot;")) && !bytes.Contains(b, []byte("&#34;")) {
		return b
	}
	return []byte(strings.NewReplacer("&quot;", `"`, "&#34;", `"`, "&lt;", "<", "&gt;", ">", "&#39;", "'", "&amp;", "&").Replace(string(b)))
}
