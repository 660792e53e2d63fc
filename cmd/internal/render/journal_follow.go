package render

import (
	"cmp"
	"io"
	"math"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal"
)

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
		p.followLine(c.stamp(e.At), span{p.prose(e.Lane), nil}, p.eventSign(e.Marker), p.eventLine(e, c))
	}
	f.incidents(p, r.Incidents(), c)
	if p.out.Len() == 0 {
		return nil
	}
	_, err := f.w.Write(p.bytes())
	return err
}

// plegNotHealthy is the code of the records of which episodes consist; the lines about the episode say more.
const plegNotHealthy = "PLEGNotHealthy"

// begin writes how it is when the following begins.
func (f *JournalFollower) begin(p *page, r *journal.Report, c calendar) {
	p.journalTop(r, c)
	p.flow(nil, 0, plain("Following; Ctrl-C ends."))
	for _, e := range r.Incidents() {
		f.known = append(f.known, followedOf(e))
	}
}

func followedOf(e journal.Episode) followed {
	return followed{e.Recovered, int(math.Floor(e.MaxLastSeenSeconds / 60))}
}

// newDay writes which day and zone the lines from now on are of, where that has changed.
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
			p.followLine(c.stamp(e.Start), p.state(checks.LogUnhealthy, checks.Unhealthy), plain(""), begun(e, c))
		}
		was := &f.known[i]
		switch {
		case now.recovered && !was.recovered:
			p.followLine(c.stamp(cmp.Or(e.RecoveredAt, e.End)), p.state(checks.LogRecovered, checks.Degraded),
				plain(""), p.ended(e))
		case !now.recovered && was.recovered:
			p.followLine(c.stamp(e.End), p.state(checks.LogUnhealthy, checks.Unhealthy), plain(""),
				"again, age "+age(e))
		case now.minutes > was.minutes:
			p.followLine(c.stamp(e.End), p.state(checks.LogUnhealthy, checks.Unhealthy), plain(""), p.still(e))
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
	text := "still not healthy, age " + age(e) + ", " + units.Count(e.Lines, "record")
	return text + p.likely(e)
}

func (p *page) ended(e journal.Episode) string {
	return "after " + lasted(e) + ", worst age " + age(e) + ", " + units.Count(e.Lines, "record") + p.likely(e)
}

func (p *page) likely(e journal.Episode) string {
	if len(e.Causes) == 0 {
		return ""
	}
	return "; " + p.prose(e.Causes[0].Code) + " " + confidence(e.Causes[0].Confidence)
}

// state is the verdict of an incident.
func (p *page) state(word string, v checks.Verdict) span {
	style := p.ink.verdict(v)
	return span{word, &style}
}

// followLine writes when, who or how bad, and what.
func (p *page) followLine(when string, who, sign span, text string) {
	lead := []span{plain(when + "  "), who, plain(spaces(9-columns(who.text)) + " ")}
	if sign.text != "" {
		lead = append(lead, sign, plain(" "))
	}
	p.flow(lead, 8+2+9+1, plain(text))
}
