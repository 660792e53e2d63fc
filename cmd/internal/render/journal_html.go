package render

import (
	"cmp"
	_ "embed" // for the head of the page
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal"
)

// journalHead is the beginning of the page, up to its title.
//
//go:embed journal_head.html
var journalHead string

// JournalHTML writes a report as one page of HTML that needs nothing else: no script, no font, no picture from
// elsewhere.
func JournalHTML(w io.Writer, r *journal.Report) error {
	const most = 200
	return writePage(w, checks.Header{
		Command: "kdiag journal", Host: r.Host, KdiagVersion: r.KdiagVersion, GeneratedAt: r.GeneratedAt,
	}, func(h *htmlPage) {
		(&journalDoc{h, h.cleaner, calendarOf(r), r, most, most, most, true}).write()
	})
}

// writePage writes the page of a document.
func writePage(w io.Writer, doc checks.Header, body func(*htmlPage)) error {
	h := &htmlPage{command: doc.Command}
	h.WriteString(journalHead)
	h.raw("<title>%s: %s</title>\n</head>\n<body>\n", doc.Command, h.prose(doc.Host))
	body(h)
	h.raw("<footer>%s %s, %s</footer>\n</body>\n</html>\n", doc.Command, h.prose(doc.KdiagVersion),
		doc.GeneratedAt.UTC().Format("2006-01-02 15:04:05 UTC"))
	_, err := io.WriteString(w, h.String())
	return err
}

// An htmlPage is a page of HTML in the making.
type htmlPage struct {
	cleaner
	strings.Builder
	command string // that makes it
}

// raw writes markup; strings among the arguments are escaped.
func (h *htmlPage) raw(markup string, args ...any) {
	for i, a := range args {
		if s, ok := a.(string); ok {
			args[i] = html.EscapeString(s)
		}
	}
	fmt.Fprintf(h, markup, args...)
}

func (h *htmlPage) headline(word span, host string, sentences ...string) {
	h.raw("<h1><span class=\"state %s\">%s</span>%s</h1>\n", word.ink, word.text, h.prose(host))
	for _, s := range sentences {
		h.raw("<p>%s</p>\n", s)
	}
}

func (h *htmlPage) heading(title string, more ...span) {
	h.raw("<h2>%s", title)
	for _, s := range more {
		h.raw(" <small class=\"%s\">%s</small>", s.ink, s.text)
	}
	h.raw("</h2>\n")
}

func (h *htmlPage) pair(label, text string) {
	if text != "" {
		h.raw("<p><small>%s</small> %s</p>\n", label, text)
	}
}

func (h *htmlPage) list(title string, sign span, lines []string, most int) {
	if len(lines) == 0 {
		return
	}
	if title != "" {
		h.heading(title)
	}
	h.raw("<ul>\n")
	for _, s := range lines[:min(len(lines), most)] {
		h.raw("<li><b class=\"%s\">%s</b> %s</li>\n", sign.ink, sign.text, h.prose(s))
	}
	h.raw("</ul>\n")
	h.more(len(lines) - most)
}

func (h *htmlPage) more(n int) {
	if n > 0 {
		h.raw("<p>and %s more; %s -o json has all</p>\n", units.Number(n), h.command)
	}
}

func (h *htmlPage) section(title string, t table, all int) {
	if len(t.rows) == 0 {
		return
	}
	h.heading(title)
	h.raw("<table>\n")
	if t.head != nil {
		h.raw("<thead><tr>")
		for _, name := range t.head {
			h.raw("<th>%s</th>", name)
		}
		h.raw("</tr></thead>\n")
	}
	for _, row := range t.rows {
		h.raw("<tr>")
		for i, c := range row {
			h.raw("<td class=\"%s\"", c.ink)
			if t.head != nil && t.head[i] != "" {
				h.raw(" title=\"%s\"", t.head[i]) // shown where the screen is too narrow for the head
			}
			h.raw(">%s</td>", c.text)
		}
		h.raw("</tr>\n")
	}
	h.raw("</table>\n")
	h.more(all - len(t.rows))
}

func (h *htmlPage) step(_ int, s checks.NextStep) {
	h.raw("<p>%s</p><pre>%s</pre>\n", h.prose(s.Why), h.clean(s.Command))
}

func (h *htmlPage) sign(name string) span {
	s := signOf(name)
	return span{string(s.char), s.ink}
}

// The measures of a picture, in its own units; it is scaled to the width of the page. There is one for a window, and
// one for a telephone.
const (
	svgWidth  = 1000
	svgNarrow = 360

	svgRight = 16 // room for what goes on beyond
	svgLane  = 24
	svgChar  = 7 // columns of the axis' labels
)

// picture draws a timeline: an axis, one lane under the other, and what the signs mean.
func (h *htmlPage) picture(t timeline, c calendar) {
	h.raw("<figure>")
	h.drawing(t, c, "wide", svgWidth)
	used := h.drawing(t, c, "narrow", svgNarrow)
	h.raw("<figcaption>")
	for _, s := range signs() {
		if m, ok := used[s.name]; ok && s.text != "" {
			if m.broad && (m.to.After(m.from) || s.level > 0) {
				h.legend("swatch "+string(s.ink), "", s.text)
			} else {
				h.legend(string(s.ink), string(s.char), s.text)
			}
		}
	}
	if slices.ContainsFunc(t.marks, func(m mark) bool { return m.lane == laneRelist && m.sign.ink == info }) {
		h.legend("swatch info", "", "a relist: the higher, the longer")
	}
	h.raw("</figcaption></figure>\n")
}

// legend writes what a sign means.
func (h *htmlPage) legend(class, char, text string) {
	h.raw("<span class=\"key\"><span class=\"%s\">%s</span> %s</span> ", class, char, text)
}

// drawing draws a timeline so wide, and returns a mark of each sign that it holds.
func (h *htmlPage) drawing(t timeline, c calendar, class string, width int) (used map[string]mark) {
	svgLeft := float64(svgChar*t.laneWidth() - 5) // what the names of the lanes take
	wide := float64(width) - svgLeft - svgRight
	height := svgLane * (1 + len(t.lanes))
	tenth := func(v float64) float64 { return math.Round(10*v) / 10 }
	h.raw("<svg class=\"%s\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"timeline\">\n", class, width, height)
	for _, tick := range c.ticks(t.from, t.to, int(wide/svgChar)) {
		x := tenth(svgLeft + t.at(tick.at, wide))
		h.raw("<line x1=\"%g\" x2=\"%g\" y1=\"18\" y2=\"%d\"/><text x=\"%g\" y=\"13\">%s</text>\n", x, x, height,
			min(x, float64(width-8*svgChar)), tick.label)
	}
	used = map[string]mark{}
	for i, lane := range t.lanes {
		y := svgLane * (i + 1)
		h.raw("<text x=\"0\" y=\"%d\">%s</text>\n", y+16, lane)
		for _, m := range slices.Backward(t.of(lane)) {
			if old := used[m.sign.name]; !old.to.After(old.from) {
				used[m.sign.name] = m
			}
			title := h.prose(m.title) + ", " + c.span(&m.from, &m.to)
			if m.number > 0 {
				title = "#" + units.Number(m.number) + " " + title
			}
			x, length := tenth(svgLeft+t.at(m.from, wide)), tenth(t.at(m.to, wide)-t.at(m.from, wide))
			if m.broad && (length > 0 || m.sign.level > 0) {
				high := 18 * cmp.Or(m.sign.level, levels) / levels
				h.raw("<rect class=\"%s\" x=\"%g\" y=\"%d\" width=\"%g\" height=\"%d\"><title>%s</title></rect>\n",
					m.sign.ink, x, y+21-high, max(length, 3), high, title)
				continue
			}
			if length > 0 {
				h.raw("<rect class=\"burst %s\" x=\"%g\" y=\"%d\" width=\"%g\" height=\"6\"><title>%s</title></rect>\n",
					m.sign.ink, x, y+9, length, title)
			}
			h.raw("<text class=\"%s\" x=\"%g\" y=\"%d\">%s<title>%s</title></text>\n", m.sign.ink, x-4, y+16,
				string(m.sign.char), title)
		}
	}
	h.raw("</svg>\n")
	return used
}
