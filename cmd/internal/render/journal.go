package render

import (
	"io"
	"slices"
	"strings"

	"github.com/charmbracelet/lipgloss"

	"github.com/kdiag/kdiag/journal"
)

// How many incidents text shows in full, and in one line each. JSON and the page that --html writes have all.
const (
	fullIncidents   = 3
	listedIncidents = 20
)

// JournalReport prints the answer of kdiag journal.
func JournalReport(w io.Writer, r *journal.Report, o Options) error {
	return print(w, "journal report", o, view{
		doc:   r,
		text:  func(p *page) { p.journal(r) },
		brief: func(m room) string { return m.journal(r) },
	})
}

// A journalState is what a person wants to know first.
type journalState int

const (
	journalUnknown   journalState = iota // nothing could be looked at
	journalClear                         // looked at, and no incident found
	journalTrouble                       // no incident, but records that speak of a broken node
	journalRecovered                     // incidents, and all of them have ended
	journalFailing                       // no incident that goes on, but relists that fail until the log ends
	journalUnhealthy                     // an incident whose end the log does not show
)

func stateOf(r *journal.Report) journalState {
	state := journalClear
	if r.Lines <= r.Unparsed && (len(r.Sources) == 0 || len(unread(r)) == len(r.Sources)) {
		state = journalUnknown
	}
	if state == journalClear && len(troublesOf(r)) > 0 {
		state = journalTrouble
	}
	for _, e := range incidentsOf(r) {
		if !e.Recovered {
			return journalUnhealthy
		}
		state = journalRecovered
	}
	if r.Failing != nil {
		state = journalFailing
	}
	return state
}

func (s journalState) word() string {
	switch s {
	case journalClear:
		return "NOTHING FOUND"
	case journalTrouble:
		return "NO PLEG INCIDENT"
	case journalRecovered:
		return "RECOVERED"
	case journalFailing:
		return "FAILING"
	case journalUnhealthy:
		return "UNHEALTHY"
	}
	return "UNKNOWN"
}

// NotAll begins the note of a report whose reading was cut short.
const NotAll = "this is not all: "

// journalWord is the word of the headline. What was not read may hold the incident that was not found.
func journalWord(r *journal.Report) string {
	state := stateOf(r)
	absent := state == journalClear || state == journalTrouble
	if absent && slices.ContainsFunc(r.Notes, func(note string) bool { return strings.HasPrefix(note, NotAll) }) {
		return state.word() + " YET"
	}
	return state.word()
}

func (i inks) journal(s journalState) lipgloss.Style {
	switch s {
	case journalClear:
		return i.goodV
	case journalTrouble, journalRecovered:
		return i.warnV
	case journalUnhealthy, journalFailing:
		return i.badV
	}
	return i.unknownV
}

// incidentsOf returns the episodes that are trouble, by time.
func incidentsOf(r *journal.Report) []journal.Episode { return ofKind(r, journal.Incident) }

func ofKind(r *journal.Report, kind string) []journal.Episode {
	var some []journal.Episode
	for _, e := range r.Episodes {
		if e.Kind == kind {
			some = append(some, e)
		}
	}
	return some
}

// unread returns the sources that were not read, or not to their end.
func unread(r *journal.Report) []journal.Source {
	var some []journal.Source
	for _, s := range r.Sources {
		if s.Problem != "" {
			some = append(some, s)
		}
	}
	return some
}

// mainIncident returns the index of the incident that the headline is about: the last that has not ended, else the
// worst. It is -1 when there is none.
func mainIncident(incidents []journal.Episode) int {
	worst := -1
	for i, e := range slices.Backward(incidents) {
		if !e.Recovered {
			return i
		}
		if worst < 0 || e.MaxLastSeenSeconds > incidents[worst].MaxLastSeenSeconds {
			worst = i
		}
	}
	return worst
}

// journal writes the answer of kdiag journal.
func (p *page) journal(r *journal.Report) {
	c := calendarOf(r)
	incidents := incidentsOf(r)
	p.journalTop(r, c)
	explained := map[string]bool{}
	overview, dated := overviewOf(r)
	if dated && (len(r.Episodes) > 0 || len(r.Events) > 0) {
		p.heading("Timeline" + glue + " " + c.heading(overview.from, overview.to))
		p.scene(overview, c, explained, true)
		if closer, ok := clusterOf(r, incidents); ok && worthCloseUp(overview, closer) {
			overview = closer
			p.heading("Closer" + glue + " " + c.heading(closer.from, closer.to))
			p.scene(closer, c, explained, false)
		}
	}
	p.failing(r, c)
	p.incidents(r, c, overview, explained)
	p.startups(ofKind(r, journal.Startup), c)
	p.couldNotRead(r)
	p.signatures(r.Signatures, c)
	p.sources(r, c)
	p.notes(gatheredNotes(r))
	p.journalSteps(r, c)
}

// journalTop writes the first lines: how it is, what happened, and why.
func (p *page) journalTop(r *journal.Report, c calendar) {
	state := stateOf(r)
	style := p.ink.journal(state)
	if state == journalTrouble {
		p.troubleTop(r, c)
		return
	}
	word := journalWord(r)
	lead := []span{{word, &style}, plain("  ")}
	hang := columns(word) + 2
	if host := p.prose(r.Host); host != "" {
		lead = append(lead, plain(p.name(host)+"  "))
	}
	p.flow(lead, hang, plain(p.journalSentence(r, c)))
	if cause := p.causeSentence(r); cause != "" {
		p.flow([]span{plain(spaces(hang))}, hang, plain(cause))
	}
}

// name shortens what is too long to stand in the middle of a line.
func (p *page) name(s string) string {
	return room{p.cleaner, p.width}.middle(s, max(p.width/3, 16))
}

// incidents writes the incidents: few of them in full, of many a list, and in full those that matter most.
func (p *page) incidents(r *journal.Report, c calendar, overview scene, explained map[string]bool) {
	incidents := incidentsOf(r)
	shown := inFull(incidents)
	if len(shown) < len(incidents) {
		p.incidentList(incidents, c)
	}
	told := map[string]bool{}
	for _, i := range shown {
		p.incidentHeading(incidents[i], i+1, len(incidents), c)
		if closeUp, ok := closeUpOf(r, incidents[i]); ok && worthCloseUp(overview, closeUp) {
			p.scene(closeUp, c, explained, false)
			p.blank()
		}
		p.incident(r, incidents[i], c.within(incidents[i]), told)
	}
	if rest := len(incidents) - len(shown); rest > 0 {
		p.blank()
		p.flow(nil, 0, plain("The other "+plural(rest, "incident")+" in full: -o json, or --html FILE."))
	}
}

// inFull returns the indexes of the incidents that are worth showing in full, by time: all of a few, else the first,
// the one that the headline is about, and the last.
func inFull(incidents []journal.Episode) []int {
	var shown []int
	if len(incidents) <= fullIncidents {
		for i := range incidents {
			shown = append(shown, i)
		}
		return shown
	}
	shown = []int{0, mainIncident(incidents), worstIncident(incidents), len(incidents) - 1}
	slices.Sort(shown)
	shown = slices.Compact(shown)
	if len(shown) > fullIncidents {
		shown = shown[1:] // the first says least of what is the matter now
	}
	return shown
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
	rows := make([][]span, 0, min(len(incidents), listedIncidents))
	first := max(0, len(incidents)-listedIncidents)
	if first > 0 {
		p.flow([]span{plain("  ")}, 2, plain("the last "+count(listedIncidents)+", and "+count(first)+" more before them"))
	}
	for i, e := range incidents[first:] {
		end, style := "recovered", &p.ink.good
		if !e.Recovered {
			end, style = "no end seen", &p.ink.bad
		}
		rows = append(rows, []span{
			plain("#" + count(first+i+1)), plain(strings.TrimSpace(c.stamp(e.Start))), plain(lasted(e)),
			plain(age(e)),
			{end, style},
			plain(p.prose(firstCause(e))),
		})
	}
	p.table(table{indent: 2, align: "rlrrll", head: []string{"", "from", "lasted", "worst age", "", "likely cause"}, rows: rows})
}

func firstCause(e journal.Episode) string {
	if len(e.Causes) == 0 {
		return "-"
	}
	return e.Causes[0].Code
}
