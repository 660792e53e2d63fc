package textlog

import (
	"bytes"
	"html"
	"regexp"
	"strings"
)

// octalEscape is how rsyslog writes the first two bytes of a colour code.
const octalEscape = "#033["

// controls matches the control sequences of a terminal: as a terminal gets them, or a colour code or the erasing of a
// line with the escape character written as \x1b, \033, \u001b or \e, with any number of backslashes, or #033.
var controls = regexp.MustCompile(`\x1b(?:[\[\]][^@-~\x07\n]*[@-~\x07\n]?|[^\[\]]?)` +
	`|(?:#033|\\+(?:x1[bB]|033|u001[bB]|e))\[[0-9;]*[mK]`)

// coloured reports whether b may have control sequences.
func coloured(b []byte) bool {
	if bytes.IndexByte(b, 0x1b) >= 0 || bytes.Contains(b, []byte(octalEscape)) {
		return true
	}
	n := bytes.IndexByte(b, '\\')
	if n < 0 {
		return false
	}
	for _, name := range [...]string{"x1b[", "x1B[", "033[", "u001b[", "u001B[", "e["} {
		if bytes.Contains(b[n:], []byte(name)) {
			return true
		}
	}
	return false
}

// stripColour returns b without control sequences: b itself if it has none.
func stripColour(b []byte) []byte {
	if !coloured(b) {
		return b
	}
	return controls.ReplaceAll(b, nil)
}

// unmarked returns a text of the source of a web page as the page shows it: all its quotes are entities.
func unmarked(b []byte) []byte {
	if bytes.IndexByte(b, '&') < 0 || bytes.IndexByte(b, '"') >= 0 {
		return b
	}
	if page := html.UnescapeString(string(b)); strings.Contains(page, `"`) {
		return []byte(page)
	}
	return b
}
