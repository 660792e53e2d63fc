package render

import (
	"io"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal"
)

// What text shows. JSON and the page that --html writes have all.
const (
	fullIncidents   = 3  // in full
	listedIncidents = 20 // in one line each
	shownFindings   = 5
	shownSources    = 5
	shownUnreadable = 8
)

// JournalReport prints the answer of kdiag journal.
func JournalReport(w io.Writer, r *journal.Report, o Options) error {
	return write(w, "journal report", o, view{
		doc:   r,
		text:  func(p *page) { p.journal(r) },
		brief: func(m briefLine) string { return m.journal(r) },
	})
}

// JournalHeadline prints only the first lines of a report in text: how it is now.
func JournalHeadline(w io.Writer, r *journal.Report, o Options) error {
	o.Format = Text
	return write(w, "journal report", o, view{text: func(p *page) { p.journalTop(r, calendarOf(r)) }})
}

// Printable returns a string from outside in one line in which nothing acts on a terminal.
func Printable(s string) string { return cleaner{}.prose(s) }

// ofKind returns the episodes of a kind.
func ofKind(r *journal.Report, kind string) []journal.Episode {
	return slices.DeleteFunc(slices.Clone(r.Episodes), func(e journal.Episode) bool { return e.Kind != kind })
}

// unread returns the sources that were not read, or not to their end.
func unread(r *journal.Report) []journal.Source {
	return slices.DeleteFunc(slices.Clone(r.Sources), func(s journal.Source) bool { return s.Problem == "" })
}

// journal writes the answer of kdiag journal.
func (p *page) journal(r *journal.Report) {
	c := calendarOf(r)
	p.journalTop(r, c)
	explained := map[string]bool{}
	pictures := timelinesOf(r)
	for i, t := range pictures {
		title := "Timeline"
		if i > 0 {
			title = "Closer"
		}
		p.heading(title + glue + " " + c.heading(t.from, t.to))
		p.timeline(t, c, explained, i == 0)
	}
	if e := r.Failing; e != nil {
		p.blank()
		p.flow([]span{{failingTitle, &p.ink.bold}, plain("  "), {failingState, &p.ink.bad}, plain("  ")}, 2,
			plain(incidentWhen(*e, c)))
		p.incident(r, *e, c.within(*e), map[string]bool{})
	}
	p.incidents(r, c, pictures, explained)
	p.startups(ofKind(r, journal.Startup), c)
	if r.Verdict != checks.LogUnknown || len(r.Sources) != 1 { // else the headline has it
		p.lines("What kdiag could not read", "?", p.unreadLines(r, shownSources, shownUnreadable))
	}
	p.signatures(r.Signatures, c)
	p.sources(r, c)
	p.lines("Notes", "-", gatheredNotes(r))
	if len(r.NextSteps) > 0 {
		p.blank()
		p.put(span{"Next", &p.ink.bold}, plain("  (these only read)"))
	}
	for i, s := range r.NextSteps {
		p.step(i+1, checks.NextStep{Why: s.Why, Command: s.Command}, s.Command)
	}
}

// What stands in the place of the number and the end of an incident for what fails at the end of the log.
const (
	failingTitle = "Failing"
	failingState = "at the end of the log"
)

// journalTop writes the first lines: how it is, what happened, and why.
func (p *page) journalTop(r *journal.Report, c calendar) {
	style := p.ink.verdict(checks.Verdict(r.Status))
	host := p.name(p.prose(r.Host))
	if len(r.Findings) > 0 {
		on := ", but:"
		if host != "" {
			on = ", but on " + host + ":"
		}
		p.flow([]span{{r.Verdict, &style}}, 2, plain(on))
		for i, f := range r.Findings {
			if i == shownFindings {
				p.goesOn(len(r.Findings) - i)
				break
			}
			p.item(2, p.eventSign("error"), p.findingLine(f, c))
		}
		p.flow(nil, 0, plain(p.lookedAt(r, c)))
		return
	}
	lead := []span{{r.Verdict, &style}, plain("  ")}
	hang := columns(r.Verdict) + 2
	if host != "" {
		lead = append(lead, plain(host+"  "))
	}
	p.flow(lead, hang, plain(p.journalSentence(r, c)))
	if cause := p.causeSentence(r); cause != "" {
		p.flow([]span{plain(spaces(hang))}, hang, plain(cause))
	}
}

// name shortens what is too long to stand in the middle of a line.
func (p *page) name(s string) string {
	return briefLine{p.cleaner, p.width}.middle(s, max(p.width/3, 16))
}

// goesOn writes that a list goes on.
func (p *page) goesOn(n int) {
	p.flow([]span{plain("  ")}, 2, plain("and "+units.Number(n)+" more; -o json has all"))
}

// lines writes lines below a heading, if there are any.
func (p *page) lines(title, sign string, lines []string) {
	if len(lines) > 0 {
		p.heading(title)
	}
	for _, s := range lines {
		p.item(2, plain(sign), p.prose(s))
	}
}

// incidents writes the incidents: few of them in full, of many a list, and in full those that matter most.
func (p *page) incidents(r *journal.Report, c calendar, pictures []timeline, explained map[string]bool) {
	incidents := r.Incidents()
	shown := inFull(incidents)
	if len(shown) < len(incidents) {
		p.incidentList(incidents, c)
	}
	told := map[string]bool{}
	for _, i := range shown {
		e := incidents[i]
		title, state, style := incidentTitle(i, len(incidents)), "recovered", &p.ink.good
		if !e.Recovered {
			state, style = "no recovery seen", &p.ink.bad
		}
		p.blank()
		p.flow([]span{{title, &p.ink.bold}, plain("  "), {state, style}, plain("  ")}, 2, plain(incidentWhen(e, c)))
		if t, ok := closeUpOf(r, e, pictures); ok {
			p.timeline(t, c, explained, false)
			p.blank()
		}
		p.incident(r, e, c.within(e), told)
	}
	if rest := len(incidents) - len(shown); rest > 0 {
		p.blank()
		p.flow(nil, 0, plain("The other "+units.Count(rest, "incident")+" in full: -o json, or --html FILE."))
	}
}

func incidentTitle(i, of int) string {
	if of == 1 {
		return "Incident"
	}
	return "Incident #" + units.Number(i+1) + " of " + units.Number(of)
}

// inFull returns the indexes of the incidents that are worth showing in full, by time: all of a few, else the first,
// the one that the headline is about, the worst, and the last.
func inFull(incidents []journal.Episode) []int {
	shown := []int{0, journal.MainIncident(incidents), worstIncident(incidents), len(incidents) - 1}
	if len(incidents) <= fullIncidents {
		shown = shown[:0]
		for i := range incidents {
			shown = append(shown, i)
		}
	}
	slices.Sort(shown)
	shown = slices.Compact(shown)
	return shown[max(0, len(shown)-fullIncidents):] // the first matters least for what is the matter now
}

func worstIncident(incidents []journal.Episode) int {
	worst := 0
	for i, e := range incidents {
		if e.MaxLastSeenSeconds > incidents[worst].MaxLastSeenSeconds {
			worst = i
		}
	}
	return worst
}

// incidentList writes one line for each incident.
func (p *page) incidentList(incidents []journal.Episode, c calendar) {
	p.heading("Incidents")
	first := max(0, len(incidents)-listedIncidents)
	if first > 0 {
		p.flow([]span{plain("  ")}, 2, plain("the last "+units.Number(listedIncidents)+", and "+units.Number(first)+" more before them"))
	}
	var rows [][]span
	for i, e := range incidents[first:] {
		end, style := "recovered", &p.ink.good
		if !e.Recovered {
			end, style = "no end seen", &p.ink.bad
		}
		rows = append(rows, []span{
			plain("#" + units.Number(first+i+1)), plain(c.stamp(e.Start)), plain(lasted(e)), plain(age(e)),
			{end, style},
			plain(p.prose(firstCause(e))),
		})
	}
	p.table(table{
		indent: 2, align: "rlrrll", head: []string{"", "from", "lasted", "worst age", "", "likely cause"},
		rows: rows,
	})
}

func firstCause(e journal.Episode) string {
	if len(e.Causes) == 0 {
		return "-"
	}
	return e.Causes[0].Code
}

// unreadLines lists what was not read, and where, so many sources and stretches at most: silence about it would be
// taken for health.
func (p *page) unreadLines(r *journal.Report, sources, stretches int) []string {
	var lines []string
	bad := unread(r)
	for _, s := range bad[:min(len(bad), sources)] {
		lines = append(lines, s.Name+": "+s.Problem)
	}
	if n := len(bad) - sources; n > 0 {
		lines = append(lines, "and "+units.Count(n, "more source")+"; -o json has all")
	}
	for _, u := range r.Unreadable[:min(len(r.Unreadable), stretches)] {
		text := u.Source + ": " + units.Count(u.Bytes, "byte") + " at offset " + units.Number(u.Offset)
		if u.Why != "" {
			text += ": " + u.Why
		}
		lines = append(lines, text)
	}
	if n := len(r.Unreadable) - stretches; n > 0 {
		lines = append(lines, "and "+units.Count(n, "more stretch")+"; -o json has all")
	}
	if r.Unparsed > 0 {
		lines = append(lines, units.Count(r.Unparsed, "record")+" in a form that kdiag does not know")
	}
	return lines
}

// signatures writes which records were recognised: how many, when, and what they mean.
func (p *page) signatures(counts []journal.Count, c calendar) {
	if len(counts) == 0 {
		return
	}
	p.heading("Signatures")
	t := table{indent: 2, align: "lrll", head: []string{"", "records", "first to last", "means"}}
	for _, s := range counts {
		t.rows = append(t.rows, []span{
			{p.prose(s.Code), &p.ink.bold},
			plain(units.Number(s.Count)), plain(c.span(s.First, s.Last)),
			plain(p.prose(s.Title)),
		})
	}
	p.table(t)
}

// sources writes what was read.
func (p *page) sources(r *journal.Report, c calendar) {
	read := slices.DeleteFunc(slices.Clone(r.Sources), func(s journal.Source) bool {
		return s.Lines == 0 && s.Problem != ""
	})
	if len(read) == 0 {
		return
	}
	p.heading("Read: " + units.Count(r.Lines, "record") + ", " + units.Size(r.Bytes))
	for i, s := range read {
		if i == shownSources {
			p.goesOn(len(read) - i)
			return
		}
		name := p.prose(sourceName(s))
		lead := []span{plain("  " + name + "  ")}
		if columns(name) > p.width/3 {
			p.flow([]span{plain("  ")}, 4, plain(name))
			lead = []span{plain("    ")}
		}
		p.flow(lead, 4, plain(p.sourceLine(s, r.Notes, c)))
	}
}

func sourceName(s journal.Source) string {
	if s.Name == "-" {
		return "standard input"
	}
	return s.Name
}

// sourceLine describes a source. How its zone and year are known is left to the notes where they have it.
func (p *page) sourceLine(s journal.Source, notes []string, c calendar) string {
	parts := []string{
		p.prose(s.Format), p.prose(s.Compressed), units.Count(s.Lines, "record"), units.Size(s.Bytes),
		c.span(s.From, s.To),
	}
	for _, known := range []struct{ what, how string }{{"zone", s.Zone}, {"year", s.Year}} {
		noted := slices.ContainsFunc(notes, func(n string) bool {
			return strings.HasPrefix(n, s.Name+": ") && strings.Contains(n, known.what)
		})
		if known.how != "" && !noted {
			parts = append(parts, known.what+" "+p.prose(known.how))
		}
	}
	if s.Unparsed > 0 {
		parts = append(parts, units.Number(s.Unparsed)+" not understood")
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")
}

// gatheredNotes puts the notes about one source into one, without its name where there is no other source.
func gatheredNotes(r *journal.Report) []string {
	var all []string
	at := map[string]int{}
	for _, n := range r.Notes {
		i := slices.IndexFunc(r.Sources, func(s journal.Source) bool { return strings.HasPrefix(n, s.Name+": ") })
		if i < 0 {
			all = append(all, n)
			continue
		}
		name := r.Sources[i].Name
		rest := strings.TrimPrefix(n, name+": ")
		if first, ok := at[name]; ok {
			all[first] += "; " + rest
			continue
		}
		at[name] = len(all)
		if len(r.Sources) > 1 {
			rest = name + ": " + rest
		}
		all = append(all, rest)
	}
	return all
}
