package render

import (
	"io"

	"github.com/charmbracelet/lipgloss"
	"github.com/muesli/termenv"

	"github.com/kdiag/kdiag/checks"
)

// Inks are the few styles of the text. Colours are the terminal's own, so that they suit its background.
type inks struct {
	bold, command                lipgloss.Style
	good, warn, bad              lipgloss.Style
	goodV, warnV, badV, unknownV lipgloss.Style // of verdicts: in bold
}

// newInks binds the styles to a renderer of their own. Its profile is forced: whether to use colour is the caller's
// decision, not that of the environment.
func newInks(w io.Writer, color bool) inks {
	r := lipgloss.NewRenderer(w, termenv.WithProfile(termenv.Ascii))
	r.SetColorProfile(termenv.Ascii)
	if color {
		r.SetColorProfile(termenv.ANSI)
	}
	ink := func(c string) lipgloss.Style { return r.NewStyle().Foreground(lipgloss.Color(c)) }
	const red, green, yellow, magenta, cyan = "1", "2", "3", "5", "6"
	return inks{
		bold: r.NewStyle().Bold(true), command: ink(cyan),
		good: ink(green), warn: ink(yellow), bad: ink(red),
		goodV: ink(green).Bold(true), warnV: ink(yellow).Bold(true),
		badV: ink(red).Bold(true), unknownV: ink(magenta).Bold(true),
	}
}

func (i inks) verdict(v checks.Verdict) lipgloss.Style {
	switch v {
	case checks.Healthy:
		return i.goodV
	case checks.Degraded:
		return i.warnV
	case checks.Unhealthy:
		return i.badV
	}
	return i.unknownV
}

func (i inks) severity(s checks.Severity) lipgloss.Style {
	if s == checks.Critical {
		return i.bad
	}
	return i.warn
}

func (i inks) status(s checks.Status) *lipgloss.Style {
	switch s {
	case checks.StatusOK:
		return &i.good
	case checks.StatusWarning:
		return &i.warn
	case checks.StatusCritical:
		return &i.bad
	}
	return nil
}

// Glyphs are the characters that pictures are made of. Those of the first set, the series' levels apart, are also in
// the fonts of plain consoles.
type glyphs struct {
	full, half string // of a bar
	track      string // what a bar leaves empty below its limit
	mark       string // the limit
	over       string // of a bar beyond its limit
	more       string // a bar that goes on beyond the picture
	levels     []rune // of a series, from low to high
	lost       rune   // a sample without an answer
	rise       string // between before and after
}

func newGlyphs(ascii bool) glyphs {
	if ascii {
		return glyphs{
			full: "#", half: "-", track: ".", mark: "|", over: "!", more: ">",
			levels: []rune("_.:-=+*#"), lost: 'x', rise: "->",
		}
	}
	return glyphs{
		full: "█", half: "▌", track: "·", mark: "│", over: "▓", more: ">",
		levels: []rune("▁▂▃▄▅▆▇█"), lost: '×', rise: "→",
	}
}
