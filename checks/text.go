package checks

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/kdiag/kdiag/crictl"
)

// maxText is the most runes of one text from a runtime that a report repeats.
const maxText = 300

// clean makes a text that came from a runtime safe to print: control characters and whatever else does not print
// become escapes such as \u001b, and of long texts the middle is left out.
func clean(s string) string {
	var b strings.Builder
	for _, r := range crictl.Shorten(s, maxText) {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		if r > 0xffff {
			fmt.Fprintf(&b, `\U%08x`, r)
			continue
		}
		fmt.Fprintf(&b, `\u%04x`, r)
	}
	return b.String()
}

// verb picks the verb that agrees with n.
func verb(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
