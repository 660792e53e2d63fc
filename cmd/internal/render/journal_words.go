package render

import (
	"math"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal"
)

// maxWords cuts the words of a record where they stand inside a sentence of ours, in columns.
const maxWords = 200

// journalSentence says what happened in one or two sentences.
func (p *page) journalSentence(r *journal.Report, c calendar) string {
	incidents := r.Incidents()
	switch {
	case r.Verdict == checks.LogUnknown:
		return p.nothingRead(r)
	case len(r.Findings) > 0:
		return "No record says that PLEG is not healthy, but the node was in trouble. " + p.lookedAt(r, c)
	case len(incidents) == 0 && r.Failing == nil:
		return p.nothingFound(r, c)
	}
	text := ""
	if len(incidents) == 1 {
		text = whatHappenedOnce(incidents[0], c)
	} else if len(incidents) > 1 {
		text = whatHappened(incidents, c)
	}
	if r.Verdict != checks.LogFailing {
		return text
	}
	fails := "relists fail"
	if !hasSignature(r, "RelistFailed") {
		fails = "the kubelet's loop does no work"
	}
	if e := r.Failing; e.Start != nil {
		fails += " since " + c.full(*e.Start)
		if e.End != nil {
			fails += ", until the log ends at " + c.after(e.Start, e.End)
		}
	}
	fails += "; PLEG is not called unhealthy there: the kubelet does that 3 min after the last good relist"
	if text == "" {
		return fails
	}
	return fails + ". Before that: " + text
}

func hasSignature(r *journal.Report, code string) bool {
	for _, s := range r.Signatures {
		if s.Code == code {
			return true
		}
	}
	return false
}

// nothingRead says why nothing could be looked at.
func (p *page) nothingRead(r *journal.Report) string {
	switch bad := unread(r); {
	case len(bad) > 1:
		return "none of " + units.Count(len(bad), "source") + " could be read; the first: " +
			p.prose(bad[0].Name+": "+bad[0].Problem)
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
		text = "no incident; only " + units.Count(n, "start") + " of the kubelet, before its first relist"
	}
	if r.Lines == 0 {
		return text + ": there is no record at all in what was looked at"
	}
	return text + ". " + p.lookedAt(r, c)
}

// lookedAt says what the answer rests on.
func (p *page) lookedAt(r *journal.Report, c calendar) string {
	text := "Looked at " + units.Count(r.Lines, "record")
	switch {
	case len(r.Sources) == 1:
		text += " of " + p.name(p.prose(r.Sources[0].Name))
	case len(r.Sources) > 1:
		text += " of " + units.Count(len(r.Sources), "source")
	}
	if r.From != nil && r.To != nil {
		text += ", " + c.full(*r.From) + " to " + c.full(*r.To)
	}
	if n := len(unread(r)); n > 0 {
		text += "; " + units.Count(n, "source") + " could not be read whole"
	}
	return text
}

func whatHappenedOnce(e journal.Episode, c calendar) string {
	if e.Start == nil {
		return "PLEG was not healthy in " + units.Count(e.Lines, "record") + " without a time" + worstAge(e)
	}
	text := "PLEG was not healthy from " + c.full(*e.Start)
	if e.End != nil && !e.End.Equal(*e.Start) {
		text += " to " + c.after(e.Start, e.End) + " (" + units.Seconds(e.Seconds) + ")"
	}
	text += worstAge(e)
	if e.Recovered {
		return text + ", and recovered"
	}
	return text + "; the log shows no recovery"
}

// worstAge returns such as ", worst age 6m59s".
func worstAge(e journal.Episode) string {
	if e.MaxLastSeenSeconds <= 0 {
		return ""
	}
	return ", worst age " + units.Seconds(e.MaxLastSeenSeconds)
}

// whatHappened says of several incidents what they have in common.
func whatHappened(incidents []journal.Episode, c calendar) string {
	open := 0
	for _, e := range incidents {
		if !e.Recovered {
			open++
		}
	}
	text := units.Count(len(incidents), "incident")
	first, last := incidents[0], incidents[len(incidents)-1]
	if first.Start != nil && last.End != nil {
		text += " from " + c.full(*first.Start) + " to " + c.after(first.Start, last.End)
	}
	text += worstAge(incidents[worstIncident(incidents)])
	switch {
	case open == 0:
		return text + "; all have recovered"
	case !last.Recovered && open == 1:
		return text + "; the log shows no recovery from the last"
	case open == len(incidents):
		return text + "; the log shows no recovery from any"
	}
	return text + "; the log shows no recovery from " + units.Number(open) + " of them, the last is #" +
		units.Number(journal.MainIncident(incidents)+1)
}

// causeSentence names the likely cause of what the headline is about, and of how many of the incidents it is that of.
func (p *page) causeSentence(r *journal.Report) string {
	e := r.Headline()
	switch {
	case e == nil:
		return ""
	case len(e.Causes) == 0:
		return "No cause found in the log"
	}
	cause, incidents := e.Causes[0], r.Incidents()
	text := causeLead(cause.Confidence) + " " + p.prose(cause.Code)
	if e != r.Failing && len(incidents) > 1 {
		if tally := causeTally(incidents); len(tally) > 1 {
			text += " (#" + units.Number(journal.MainIncident(incidents)+1) + "; in all " +
				p.prose(strings.Join(tally, ", ")) + ")"
		} else {
			text += " (each of them)"
		}
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
		if counts[code]++; counts[code] == 1 {
			order = append(order, code)
		}
	}
	for i, code := range order {
		order[i] = code + " " + units.Number(counts[code])
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
		return units.Count(e.Lines, "record")
	}
	return units.Seconds(e.Seconds)
}

// age returns the worst age of an episode, or a dash.
func age(e journal.Episode) string {
	if e.MaxLastSeenSeconds <= 0 {
		return "-"
	}
	return units.Seconds(e.MaxLastSeenSeconds)
}

// findingLine says when, how often, what was wrong, and in whose words. The line about what was looked at has the day.
func (p *page) findingLine(f journal.Finding, c calendar) string {
	text := units.Count(f.Count, p.prose(f.Unit))
	if f.First != nil {
		text = c.span(f.First, f.Last) + ", " + text
		if f.Ongoing {
			text += ", until the log ends"
		}
	}
	text += ": " + p.prose(f.Summary)
	if f.Words != "" {
		text += ". In its words: " + shortIDs(briefLine{p.cleaner, maxWords}.cut(p.prose(f.Words)))
	}
	return text
}

// journal puts the answer of kdiag journal into one line.
func (m briefLine) journal(r *journal.Report) string {
	p := &page{cleaner: m.cleaner, width: m.width}
	c := calendarOf(r)
	incidents := r.Incidents()
	line := r.Verdict + " "
	if r.Verdict == checks.LogUnknown {
		return m.cut(line + p.nothingRead(r))
	}
	e := r.Headline()
	switch {
	case len(r.Findings) > 0:
		line = r.Verdict + ", but " + m.finding(r.Findings[0], c)
	case e == nil:
		line += "in " + units.Count(r.Lines, "record")
		if r.From != nil && r.To != nil {
			line += ", " + c.short(*r.From) + " to " + c.short(*r.To)
		}
	case e == r.Failing:
		line += strings.Replace(m.prose(firstCause(*e)), "-", "relists", 1)
		if e.Start != nil {
			line += ", since " + c.short(*e.Start)
		}
		if len(incidents) > 0 {
			line += ", " + units.Count(len(incidents), "incident") + " before"
		}
	default:
		line += units.Count(len(incidents), "incident")
		if e.MaxLastSeenSeconds > 0 {
			line += ", age " + age(*e)
		}
		if len(e.Causes) > 0 {
			line += ": " + m.prose(firstCause(*e))
		}
		if e.Start != nil && e.Recovered {
			line += ", " + c.short(*e.Start) + " for " + lasted(*e)
		} else if e.Start != nil {
			line += ", since " + c.short(*e.Start)
		}
	}
	return m.cut(line)
}

// finding says in a few columns what broke the node.
func (m briefLine) finding(f journal.Finding, c calendar) string {
	text := units.Number(min(f.Count, math.MaxInt32)) + "x " + m.prose(f.Code)
	if f.First == nil {
		return text
	}
	text += ", " + c.short(*f.First)
	switch {
	case f.Last == nil || c.stamp(f.First) == c.stamp(f.Last):
	case c.date(*f.First) == c.date(*f.Last):
		text += " to " + c.clock(*f.Last)
	default:
		text += " to " + c.short(*f.Last)
	}
	return text
}
