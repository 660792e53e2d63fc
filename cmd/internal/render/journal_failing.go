package render

import "github.com/kdiag/kdiag/journal"

// What stands in the place of an incident's number and end.
const (
	failingTitle = "Failing"
	failingState = "at the end of the log"
)

// headliner returns what the headline is about: an incident that has not ended, else what fails at the end, else the worst incident. There is
// one of them.
func headliner(r *journal.Report, incidents []journal.Episode) journal.Episode {
	if stateOf(r) == journalFailing {
		return *r.Failing
	}
	return incidents[mainIncident(incidents)]
}

// whatFails says what fails at the end of the log.
func whatFails(r *journal.Report, c calendar) string {
	text := "relists fail"
	if _, ok := countOf(r, "RelistFailed"); !ok {
		text = "the kubelet's loop does no work"
	}
	e := r.Failing
	if e.Start != nil {
		text += " since " + c.full(*e.Start)
		if e.End != nil {
			text += ", until the log ends at " + c.clockAfter(e.Start, e.End)
		}
	}
	return text + "; PLEG is not called unhealthy there: the kubelet does that 3 min after the last good relist"
}

// failing writes what fails at the end of the log, as an incident is written.
func (p *page) failing(r *journal.Report, c calendar) {
	e := r.Failing
	if e == nil {
		return
	}
	p.blank()
	p.flow([]span{{failingTitle, &p.ink.bold}, plain("  "), {failingState, &p.ink.bad}, plain("  ")}, 2, plain(incidentWhen(*e, c)))
	p.incident(r, *e, c.within(*e), map[string]bool{})
}

// briefFailing says what fails in a few columns.
func (m room) briefFailing(r *journal.Report, c calendar) string {
	text := firstCause(*r.Failing)
	if text == "-" {
		text = "relists"
	}
	text = m.prose(text)
	if r.Failing.Start != nil {
		text += ", since " + c.dated(*r.Failing.Start)
	}
	if n := len(incidentsOf(r)); n > 0 {
		text += ", " + plural(n, "incident") + " before"
	}
	return text
}
