package render

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"github.com/kdiag/kdiag/internal/lazyregexp"
)

// glue is a space at which no line is broken, as between a number and its unit. It is printed as a space. Strings from
// outside cannot contain it: clean escapes it.
const glue = "\u00a0"

// maxMarks is how many combining marks may follow one another; a pile of them paints over the lines around it.
const maxMarks = 2

// A cleaner makes strings from a runtime or from the host safe to print.
type cleaner struct {
	ascii bool // escape all that is not ASCII
	lines bool // keep line ends
}

// clean returns s with everything that a terminal could act on, or that hides or turns text around, shown as an escape
// such as \x1b or \u202e: control and format characters, unusual spaces, bytes that are not UTF-8.
func (c cleaner) clean(s string) string {
	var b strings.Builder
	marks := 0
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if unicode.Is(unicode.M, r) {
			marks++
		} else {
			marks = 0
		}
		switch {
		case r == utf8.RuneError && size == 1, r < utf8.RuneSelf && !c.keeps(r):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case c.keeps(r) && marks <= maxMarks:
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		i += size
	}
	return b.String()
}

// hexID matches the ids of containers and sandboxes.
var hexID = lazyregexp.New(`\b[0-9a-f]{64}\b`)

// shortIDs cuts ids to the 13 characters that crictl prints, and which it understands.
func shortIDs(s string) string {
	const shown = 13
	return hexID.ReplaceAllStringFunc(s, func(id string) string { return id[:shown] })
}

// prose cleans s and joins its lines and words with single spaces. A unit is glued to its number, and ids are short.
func (c cleaner) prose(s string) string {
	var b strings.Builder
	last := byte(0)
	for _, word := range strings.Fields(s) {
		word = c.clean(word)
		switch {
		case last == 0:
		case last >= '0' && last <= '9' && isUnit(word):
			b.WriteString(glue)
		default:
			b.WriteByte(' ')
		}
		b.WriteString(word)
		last = word[len(word)-1]
	}
	return shortIDs(b.String())
}

// maxPrintable is enough for a path and what is wrong with it, and little of a file that is no scenario, in columns.
const maxPrintable = 300

// Printable returns what may hold anything a person, a file or a log gave in one line in which nothing acts on a
// terminal.
func Printable(s string) string { return briefLine{width: maxPrintable}.cut(cleaner{}.prose(s)) }

// isUnit reports whether a word belongs to the number before it.
func isUnit(word string) bool {
	return slices.Contains([]string{"us", "ms", "s", "B", "KiB", "MiB", "GiB"}, strings.TrimRight(word, ".,;:)"))
}

func (c cleaner) keeps(r rune) bool {
	if c.lines && r == '\n' {
		return true
	}
	return harmless(r) && (r < 0x7f || !c.ascii)
}

// harmless reports whether r is a letter, mark, number, symbol or plain space, and nothing else. Variation selectors
// are not: they change how wide the character before them is.
func harmless(r rune) bool {
	return unicode.IsPrint(r) && !unicode.Is(unicode.Variation_Selector, r)
}

// columns returns how many columns a clean string takes. It adds up single characters, so that a string is never
// wider than its parts together.
func columns(s string) int {
	n := 0
	for _, r := range s {
		n += runeColumns(r)
	}
	return n
}

func runeColumns(r rune) int {
	if r < 0x7f || string(r) == glue {
		return 1
	}
	return ansi.StringWidth(string(r))
}

// head returns as much of a clean string as fits into width columns and size bytes, and the rest.
func head(s string, width, size int) (string, string) {
	n := 0
	for i, r := range s {
		n += runeColumns(r)
		if n > width || i+utf8.RuneLen(r) > size {
			return s[:i], s[i:]
		}
	}
	return s, ""
}

// A briefLine fits text into one line of at most width columns and as many bytes, because the node problem detector
// counts those.
type briefLine struct {
	cleaner
	width int
}

// The least that is worth beginning a summary for, and the most of a name, in columns.
const (
	leastSummary = 20
	mostName     = 24
)

// unsure is the confidence below which a cause is shown with it: others are more likely than this one.
const unsure = 0.5

// ellipsis stands for what was cut; ASCII, because it must not cost three bytes.
const ellipsis = "..."

// fits reports whether a clean string has room.
func (m briefLine) fits(s string) bool {
	s = strings.ReplaceAll(s, glue, " ")
	return len(s) <= m.width && columns(s) <= m.width
}

// cut shortens s at the end of a word where one is near, and marks that with an ellipsis.
func (m briefLine) cut(s string) string {
	s = strings.TrimSpace(strings.ReplaceAll(s, glue, " "))
	if m.fits(s) {
		return s
	}
	most := max(m.width-len(ellipsis), 0)
	part, _ := head(s, most, most)
	if i := strings.LastIndexByte(part, ' '); i > most-16 {
		part = part[:i]
	}
	return strings.TrimRight(part, " ,;:") + ellipsis
}

// reason shortens a sentence that may end with an error of Go, of which the last part says why: that part stays.
func (m briefLine) reason(s string) string {
	i := strings.LastIndex(s, ": ")
	if m.fits(s) || i < 0 || m.width-(len(s)-i) < max(leastSummary, m.width/2) {
		return m.cut(s)
	}
	return m.cut(briefLine{m.cleaner, m.width - (len(s) - i)}.cut(s[:i]) + s[i:])
}

// middle shortens s to width by leaving out its middle: names differ at both ends.
func middle(s string, width int) string {
	if (briefLine{width: width}).fits(s) {
		return s
	}
	most := max(width-len(ellipsis), 2)
	front, _ := head(s, most-most/2, most-most/2)
	rest := briefLine{width: most / 2}
	back := s[max(0, len(s)-rest.width):] // what is longer in bytes has no room
	for !utf8.ValidString(back) || !rest.fits(back) {
		back = back[1:]
	}
	return front + ellipsis + back
}
