package crictl

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// errLimit is how much of an error text is kept, in runes. A runtime may put a whole specification into one.
const errLimit = 400

// printable returns s fit for a terminal: control and other invisible characters, and bytes that are not UTF-8, as
// backslash escapes, and at most limit runes of the original, with an ellipsis where it was cut.
func printable(s string, limit int) string {
	var b strings.Builder
	for n := 0; len(s) > 0; n++ {
		if n == limit {
			b.WriteString("…")
			break
		}
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
