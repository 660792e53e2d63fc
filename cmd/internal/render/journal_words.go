package render

import (
	"strings"
	"time"

	"github.com/kdiag/kdiag/journal"
)

// maxReasonLen cuts the words of a record where they stand inside a sentence of ours, in columns.
const maxReasonLen = 160

// journalSentence says what happened in one or two sentences.
func (p *page) journalSentence(r *journal.Report, c calendar) string {
	incidents := incidentsOf(r)
	state := stateOf(r)
	switch state {
	case journalUnknown:
		return p.nothingRead(r)
	case journalClear:
		return p.nothingFound(r, c)
	case journalTrouble:
		return "No record says that PLEG is not healthy, but the node was in trouble. " + p.lookedAt(r, c)
	}
	text := ""
	switch len(incidents) {
	case 0:
	case 1:
		text = whatHappenedOnce(incidents[0], c)
	default:
		text = whatHappened(incidents, mainIncident(incidents), c)
	}
	if state != journalFailing {
		return text
	}
	return strings.TrimSuffix(whatFails(r, c)+". Before that: "+text, ". Before that: ")
}

// nothingRead says why nothing could be looked at.
func (p *page) nothingRead(r *journal.Report) string {
	switch bad := unread(r); {
	case len(bad) > 1:
		return "none of " + plural(len(bad), "source") + " could be read; the first: " + p.prose(bad[0].Name+": "+bad[0].Problem)
	case len(bad) == 1:
		return p.prose(bad[0].Name + ": " + bad[0].Problem)
	case len(r.Notes) > 0:
		return p.prose(r.Notes[0])
	}
	return "no record could be read"
}

// nothingFound says what was looked at in vain.
func (p *page) nothingFound(r *journal.Report, c calendar) string {
	text := "no record says that PLEG is not healthy"
	if n := startsIn(ofKind(r, journal.Startup)); n > 0 {
		text = "no incident; only " + plural(n, "start") + " of the kubelet, before its first relist"
	}
	if r.Lines == 0 {
		return text + ": there is no record at all in what was looked at"
	}
	return text + ". " + p.lookedAt(r, c)
}

// lookedAt says what the answer rests on.
func (p *page) lookedAt(r *journal.Report, c calendar) string {
	text := "Looked at " + plural(int(r.Lines), "record")
	switch {
	case len(r.Sources) == 1:
		text += " of " + p.name(p.prose(r.Sources[0].Name))
	case len(r.Sources) > 1:
		text += " of " + plural(len(r.Sources), "source")
	}
	if r.From != nil && r.To != nil {
		text += ", " + c.full(*r.From) + " to " + c.full(*r.To)
	}
	if n := len(unread(r)); n > 0 {
		text += "; " + plural(n, "source") + " could not be read whole"
	}
	return text
}

func whatHappenedOnce(e journal.Episode, c calendar) string {
	if e.Start == nil {
		return "PLEG was not healthy in " + plural(e.Lines, "record") + " without a time" + worstAge(e)
	}
	text := "PLEG was not healthy from " + c.full(*e.Start)
	if e.End != nil && !e.End.Equal(*e.Start) {
		text += " to " + c.clockAfter(e.Start, e.End) + " (" + duration(e.Seconds) + ")"
	}
	text += worstAge(e)
	if e.Recovered {
		return text + ", and recovered"
	}
	return text + "; the log shows no recovery"
}

// clockAfter returns a moment after another in as few words as tell when it was.
func (c calendar) clockAfter(from, to *time.Time) string {
	if c.date(*from) == c.date(*to) {
		return c.clock(*to)
	}
	return c.full(*to)
}

// worstAge returns such as ", worst age 6m59s".
func worstAge(e journal.Episode) string {
	if e.MaxLastSeenSeconds <= 0 {
		return ""
	}
	return ", worst age " + duration(e.MaxLastSeenSeconds)
}

// whatHappened says of several incidents what they have in common. main is the index of the one that matters most.
func whatHappened(incidents []journal.Episode, main int, c calendar) string {
	open, worst := 0, incidents[worstIncident(incidents)]
	for _, e := range incidents {
		if !e.Recovered {
			open++
		}
	}
	text := plural(len(incidents), "incident")
	first, last := incidents[0], incidents[len(incidents)-1]
	if first.Start != nil && last.Start != nil {
		text += " from " + c.full(*first.Start) + " to " + c.clockAfter(first.Start, last.End)
	}
	text += worstAge(worst)
	switch {
	case open == 0:
		return text + "; all have recovered"
	case !last.Recovered && open == 1:
		return text + "; the log shows no recovery from the last"
	case open == len(incidents):
		return text + "; the log shows no recovery from any"
	}
	return text + "; the log shows no recovery from " + count(open) + " of them, the last is #" + count(main+1)
}

// causeSentence names the likely cause of what the headline is about, and of how many of the incidents it is that of.
func (p *page) causeSentence(r *journal.Report) string {
	incidents := incidentsOf(r)
	main, e := mainIncident(incidents), journal.Episode{}
	switch {
	case stateOf(r) == journalFailing:
		incidents, e = nil, *r.Failing
	case main < 0:
		return ""
	default:
		e = incidents[main]
	}
	if len(e.Causes) == 0 {
		return "No cause found in the log"
	}
	cause := e.Causes[0]
	text := causeLead(cause.Confidence) + " " + p.prose(cause.Code)
	tally := causeTally(incidents)
	switch {
	case len(tally) > 1:
		text += " (#" + count(main+1) + "; in all " + p.prose(strings.Join(tally, ", ")) + ")"
	case len(incidents) > 1:
		text += " (each of them)"
	}
	if cause.Summary != "" {
		text += ": " + p.prose(cause.Summary)
	}
	return strings.TrimSuffix(text, ".")
}

// causeTally counts the incidents by their likely cause, such as "InspectHang 19", in order of appearance.
func causeTally(incidents []journal.Episode) []string {
	var order []string
	counts := map[string]int{}
	for _, e := range incidents {
		code := firstCause(e)
		if code == "-" {
			code = "unknown"
		}
		if counts[code] == 0 {
			order = append(order, code)
		}
		counts[code]++
	}
	for i, code := range order {
		order[i] = code + " " + count(counts[code])
	}
	return order
}

func causeLead(confidence float64) string {
	switch {
	case confidence >= 0.8:
		return "Very likely"
	case confidence >= 0.6:
		return "Likely"
	case confidence >= 0.4:
		return "Possibly"
	}
	return "At a guess,"
}

// lasted returns how long the records of an episode go on; a single one has no length.
func lasted(e journal.Episode) string {
	if e.Seconds <= 0 {
		return plural(e.Lines, "record")
	}
	return duration(e.Seconds)
}

// age returns the worst age of an episode, or a dash.
func age(e journal.Episode) string {
	if e.MaxLastSeenSeconds <= 0 {
		return "-"
	}
	return duration(e.MaxLastSeenSeconds)
}

// journal puts the answer of kdiag journal into one line.
func (m room) journal(r *journal.Report) string {
	p := &page{cleaner: m.cleaner, width: m.width}
	c := calendarOf(r)
	state := stateOf(r)
	incidents := incidentsOf(r)
	switch state {
	case journalUnknown:
		return m.cut(journalWord(r) + " " + p.nothingRead(r))
	case journalClear:
		return m.cut(journalWord(r) + " " + m.briefClear(r, c))
	case journalTrouble:
		return m.cut(journalWord(r) + ", but " + m.briefTrouble(troublesOf(r)[0], c))
	}
	if state == journalFailing {
		return m.cut(journalWord(r) + " " + m.briefFailing(r, c))
	}
	e := incidents[mainIncident(incidents)]
	line := journalWord(r) + " " + plural(len(incidents), "incident")
	if e.MaxLastSeenSeconds > 0 {
		line += ", age " + duration(e.MaxLastSeenSeconds)
	}
	if code := firstCause(e); code != "-" {
		line += ": " + m.prose(code)
	}
	switch {
	case e.Start == nil:
	case e.Recovered:
		line += ", " + c.dated(*e.Start) + " for " + lasted(e)
	default:
		line += ", since " + c.dated(*e.Start)
	}
	return m.cut(line)
}

func (m room) briefClear(r *journal.Report, c calendar) string {
	text := "in " + plural(int(r.Lines), "record")
	if r.From != nil && r.To != nil {
		text += ", " + c.dated(*r.From) + " to " + c.dated(*r.To)
	}
	return text
}

// dated returns a moment with its day and zone in few columns.
func (c calendar) dated(t time.Time) string {
	return t.In(c.zone).Format("Jan"+glue+"02"+glue+"15:04:05") + c.zoneSuffix(t)
}

// zoneSuffix is Z for UTC, else an offset, as RFC 3339 has them.
func (c calendar) zoneSuffix(t time.Time) string { return t.In(c.zone).Format("Z07:00") }
