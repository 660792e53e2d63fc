package render

import (
	"bytes"
	_ "embed" // for the template
	"fmt"
	"html/template"
	"io"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/journal"
)

//go:embed journal.html.tmpl
var journalTemplate string

// The most that the page shows of what a report may have without end.
const (
	htmlIncidents = 200
	htmlEvents    = 200
	htmlRows      = 500
)

// An htmlReport is a report as the page's template wants it. All its strings are clean; the template escapes them.
type htmlReport struct {
	Title, State, Class, Host, Sentence, Cause string
	Troubles                                   []string
	Overview, Closer                           *drawing
	OverviewOf, CloserOf                       string
	Incidents                                  []htmlIncident
	MoreIncidents                              int
	Startups                                   []string
	Unread                                     []string
	Signatures                                 []htmlSignature
	Sources                                    []fact
	Notes                                      []string
	Steps                                      []checks.NextStep
	Lines, Bytes, Generated, Version           string
}

type htmlIncident struct {
	Title, When, State, Class string
	Picture                   *drawing
	Facts                     []fact
	Culprits                  []string
	Events                    []htmlEvent
	MoreEvents                int
	Causes                    []htmlCause
}

type htmlEvent struct{ At, Lane, Class, Path, Text string }

type htmlCause struct {
	Code, Text            string
	For, Against, Missing []string
}

type htmlSignature struct{ Code, Lane, Count, When, Title, Example string }

// PageMark stands at the beginning of each page that JournalHTML writes.
const PageMark = `<meta name="generator" content="kdiag">`

// JournalHTML writes a report as one page of HTML that needs nothing else: no script, no font, no picture from elsewhere.
func JournalHTML(w io.Writer, r *journal.Report) error {
	t, err := template.New("journal").Parse(journalTemplate)
	if err != nil {
		return fmt.Errorf("reading the page's template: %w", err)
	}
	p := newPage(io.Discard, Options{Width: 200})
	var out bytes.Buffer
	if err := t.Execute(&out, p.html(r)); err != nil {
		return fmt.Errorf("filling the page: %w", err)
	}
	_, err = w.Write(out.Bytes())
	return err
}

func (s journalState) class() string {
	switch s {
	case journalClear:
		return "good"
	case journalTrouble, journalRecovered:
		return "warn"
	case journalUnhealthy, journalFailing:
		return "bad"
	}
	return "unknown"
}

func (p *page) html(r *journal.Report) htmlReport {
	c := calendarOf(r)
	state := stateOf(r)
	incidents := incidentsOf(r)
	h := htmlReport{
		Title: "kdiag journal", State: journalWord(r), Class: state.class(), Host: p.prose(r.Host),
		Sentence: p.journalSentence(r, c), Cause: p.causeSentence(r),
		Startups: p.startupLines(ofKind(r, journal.Startup), c), Steps: p.cleanSteps(journalSteps(r, c)),
		Lines: plural(int(r.Lines), "record"), Bytes: size(float64(r.Bytes)),
		Version: p.prose(r.KdiagVersion),
	}
	if h.Host != "" {
		h.Title += ": " + h.Host
	}
	if !r.GeneratedAt.IsZero() {
		h.Generated = clock(r.GeneratedAt)
	}
	for _, t := range troublesOf(r) {
		h.Troubles = append(h.Troubles, p.troubleLine(t, r, c))
	}
	overview, dated := overviewOf(r)
	if dated && (len(r.Episodes) > 0 || len(r.Events) > 0) {
		h.Overview, h.OverviewOf = p.drawingOf(overview, c, true), c.heading(overview.from, overview.to)
		if closer, ok := clusterOf(r, incidents); ok && worthCloseUp(overview, closer) {
			h.Closer, h.CloserOf = p.drawingOf(closer, c, true), c.heading(closer.from, closer.to)
			overview = closer
		}
	}
	told := map[string]bool{}
	if r.Failing != nil {
		one := p.htmlIncident(r, *r.Failing, c, overview, map[string]bool{})
		one.Title, one.State = failingTitle, failingState
		h.Incidents = append(h.Incidents, one)
	}
	for i := range incidents {
		if i == htmlIncidents {
			h.MoreIncidents = len(incidents) - i
			break
		}
		one := p.htmlIncident(r, incidents[i], c, overview, told)
		if len(incidents) > 1 {
			one.Title += " #" + count(i+1) + " of " + count(len(incidents))
		}
		h.Incidents = append(h.Incidents, one)
	}
	p.htmlLists(&h, r, c)
	return h
}

// cleanSteps makes the commands of steps safe to look at.
func (p *page) cleanSteps(steps []checks.NextStep) []checks.NextStep {
	for i, s := range steps {
		steps[i].Command = p.clean(s.Command)
	}
	return steps
}

func (p *page) htmlIncident(r *journal.Report, e journal.Episode, c calendar, overview scene, told map[string]bool) htmlIncident {
	h := htmlIncident{Title: "Incident", State: "recovered", Class: "good", When: incidentWhen(e, c)}
	if !e.Recovered {
		h.State, h.Class = "no recovery seen", "bad"
	}
	if closeUp, ok := closeUpOf(r, e); ok && worthCloseUp(overview, closeUp) {
		h.Picture = p.drawingOf(closeUp, c, false)
	}
	c = c.within(e)
	for _, f := range p.incidentFacts(r, e, c) {
		if f.Text != "" {
			h.Facts = append(h.Facts, f)
		}
	}
	for _, who := range e.Culprits[:min(len(e.Culprits), htmlRows)] {
		h.Culprits = append(h.Culprits, p.journalCulprit(who))
	}
	events := eventsAround(r, e)
	for _, ev := range thin(events, htmlEvents) {
		h.Events = append(h.Events, htmlEvent{
			At: c.stamp(ev.At), Lane: p.prose(ev.Lane), Class: markClass(ev.Marker), Path: markPath(ev.Marker), Text: p.eventLine(ev, c),
		})
	}
	h.MoreEvents = len(events) - len(h.Events)
	for _, cause := range e.Causes {
		h.Causes = append(h.Causes, htmlCause{
			Code: p.prose(cause.Code), Text: confidence(cause.Confidence) + ": " + p.prose(cause.Summary),
			For: p.proses(cause.Evidence.For), Against: p.proses(cause.Evidence.Against),
			Missing: p.proses(missingLine(cause.Evidence, told)),
		})
	}
	return h
}

// markClass returns a kind of mark as a class of the page; empty for what is none.
func markClass(kind string) string {
	for _, k := range markKinds() {
		if k == kind {
			return k
		}
	}
	return ""
}

func (p *page) proses(lines []string) []string {
	out := make([]string, 0, len(lines))
	for _, s := range lines {
		out = append(out, shortIDs(p.prose(s)))
	}
	return out
}

func (p *page) htmlLists(h *htmlReport, r *journal.Report, c calendar) {
	for _, s := range unread(r)[:min(len(unread(r)), htmlRows)] {
		h.Unread = append(h.Unread, p.prose(s.Name+": "+s.Problem))
	}
	for _, u := range r.Unreadable[:min(len(r.Unreadable), htmlRows)] {
		h.Unread = append(h.Unread, p.prose(u.Source)+": "+unreadableLine(p.cleaner, u))
	}
	if n := len(r.Unreadable) - htmlRows; n > 0 {
		h.Unread = append(h.Unread, "and "+plural(n, "more stretch")+" of bytes")
	}
	if r.Unparsed > 0 {
		h.Unread = append(h.Unread, plural(int(r.Unparsed), "record")+" in a form that kdiag does not know")
	}
	for _, s := range r.Signatures[:min(len(r.Signatures), htmlRows)] {
		h.Signatures = append(h.Signatures, htmlSignature{
			Code: p.prose(s.Code), Lane: p.prose(s.Lane), Count: count(int(s.Count)), When: c.span(s.First, s.Last),
			Title: p.prose(s.Title), Example: p.prose(s.Example),
		})
	}
	for _, s := range r.Sources[:min(len(r.Sources), htmlRows)] {
		h.Sources = append(h.Sources, fact{p.prose(sourceName(s)), p.sourceLine(s, r.Notes, c)})
	}
	if n := len(r.Sources) - htmlRows; n > 0 {
		h.Sources = append(h.Sources, fact{"and " + count(n) + " more", ""})
	}
	h.Notes = p.proses(gatheredNotes(r))
}
