package render

import (
	"io"
	"math"
	"time"

	"github.com/kdiag/kdiag/journal"
)

// Printable returns a string from outside in one line in which nothing acts on a terminal.
func Printable(s string) string { return cleaner{}.prose(s) }

// JournalHeadline prints only the first lines of a report in text: how it is now.
func JournalHeadline(w io.Writer, r *journal.Report, o Options) error {
	o.Format = Text
	return print(w, "journal report", o, view{text: func(p *page) {
		p.journalTop(r, calendarOf(r))
	}})
}

// A JournalFollower prints a growing report as it grows: a line for each event, and one for each change of an incident.
type JournalFollower struct {
	w     io.Writer
	o     Options
	known []followed
	begun bool   // the first report was printed
	day   string // that the lines printed last are of
}

// A followed is what was said of an incident.
type followed struct {
	recovered bool
	minutes   int // of its worst age
}

// NewJournalFollower returns a follower that prints text to w.
func NewJournalFollower(w io.Writer, o Options) *JournalFollower {
	o.Format = Text
	return &JournalFollower{w: w, o: o}
}

// Update prints what is new: the event, unless it is empty, and what it changed. The first report is printed as a
// headline: what was before is no news.
func (f *JournalFollower) Update(r *journal.Report, e journal.Event) error {
	p := newPage(f.w, f.o)
	c := calendarOf(r)
	if !f.begun {
		f.begun = true
		f.begin(p, r, c)
	}
	if e.At == nil {
		e.At = r.To // it has just come in
	}
	if e.At != nil && e.Code != "" {
		f.newDay(p, c, *e.At)
	}
	c.days, c.years = false, false
	if e.Code != "" && e.Code != plegNotHealthy {
		p.followLine(c.stamp(e.At), span{p.prose(e.Lane), nil}, p.markSpan(e.Marker), p.eventLine(e, c))
	}
	f.incidents(p, incidentsOf(r), c)
	if p.out.Len() == 0 {
		return nil
	}
	_, err := f.w.Write(p.bytes())
	return err
}

// plegNotHealthy is the code of the records of which episodes consist; the lines about the episode say more.
const plegNotHealthy = "PLEGNotHealthy"

// begin says how it is when the following begins.
func (f *JournalFollower) begin(p *page, r *journal.Report, c calendar) {
	p.journalTop(r, c)
	p.flow(nil, 0, plain("Following; Ctrl-C ends."))
	for _, e := range incidentsOf(r) {
		f.known = append(f.known, followedOf(e))
	}
}

func followedOf(e journal.Episode) followed {
	return followed{e.Recovered, int(math.Floor(e.MaxLastSeenSeconds / 60))}
}

// newDay says which day and zone the lines from now on are of, where that has changed.
func (f *JournalFollower) newDay(p *page, c calendar, at time.Time) {
	if day := c.date(at) + " " + c.zoneName(at); day != f.day {
		f.day = day
		p.put(span{day, &p.ink.bold})
	}
}

// incidents prints how incidents changed since the last time.
func (f *JournalFollower) incidents(p *page, incidents []journal.Episode, c calendar) {
	if len(f.known) > len(incidents) { // two turned out to be one
		f.known = f.known[:len(incidents)]
	}
	for i, e := range incidents {
		now := followedOf(e)
		if i == len(f.known) {
			f.known = append(f.known, followed{minutes: now.minutes})
			p.followLine(c.stamp(e.Start), p.stateSpan(journalUnhealthy), plain(""), begun(e, c))
		}
		was := &f.known[i]
		switch {
		case now.recovered && !was.recovered:
			p.followLine(c.stamp(cmpOr(e.RecoveredAt, e.End)), p.stateSpan(journalRecovered), plain(""), p.ended(e))
		case !now.recovered && was.recovered:
			p.followLine(c.stamp(e.End), p.stateSpan(journalUnhealthy), plain(""), "again, age "+age(e))
		case now.minutes > was.minutes:
			p.followLine(c.stamp(e.End), p.stateSpan(journalUnhealthy), plain(""), p.still(e))
		}
		*was = now
	}
}

func begun(e journal.Episode, c calendar) string {
	text := "PLEG is not healthy, age " + age(e)
	if e.Anchor != nil {
		text += "; the last good relist began at " + c.stamp(e.Anchor)
	}
	return text
}

func (p *page) still(e journal.Episode) string {
	text := "still not healthy, age " + age(e) + ", " + plural(e.Lines, "record")
	return text + p.likely(e)
}

func (p *page) ended(e journal.Episode) string {
	return "after " + lasted(e) + ", worst age " + age(e) + ", " + plural(e.Lines, "record") + p.likely(e)
}

func (p *page) likely(e journal.Episode) string {
	if len(e.Causes) == 0 {
		return ""
	}
	return "; " + p.prose(e.Causes[0].Code) + " " + confidence(e.Causes[0].Confidence)
}

func (p *page) stateSpan(s journalState) span {
	style := p.ink.journal(s)
	return span{s.word(), &style}
}

func (p *page) markSpan(kind string) span {
	return span{string(newSceneGlyphs(p.ascii).mark(kind)), p.markStyle(kind)}
}

// followLine writes when, who or how bad, and what.
func (p *page) followLine(when string, who, sign span, text string) {
	lead := []span{plain(when + "  "), who, plain(spaces(9-columns(who.text)) + " ")}
	if sign.text != "" {
		lead = append(lead, sign, plain(" "))
	}
	p.flow(lead, 8+2+9+1, plain(text))
}
