package render

import (
	_ "embed" // for the head of the page
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal"
)

// journalHead is the beginning of the page, up to its title.
//
//go:embed journal_head.html
var journalHead string

// The most that the page shows of what a report may have without end.
const (
	htmlIncidents = 200
	htmlEvents    = 200
	htmlRows      = 500
)

// PageMark stands at the beginning of each page that JournalHTML writes.
const PageMark = `<meta name="generator" content="kdiag">`

// JournalHTML writes a report as one page of HTML that needs nothing else: no script, no font, no picture from
// elsewhere.
func JournalHTML(w io.Writer, r *journal.Report) error {
	h := &htmlPage{page: newPage(io.Discard, Options{Width: 200})}
	h.journal(r)
	_, err := io.WriteString(w, h.b.String())
	return err
}

// An htmlPage is a page in the making. Text goes through escape, and nothing else does.
type htmlPage struct {
	*page
	b strings.Builder
}

// raw writes markup; args are escaped.
func (h *htmlPage) raw(markup string, args ...any) {
	for i, a := range args {
		if s, ok := a.(string); ok {
			args[i] = html.EscapeString(s)
		}
	}
	fmt.Fprintf(&h.b, markup, args...)
}

// list writes lines below a heading, if there are any.
func (h *htmlPage) list(title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	h.raw("<h2>%s</h2><ul>", title)
	for _, s := range lines {
		h.raw("<li>%s</li>\n", shortIDs(h.prose(s)))
	}
	h.raw("</ul>\n")
}

// class is the class of the page that colours a status.
func class(status string) string {
	switch status {
	case "healthy":
		return "good"
	case "degraded":
		return "warn"
	case "unhealthy":
		return "bad"
	}
	return "unknown"
}

func (h *htmlPage) journal(r *journal.Report) {
	c := calendarOf(r)
	host := h.prose(r.Host)
	title := host
	if host == "" {
		title = "PLEG in the logs"
	}
	h.b.WriteString(journalHead)
	h.raw("<title>kdiag journal: %s</title>\n</head>\n<body>\n", title)
	h.raw("<h1><span class=\"state %s\">%s</span>%s</h1>\n<p>%s.</p>\n", class(r.Status), r.Verdict, title,
		h.journalSentence(r, c))
	if cause := h.causeSentence(r); cause != "" {
		h.raw("<p class=\"cause\">%s.</p>\n", cause)
	}
	if len(r.Findings) > 0 {
		h.raw("<ul>")
		for _, f := range r.Findings {
			h.raw("<li class=\"cause\">%s</li>\n", h.findingLine(f, c))
		}
		h.raw("</ul>\n")
	}
	pictures := timelinesOf(r)
	for i, t := range pictures {
		caption := c.heading(t.from, t.to)
		if i == 0 {
			h.raw("<h2>Timeline</h2>\n")
		} else {
			caption = "Closer: " + caption
		}
		h.raw("<figure><figcaption>%s</figcaption>", caption)
		h.picture(t, c)
		h.raw("</figure>\n")
	}
	told := map[string]bool{}
	if r.Failing != nil {
		h.incident(r, *r.Failing, failingTitle, c, pictures, map[string]bool{})
	}
	incidents := r.Incidents()
	for i, e := range incidents[:min(len(incidents), htmlIncidents)] {
		h.incident(r, e, incidentTitle(i, len(incidents)), c, pictures, told)
	}
	if n := len(incidents) - htmlIncidents; n > 0 {
		h.raw("<p>and %s; kdiag journal -o json has all</p>\n", units.Count(n, "more incident"))
	}
	h.list("Kubelet starts, no incidents", startupLines(ofKind(r, journal.Startup), c))
	h.list("What kdiag could not read", h.unreadLines(r, htmlRows, htmlRows))
	h.signatures(r.Signatures, c)
	h.list("Notes", gatheredNotes(r))
	for i, s := range r.NextSteps {
		if i == 0 {
			h.raw("<h2>Next</h2>\n")
		}
		h.raw("<p>%s</p><pre>%s</pre>\n", h.prose(s.Why), h.clean(s.Command))
	}
	var sources []string
	for _, s := range r.Sources[:min(len(r.Sources), htmlRows)] {
		sources = append(sources, sourceName(s)+": "+h.sourceLine(s, r.Notes, c))
	}
	h.list("Read: "+units.Count(r.Lines, "record")+", "+units.Size(r.Bytes), sources)
	footer := "kdiag journal " + h.prose(r.KdiagVersion)
	if !r.GeneratedAt.IsZero() {
		footer += ", " + clock(r.GeneratedAt)
	}
	h.raw("<footer>%s</footer>\n</body>\n</html>\n", footer)
}

func (h *htmlPage) incident(r *journal.Report, e journal.Episode, title string, c calendar, pictures []timeline,
	told map[string]bool,
) {
	state, color := "recovered", "good"
	switch {
	case e.Kind == journal.Failing:
		state, color = failingState, "bad"
	case !e.Recovered:
		state, color = "no recovery seen", "bad"
	}
	h.raw("<section>\n<h2>%s <span class=\"%s\">%s</span></h2>\n<p>%s</p>\n", title, color, state, incidentWhen(e, c))
	if t, ok := closeUpOf(r, e, pictures); ok {
		h.raw("<figure>")
		h.picture(t, c)
		h.raw("</figure>\n")
	}
	c = c.within(e)
	h.raw("<dl>")
	for _, f := range h.incidentFacts(r, e, c, htmlRows) {
		if f.Text != "" {
			h.raw("<dt>%s</dt><dd>%s</dd>\n", f.Name, f.Text)
		}
	}
	h.raw("</dl>\n")
	events := eventsAround(r, e)
	if len(events) > 0 {
		h.raw("<h3>What happened</h3>\n<table>")
		for _, ev := range thin(events, htmlEvents) {
			h.raw("<tr><td class=\"time\">%s</td><td>%s</td><td class=\"%s\">%s</td><td>%s</td></tr>\n",
				c.stamp(ev.At), h.prose(ev.Lane), signClass(ev.Marker), string(h.char(ev.Marker)), h.eventLine(ev, c))
		}
		h.raw("</table>\n")
	}
	if n := len(events) - htmlEvents; n > 0 {
		h.raw("<p>and %s more; kdiag journal -o json has all</p>\n", units.Number(n))
	}
	for _, cause := range e.Causes {
		h.raw("<p><b>%s</b> %s: %s</p>\n<ul class=\"evidence\">", h.prose(cause.Code), confidence(cause.Confidence),
			h.prose(cause.Summary))
		for _, f := range evidenceLines(cause.Evidence, told, true) {
			h.raw("<li><b>%s</b> %s</li>\n", f.Name, shortIDs(h.prose(f.Text)))
		}
		h.raw("</ul>\n")
	}
	h.raw("</section>\n")
}

func (h *htmlPage) signatures(counts []journal.Count, c calendar) {
	if len(counts) == 0 {
		return
	}
	h.raw("<h2>Signatures</h2>\n<table><tr><th>code</th><th>lane</th><th>records</th><th>first to last</th><th>means, and the first record</th></tr>\n")
	for _, s := range counts[:min(len(counts), htmlRows)] {
		h.raw("<tr><td class=\"cause\">%s</td><td>%s</td><td>%s</td><td>%s</td><td>%s<br><code>%s</code></td></tr>\n",
			h.prose(s.Code), h.prose(s.Lane), units.Number(s.Count), c.span(s.First, s.Last), h.prose(s.Title),
			h.prose(s.Example))
	}
	h.raw("</table>\n")
}

// signClass returns a sign as a class of the page; empty for what is none.
func signClass(name string) string {
	if rankOf(name) == len(signs()) {
		return ""
	}
	return name
}

// The measures of a picture, in its own units; it is scaled to the width of the page.
const (
	svgWidth = 1000
	svgLeft  = 72 // what the names of the lanes take
	svgRight = 16 // room for what goes on beyond
	svgLane  = 24
	svgChar  = 7 // columns of the axis' labels
)

// picture draws a timeline.
func (h *htmlPage) picture(t timeline, c calendar) {
	const wide = svgWidth - svgLeft - svgRight
	height := 2 * svgLane
	for _, lane := range lanes() {
		if len(t.of(lane)) > 0 {
			height += svgLane
		}
	}
	tenth := func(v float64) float64 { return math.Round(10*v) / 10 }
	x := func(at float64) float64 { return tenth(svgLeft + at) }
	h.raw("<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n", svgWidth, height,
		"timeline "+c.heading(t.from, t.to))
	used := map[string]bool{}
	outside := func(from, to float64) {
		if to-from >= 1 {
			used["outside"] = true
			h.raw("<rect class=\"outside\" x=\"%g\" y=\"18\" width=\"%g\" height=\"%d\"/>\n", x(from), tenth(to-from),
				height-18)
		}
	}
	if t.logFrom != nil {
		outside(0, t.at(*t.logFrom, wide))
	}
	if t.logTo != nil {
		outside(t.at(*t.logTo, wide), wide)
	}
	for _, tick := range c.ticks(t.from, t.to, wide/svgChar) {
		at := x(t.at(tick.at, wide))
		h.raw("<line x1=\"%g\" x2=\"%g\" y1=\"18\" y2=\"%d\"/><text x=\"%g\" y=\"13\">%s</text>\n", at, at, height,
			min(at, svgWidth-8*svgChar), tick.label)
	}
	h.raw("<text x=\"0\" y=\"38\">kubelet</text>\n")
	segments := slices.Clone(t.segments)
	slices.SortStableFunc(segments, func(a, b segment) int { return rankOf(b.sign) - rankOf(a.sign) }) // the last one hides the others
	for _, s := range segments {
		from, to := t.at(s.from, wide), t.at(s.to, wide)
		title := h.prose(s.title + ", " + c.span(&s.from, &s.to))
		if s.number > 0 {
			title = "#" + units.Number(s.number) + " " + title
		}
		used[s.sign] = true
		const least = 3 // units; what is shorter would not be seen
		h.raw("<rect class=\"%s\" x=\"%g\" y=\"24\" width=\"%g\" height=\"18\"><title>%s</title></rect>\n", s.sign,
			x(from), tenth(max(to-from, least)), title)
		if s.open {
			used["open"] = true
			h.raw("<text class=\"open\" x=\"%g\" y=\"38\">►</text>\n", x(max(to, from+least)))
		}
	}
	y := 2 * svgLane
	for _, lane := range lanes() {
		events := t.of(lane)
		if len(events) == 0 {
			continue
		}
		if lane != "kubelet" {
			h.raw("<text x=\"0\" y=\"%d\">%s</text>\n", y+16, lane)
		}
		slices.SortStableFunc(events, func(a, b laneEvent) int { return rankOf(b.sign) - rankOf(a.sign) })
		for _, e := range events {
			title := h.prose(e.title) + ", " + c.span(&e.from, &e.to)
			if e.count > 1 {
				title += ", " + units.Number(e.count) + " times"
			}
			used[e.sign] = true
			from, to := t.at(e.from, wide), t.at(e.to, wide)
			if to-from >= 2 {
				h.raw("<rect class=\"burst %s\" x=\"%g\" y=\"%d\" width=\"%g\" height=\"6\"><title>%s</title></rect>\n", e.sign, x(from), y+9, tenth(to-from), title)
			}
			h.raw("<text class=\"%s\" x=\"%g\" y=\"%d\">%s<title>%s</title></text>\n", e.sign, x(from)-4, y+16,
				string(h.char(e.sign)), title)
		}
		y += svgLane
	}
	h.raw("</svg>\n<p class=\"legend\">")
	for _, s := range signs() {
		if used[s.name] {
			h.raw("<span class=\"%s\">%s</span> %s &emsp;", s.name, string(s.char), s.text)
		}
	}
	h.raw("</p>\n")
}
