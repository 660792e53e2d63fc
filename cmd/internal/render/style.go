package render

import (
	"cmp"
	"io"

	"github.com/charmbracelet/lipgloss"
	"github.com/muesli/termenv"

	"github.com/kdiag/kdiag/checks"
)

// An ink is a style of text. In HTML it is the class of an element.
type ink string

// The inks. A verdict has two: strong, and its colour.
const (
	strong  ink = "strong"
	info    ink = "info" // commands, and states that are neither good nor bad
	good    ink = "good"
	warn    ink = "warn"
	bad     ink = "bad"
	unknown ink = "unknown"
)

// newStyles returns the style of each ink. The colours are the terminal's own 16, so that they suit its background.
// The profile is forced: the caller decides whether to use colour, not the environment.
func newStyles(w io.Writer, color bool) map[ink]lipgloss.Style {
	r := lipgloss.NewRenderer(w, termenv.WithProfile(termenv.Ascii))
	r.SetColorProfile(termenv.Ascii)
	if color {
		r.SetColorProfile(termenv.ANSI)
	}
	styles := map[ink]lipgloss.Style{strong: r.NewStyle().Bold(true)}
	for name, code := range map[ink]string{bad: "1", good: "2", warn: "3", unknown: "5", info: "6"} {
		style := r.NewStyle().Foreground(lipgloss.Color(code))
		styles[name], styles[strongly(name)] = style, style.Bold(true)
	}
	return styles
}

// strongly adds strong to a colour.
func strongly(i ink) ink { return strong + " " + i }

func verdictInk(v checks.Verdict) ink {
	inks := map[checks.Verdict]ink{checks.Healthy: good, checks.Degraded: warn, checks.Unhealthy: bad}
	return strongly(cmp.Or(inks[v], unknown))
}

func severityInk(s checks.Severity) ink { return statusInk(checks.Status(s)) }

func statusInk(s checks.Status) ink {
	return map[checks.Status]ink{checks.StatusOK: good, checks.StatusWarning: warn, checks.StatusCritical: bad}[s]
}

// Glyphs are the characters that pictures are made of. Those of the first set are also in the fonts of plain consoles.
type glyphs struct {
	full, half string // of a bar
	track      string // what a bar leaves empty below its limit
	mark       string // the limit
	over       string // of a bar beyond its limit
	more       string // a bar that goes on beyond the picture
	dot        string // between things in one line
}

func newGlyphs(ascii bool) glyphs {
	if ascii {
		return glyphs{full: "#", half: "-", track: ".", mark: "|", over: "!", more: ">", dot: "|"}
	}
	return glyphs{full: "█", half: "▌", track: "·", mark: "│", over: "▓", more: ">", dot: "·"}
}
