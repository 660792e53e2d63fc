package kubelet

import (
	"strings"
	"unicode"

	"github.com/kdiag/kdiag/crictl"
)

// maxText bounds, in runes, a text of another party that is kept.
const maxText = 300

// oneLine makes a text of another party fit to be kept: one line, nothing invisible, bounded.
func oneLine(s string) string {
	s = crictl.Shorten(s, maxText)
	visible := func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if !unicode.IsGraphic(r) {
			return -1
		}
		return r
	}
	return strings.Join(strings.Fields(strings.Map(visible, strings.ToValidUTF8(s, "?"))), " ")
}
