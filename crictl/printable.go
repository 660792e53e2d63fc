package crictl

import (
	"strconv"
	"strings"
)

// errLimit is how much of an error text is kept, in runes. A runtime may put a whole specification into one.
const errLimit = 400

// Shorten returns s, or if it has more than most runes, its beginning and end with an ellipsis between: an error begins
// with the action and ends with the reason; the long paths and ids are in the middle.
func Shorten(s string, most int) string {
	const ellipsis = "..."
	r := []rune(s)
	if len(r) <= most {
		return s
	}
	keep := max(most-len(ellipsis), 0)
	return string(r[:keep-keep/2]) + ellipsis + string(r[len(r)-keep/2:])
}

// printable returns s fit for a terminal: control and other invisible characters, bytes that are not UTF-8, and
// backslashes as backslash escapes, and at most errLimit runes of the original.
func printable(s string) string {
	q := strconv.QuoteToGraphic(Shorten(s, errLimit))
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}
