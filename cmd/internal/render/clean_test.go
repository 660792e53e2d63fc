package render

import (
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"
)

func TestClean(t *testing.T) {
	tests := []struct {
		name, in, want, ascii string
	}{
		{"plain", "a b  c", "a b  c", "a b  c"},
		{"escape sequence", "\x1b[31mred\x07", `\x1b[31mred\x07`, `\x1b[31mred\x07`},
		{"line ends", "a\r\n\tb\x7f", `a\x0d\x0a\x09b\x7f`, `a\x0d\x0a\x09b\x7f`},
		{"C1 control", "a\u009b31m", `a\u009b31m`, `a\u009b31m`},
		{"bidi override", "a\u202eb\u2066", `a\u202eb\u2066`, `a\u202eb\u2066`},
		{"invisible", "a\u200b\ufeff\U000e0041", `a\u200b\ufeff\U000e0041`, `a\u200b\ufeff\U000e0041`},
		{"unusual spaces", "a\u00a0b\u2028", `a\u00a0b\u2028`, `a\u00a0b\u2028`},
		{"not UTF-8", "a\xff\xc3", `a\xff\xc3`, `a\xff\xc3`},
		{"letters", "Prüfung 検査", "Prüfung 検査", `Pr\u00fcfung \u691c\u67fb`},
		{"pile of marks", "e\u0301\u0301\u0301", "e\u0301\u0301\\u0301", `e\u0301\u0301\u0301`},
		{"wide by selector", "\u2764\ufe0f", "\u2764\\ufe0f", `\u2764\ufe0f`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := []string{cleaner{}.clean(tt.in), cleaner{ascii: true}.clean(tt.in)}
			if diff := cmp.Diff([]string{tt.want, tt.ascii}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestProse(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	got := cleaner{}.prose("  took\n 5.0 s,\tnot 12 ms; 3 seconds\u00a0later\x1b " + id + " " + id + "0")
	want := "took 5.0" + glue + "s, not 12" + glue + `ms; 3 seconds later\x1b 0123456789abc ` + id + "0"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// FuzzFill checks that no line is too wide, and that nothing is lost but spaces.
func FuzzFill(f *testing.F) {
	f.Add("a few words of prose", 5, 3, 20)
	f.Add(strings.Repeat("x", 200)+" y", 38, 2, 40)
	f.Add("検査検査検査検査 検査", 0, 39, 40)
	f.Add("e\u0301\u0301 \U0001f1e9\U0001f1ea\U0001f1e9 \u1112\u1161\u11ab", 10, 10, 41)
	f.Add("", 0, 0, 40)
	f.Fuzz(func(t *testing.T, text string, used, hang, width int) {
		if width < minWidth || width > 200 || used < 0 || used > width || hang < 0 || hang > width-4 {
			return
		}
		text = cleaner{}.prose(text)
		lines := fill(text, used, hang, width)
		for i, line := range lines {
			start := hang
			if i == 0 {
				start = used
			}
			if n := ansi.StringWidth(line); line != "" && start+n > width {
				t.Errorf("line %d starts at column %d and has %d, more than %d: %q", i, start, n, width, line)
			}
		}
		squeeze := func(s string) string { return strings.ReplaceAll(s, " ", "") }
		if got := squeeze(strings.Join(lines, "")); got != squeeze(text) {
			t.Errorf("%q became %q", text, lines)
		}
	})
}
