package render

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
)

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

// answer puts a verdict and its first cause into one line. Verdict, code and culprit are never cut away: what is left
// of the room goes to the summary. Of a healthy host it is what was fine.
func (m briefLine) answer(a checks.Answer, fine string) string {
	head, _, causes := a.Answer()
	word := middle(m.verdict(head.Status).text, mostName)
	if len(causes) == 0 {
		fine = strings.TrimSpace(middle(m.prose(head.Host), mostName) + " " + fine)
		return m.cut(word + " " + m.sentence(*head, nil, fine))
	}
	c, more := causes[0], ""
	if len(causes) > 1 {
		more = " (+" + units.Number(len(causes)-1) + ")"
	}
	rest := briefLine{m.cleaner, m.width - len(more)}
	start, summary, culprit := word+" "+middle(m.prose(c.Code), mostName), m.prose(c.Summary), m.culprit(c.Subject)
	if c.Confidence < unsure {
		start += fmt.Sprintf(" (%.2f)", c.Confidence)
	}
	line := rest.cut(start + ": " + summary)
	if slices.ContainsFunc(culprit, func(name string) bool { return !strings.Contains(line, name) }) {
		line = start + " " + middle(strings.Join(culprit, "/"), rest.width-len(start)-1)
		if rest.width-len(line) >= leastSummary {
			line = rest.cut(line + ": " + summary)
		}
	}
	return m.cut(line + more)
}

// culprit returns the fewest names by which a subject can be found: pod and name, or its id.
func (c cleaner) culprit(s *checks.Subject) []string {
	if s == nil {
		return nil
	}
	name, pod := c.prose(s.Name), c.podName(*s)
	if s.Name == s.Pod && pod != "" {
		name = ""
	}
	if name == "" && pod == "" {
		name = c.prose(s.ID)
	}
	return slices.DeleteFunc([]string{pod, name}, func(s string) bool { return s == "" })
}
