package kubelet

import (
	"strings"
	"testing"
)

func TestOneLine(t *testing.T) {
	for text, want := range map[string]string{
		"a\n b\tc ": "a b c", "\x1b[31mred\x00": "[31mred", "\xff": "?", "right\u202eleft": "rightleft",
		strings.Repeat("x", maxText+9): strings.Repeat("x", 149) + "..." + strings.Repeat("x", 148),
	} {
		equal(t, want, oneLine(text))
		equal(t, want, oneLine(oneLine(text)))
	}
}
