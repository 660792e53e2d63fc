package render

import (
	"strings"
	"unicode/utf8"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/plegbench"
)

// A briefLine fits text into one line of at most width columns and as many bytes, because the node problem detector
// counts those.
type briefLine struct {
	cleaner
	width int
}

// leastSummary is the fewest columns for which it is worth to begin a summary.
const leastSummary = 20

// ellipsis stands for what was cut; ASCII, because it must not cost three bytes.
const ellipsis = "..."

// fits reports whether a clean string has room.
func (m briefLine) fits(s string) bool {
	s = strings.ReplaceAll(s, glue, " ")
	return len(s) <= m.width && columns(s) <= m.width
}

// cut shortens s at the end of a word where one is near, and says so with an ellipsis.
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
func (m briefLine) middle(s string, width int) string {
	if (briefLine{width: width}).fits(s) {
		return s
	}
	most := max(width-len(ellipsis), 2)
	front, _ := head(s, most-most/2, most-most/2)
	return front + ellipsis + tail(s, most/2)
}

// tail returns as much of the end of s as has room.
func tail(s string, width int) string {
	m := briefLine{width: width}
	// What is longer than width bytes has no room; so a long string is not measured again and again.
	s = s[max(0, len(s)-width):]
	for i := range len(s) {
		if utf8.RuneStart(s[i]) && m.fits(s[i:]) {
			return s[i:]
		}
	}
	return ""
}

func (m briefLine) report(r *checks.Report) string {
	return m.line(r.Status, r.Causes, r.Problems, m.fine(fineNode, r.Host, r.Relist))
}

func (m briefLine) probe(r *checks.RuntimeProbe) string {
	fine := m.prose(r.Host+" "+r.Runtime.Name+" "+r.Runtime.Version) + ": " + plural(len(r.RPCs), "RPC") + " asked"
	return m.line(r.Status, r.Causes, r.Problems, fine)
}

func (m briefLine) benchmark(r *checks.RelistBenchmark) string {
	return m.line(r.Status, r.Causes, r.Problems, m.fine(fineRuntime, r.Host, r.Relist))
}

// fine says of a healthy node what a relist takes.
func (m briefLine) fine(found, host string, s *plegbench.Summary) string {
	return strings.TrimSpace(m.middle(m.prose(host), 24) + " " + fineRelist(found, s))
}

// line puts a verdict and its first cause into one line. Verdict, code and culprit are never cut away: what is left of
// the room goes to the summary, as far as it says more.
func (m briefLine) line(v checks.Verdict, causes []checks.Cause, problems []string, fine string) string {
	word := verdictWord(m.cleaner, v)
	if len(causes) == 0 {
		return m.cut(word + " " + sentence(m.cleaner, v, nil, problems, fine))
	}
	c := causes[0]
	start := m.middle(word, 12) + " " + m.middle(m.prose(c.Code), 24)
	more := ""
	if len(causes) > 1 {
		more = " (+" + count(len(causes)-1) + ")"
	}
	rest := briefLine{m.cleaner, m.width - len(more)}
	summary := m.prose(c.Summary)
	if short := rest.cut(start + ": " + summary); m.names(short, c.Subject) {
		return short + more
	}
	line := start + " " + m.middle(m.culprit(c.Subject), rest.width-len(start)-1)
	if rest.width-len(line) >= leastSummary {
		line = rest.cut(line + ": " + summary)
	}
	return m.cut(line + more)
}

// names reports whether a line says who the culprit is; without one, every line does.
func (m briefLine) names(line string, s *checks.Subject) bool {
	if s == nil {
		return true
	}
	pod, name := podName(m.cleaner, *s), m.prose(s.Name)
	if pod == "" && name == "" {
		return strings.Contains(line, shortID(m.prose(s.ID)))
	}
	return strings.Contains(line, pod) && strings.Contains(line, name)
}

// culprit names a subject in the fewest characters by which it can be found.
func (m briefLine) culprit(s *checks.Subject) string {
	if s == nil {
		return ""
	}
	pod := podName(m.cleaner, *s)
	name := m.prose(s.Name)
	switch {
	case pod != "" && name != "" && s.Name != s.Pod:
		return pod + "/" + name
	case pod != "":
		return pod
	case name != "":
		return name
	}
	return shortID(m.prose(s.ID))
}
