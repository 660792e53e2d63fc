package crictl

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// errLimit is how much of an error text is kept, in runes. A runtime may put a whole specification into one.
const errLimit = 400

// Shorten returns s, or where it has more than most runes its beginning and its end with an ellipsis between: an error
// begins with what was tried and ends with the reason, and what is long are the paths and ids in the middle.
func Shorten(s string, most int) string {
	const ellipsis = "..."
	if len(s) <= most || utf8.RuneCountInString(s) <= most {
		return s
	}
	keep := max(most-len(ellipsis), 0)
	begin, end := 0, len(s)
	for range keep - keep/2 {
		_, size := utf8.DecodeRuneInString(s[begin:])
		begin += size
	}
	for range keep / 2 {
		_, size := utf8.DecodeLastRuneInString(s[:end])
		end -= size
	}
	return s[:begin] + ellipsis + s[end:]
}

// printable returns s fit for a terminal: control and other invisible characters, and bytes that are not UTF-8, as
// backslash escapes, and at most limit runes of the original.
func printable(s string, limit int) string {
	var b strings.Builder
	s = Shorten(s, limit)
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			b.WriteString(`\x`)
			b.WriteString(strconv.FormatUint(uint64(s[0])|0x100, 16)[1:])
		case !unicode.IsGraphic(r):
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
		default:
			b.WriteRune(r)
		}
		s = s[size:]
	}
	return b.String()
}
