package render

import (
	"cmp"
	"io"
	"math"
	"path"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal"
)

// mostWords cuts the words of a record where they stand inside a sentence of ours, in columns.
const mostWords = 200

// summary returns what happened, in one or two sentences.
func (j *journalDoc) summary() string {
	incidents := j.Incidents()
	e := j.Headline()
	switch {
	case j.Verdict == checks.LogUnknown:
		return nothingRead(j.cleaner, j.Report)
	case len(j.Findings) > 0:
		found := func(f journal.Finding) string { return j.prose(f.Summary) + " (" + units.Number(f.Count) + ")" }
		return strings.Join(each(j.Findings[:min(len(j.Findings), 3)], found), "; ")
	case e == nil && j.Lines == 0:
		return "there is no record in what was looked at"
	case e == nil:
		text := "no PLEG incident"
		if n := startsIn(j.ofKind(journal.Startup)); n > 0 {
			text = "no incident; only " + units.Count(n, "start") + " of the kubelet, before its first relist"
		}
		return text + ". " + j.lookedAt()
	case e == j.Failing:
		text := "relists fail" + j.during(*e) + ", until the log ends; PLEG turns unhealthy 3m after the last good one"
		if len(incidents) > 0 {
			text += ". Before that: " + units.Count(len(incidents), "incident")
		}
		return text
	}
	text := "PLEG was not healthy" + j.during(*e)
	if e.NotReady != "" {
		text = "the node was NotReady" + j.during(*e)
	}
	if n := len(incidents); n > 1 {
		text = units.Count(n, "incident") + "; #" + units.Number(journal.MainIncident(incidents)+1) + j.during(*e)
	}
	if e.MaxLastSeenSeconds > 0 {
		text += ", last relist up to " + age(*e) + " old"
	}
	if !e.Recovered {
		return text + ", not over when the log ends"
	}
	return text + ", recovered"
}

// during returns such as " from 2026-11-21 00:52:12 UTC to 00:56:07 (3m55s)"; nothing without a time.
func (j *journalDoc) during(e journal.Episode) string {
	if e.Start == nil || e.End == nil {
		return ""
	}
	text := " from " + j.calendar.full(*e.Start, *e.End)
	if e.Seconds > 0 {
		text += " (" + units.Seconds(e.Seconds) + ")"
	}
	return text
}

// nothingRead returns why nothing could be looked at.
func nothingRead(c cleaner, r *journal.Report) string {
	bad := unread(r)
	switch {
	case len(bad) > 1:
		first := c.prose(bad[0].Name + ": " + bad[0].Problem)
		return "none of " + units.Count(len(bad), "source") + " could be read; the first: " + first
	case len(bad) == 1:
		return c.prose(bad[0].Name + ": " + bad[0].Problem)
	case len(r.Notes) > 0:
		return c.prose(r.Notes[0])
	}
	return "no record could be read"
}

// lookedAt returns what the answer rests on.
func (j *journalDoc) lookedAt() string {
	text := "Looked at " + units.Count(j.Lines, "record")
	if len(j.Sources) == 1 {
		text += " of " + middle(j.prose(path.Base(j.Sources[0].Name)), 2*mostName)
	} else {
		text += " of " + units.Count(len(j.Sources), "source")
	}
	if j.From != nil && j.To != nil {
		text += ", " + j.calendar.full(*j.From, *j.To)
	}
	if n := len(unread(j.Report)); n > 0 {
		text += "; not read to the end: " + units.Count(n, "source")
	}
	return text
}

// age returns the worst age of an episode, or a dash.
func age(e journal.Episode) string {
	if e.MaxLastSeenSeconds <= 0 {
		return "-"
	}
	return units.Seconds(e.MaxLastSeenSeconds)
}

// eventText describes an event: its words, else its code, and its subject.
func eventText(e journal.Event) string {
	text := cmp.Or(e.What, e.Code)
	if e.Subject != "" {
		text += ": " + e.Subject
	}
	return text
}

func (j *journalDoc) eventLine(e journal.Event) string {
	text := j.prose(eventText(e))
	if e.Count > 1 {
		text += ", " + units.Number(e.Count) + " records"
		if e.Until != nil && j.stamp(e.Until) != j.stamp(e.At) {
			text += " to " + j.stamp(e.Until)
		}
	}
	return text
}

// finding returns what was found, when, and the words of the last record; the headline has the summary.
func (j *journalDoc) finding(f journal.Finding) string {
	text := j.prose(f.Code)
	if f.First != nil {
		text += ", " + j.span(f.First, f.Last)
	}
	if f.Ongoing {
		text += ", until the log ends"
	}
	if f.Words != "" {
		text += ": " + briefLine{j.cleaner, mostWords}.cut(j.prose(f.Words))
	}
	return text
}

// journal puts the answer of kdiag journal into one line.
func (m briefLine) journal(r *journal.Report) string {
	c, e := calendarOf(r), r.Headline()
	line, cause := r.Verdict+" ", ""
	if e != nil && len(e.Causes) > 0 {
		cause = m.prose(e.Causes[0].Code)
	}
	incidents := units.Count(len(r.Incidents()), "incident")
	since := func(t *time.Time) string {
		if t == nil {
			return ""
		}
		return ", since " + c.short(*t)
	}
	switch {
	case r.Verdict == checks.LogUnknown:
		line += nothingRead(m.cleaner, r)
	case len(r.Findings) > 0:
		f := r.Findings[0]
		if r.Verdict == checks.LogBroken {
			line = r.Verdict + ", but "
		}
		line += units.Number(f.Count) + "x " + m.prose(f.Code)
		if f.First != nil {
			line += ", " + c.short(*f.First)
		}
	case e == nil:
		line += "in " + units.Count(r.Lines, "record")
		if r.From != nil && r.To != nil {
			line += ", " + c.short(*r.From) + " to " + c.short(*r.To)
		}
	case e == r.Failing:
		line += strings.TrimSpace(cause+" relists fail") + since(e.Start)
	default:
		line += incidents
		if e.MaxLastSeenSeconds > 0 {
			line += ", age " + age(*e)
		}
		if cause != "" {
			line += ": " + cause
		}
		if e.Start != nil && e.Recovered {
			line += ", " + c.short(*e.Start) + " for " + units.Seconds(e.Seconds)
		} else {
			line += since(e.Start)
		}
	}
	return line
}

// A JournalFollower prints a growing report as it grows: a line for each event, and one for each change of an incident.
type JournalFollower struct {
	w     io.Writer
	o     Options
	known []journal.Episode // the incidents as they were last
	begun bool              // the first report was printed
}

// NewJournalFollower returns a follower that prints text to w.
func NewJournalFollower(w io.Writer, o Options) *JournalFollower {
	return &JournalFollower{w: w, o: o}
}

// followHang is where text begins: behind the time, and the lane or the verdict.
const followHang = 27

// plegNotHealthy is the code of the records of which episodes consist; the lines about the episode show more.
const plegNotHealthy = "PLEGNotHealthy"

// Update prints what is new: the event, unless it is empty, and what it changed. The first report is printed as a
// headline: what was before is no news.
func (f *JournalFollower) Update(r *journal.Report, e journal.Event) error {
	p := newPage(f.o)
	j := textOf(p, r)
	j.days = true // it may go on for days
	if !f.begun {
		f.begun = true
		if r.Lines > 0 {
			j.top()
		}
		p.text(0, "Waiting for records; Ctrl-C ends.")
		f.known = r.Incidents()
	}
	if e.Code != "" && e.Code != plegNotHealthy {
		when := j.stamp(cmp.Or(e.At, r.To)) // without a time, it has just come in
		lead := []span{plain(when + "  " + pad(p.prose(e.Lane), 9) + " "), p.sign(e.Marker), plain(" ")}
		p.flow(lead, followHang, plain(j.eventLine(e)))
	}
	f.incidents(j, p)
	if p.out.Len() == 0 {
		return nil
	}
	_, err := f.w.Write(p.bytes())
	return err
}

// incidents prints how incidents changed since the last time.
func (f *JournalFollower) incidents(j *journalDoc, p *page) {
	all, minutes := j.Incidents(), func(e journal.Episode) float64 { return math.Floor(e.MaxLastSeenSeconds / 60) }
	for i, e := range all {
		text := ""
		word, at := span{checks.LogUnhealthy, verdictInk(checks.Unhealthy)}, e.End
		switch {
		case i >= len(f.known):
			text, at = "PLEG is not healthy", e.Start
			if e.NotReady != "" {
				text = "the node is NotReady"
			}
		case e.Recovered && !f.known[i].Recovered:
			text = "after " + units.Seconds(e.Seconds)
			word, at = span{checks.LogRecovered, verdictInk(checks.Degraded)}, cmp.Or(e.RecoveredAt, e.End)
		case !e.Recovered && (f.known[i].Recovered || minutes(e) > minutes(f.known[i])):
			text = "still not healthy"
		}
		if text == "" {
			continue
		}
		text += ", last relist up to " + age(e) + " old"
		if len(e.Causes) > 0 {
			text += "; " + p.prose(e.Causes[0].Code) + ", " + confidence(e.Causes[0].Confidence)
		}
		p.flow([]span{plain(j.stamp(at) + "  "), word, plain(" ")}, followHang, plain(text))
	}
	f.known = all // fewer than before where two turn out to be one
}
