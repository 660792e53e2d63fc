package render

import (
	"cmp"
	"io"
	"math"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal"
)

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
