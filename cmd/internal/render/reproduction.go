package render

import (
	"fmt"
	"io"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/plegbench/syncloop/reproduce"
)

// A ReproductionReport is the document of kdiag reproduce.
type ReproductionReport struct {
	checks.Header
	Hint string `json:"hint,omitempty"` // what to do about the problems
	*reproduce.Report
}

// Reproduction prints the answer of kdiag reproduce. As text it is only what follows the timeline, which a Timeline has
// printed as it happened.
func Reproduction(w io.Writer, r *ReproductionReport, o Options) error {
	line := reproducedWord(r).text + " " + o.brief().reproducedSentence(r)
	return write(w, o, r, func(p *page) { p.reproduced(r) }, line)
}

// A Timeline prints the events of a reproduction as they happen, each beside a bar of time. It is for one goroutine.
type Timeline struct {
	w    io.Writer
	opts Options
}

// The columns of a timeline.
const (
	timeWidth = 8
	whatWidth = 13
)

// NewTimeline prints the head of a timeline. A writer that fails shows at the end, with the report.
func NewTimeline(w io.Writer, s reproduce.Scenario, on string, speed float64, o Options) *Timeline {
	p := newPage(o)
	p.heading(p.prose(s.Name), plain(p.prose(s.Summary)))
	pace := "kubelet speed"
	if speed != 1 {
		pace = fmt.Sprintf("%.4gx speed; left column shows kubelet time, quoted log lines show real time", speed)
	}
	p.text(2, "on "+p.prose(on)+"; "+pace)
	_, _ = w.Write(append(p.bytes(), '\n'))
	return &Timeline{w, o}
}

// Event prints one.
func (t *Timeline) Event(e reproduce.Event) {
	p := newPage(t.opts)
	lead, text := p.event(e)
	p.flow(lead, timeWidth+whatWidth+4, text)
	_, _ = t.w.Write(p.bytes())
}

// event is an event in words, and what stands before them. The bar is full while the node is NotReady, and half while
// something is wrong and the condition does not show it.
func (p *page) event(e reproduce.Event) (lead []span, text span) {
	when, bar := "", span{p.glyph.mark, good}
	if e.KubeletSeconds != nil {
		when = "+" + kubeletTime(*e.KubeletSeconds)
	}
	switch {
	case !e.NodeReady:
		bar = span{p.glyph.full, bad}
	case e.Fault:
		bar = span{p.glyph.half, warn}
	}
	what := span{pad(string(e.What), whatWidth), whatInk(e.What)}
	lead = []span{plain(padLeft(when, timeWidth) + " "), bar, plain(" "), what, plain(" ")}
	return lead, plain(p.prose(e.Detail))
}

// kubeletTime is a time of the kubelet's, in whole seconds.
func kubeletTime(seconds float64) string {
	return units.Duration(units.ToDuration(seconds).Round(time.Second))
}

func whatInk(w reproduce.What) ink {
	switch w {
	case reproduce.NotReady, reproduce.Missed:
		return bad
	case reproduce.Fault, reproduce.RelistStuck, reproduce.RelistFailed, reproduce.StatusFailed, reproduce.Skip:
		return warn
	case reproduce.Ready, reproduce.Recovered, reproduce.Resume, reproduce.CleanedUp:
		return good
	}
	return ""
}

func reproducedWord(r *ReproductionReport) span {
	switch {
	case r.Interrupted:
		return span{"INTERRUPTED", strongly(unknown)}
	case len(r.Problems) > 0:
		return span{"UNKNOWN", strongly(unknown)}
	case len(r.Missed) > 0 || !r.CleanedUp:
		return span{"DIFFERENT", strongly(bad)}
	}
	return span{"REPRODUCED", strongly(good)}
}

func (c cleaner) reproducedSentence(r *ReproductionReport) string {
	name := c.prose(r.Scenario) + ": "
	if len(r.Problems) > 0 && !r.Interrupted {
		return name + c.prose(r.Problems[0])
	}
	if len(r.Missed) > 0 {
		return name + c.prose(r.Missed[0])
	}
	text := "the node stays Ready"
	switch {
	case r.NotReadyAfterKubeletSeconds != nil:
		text = "NotReady after " + kubeletTime(*r.NotReadyAfterKubeletSeconds)
	case r.Interrupted:
		text = "ended before NotReady"
	}
	if r.RecoveredAfterKubeletSeconds != nil {
		text += ", recovered " + kubeletTime(*r.RecoveredAfterKubeletSeconds) + " after the fault ended"
	}
	return name + text
}

func (p *page) reproduced(r *ReproductionReport) {
	p.out.WriteByte('\n') // apart from the timeline
	host := ""
	if r.Endpoint == "" {
		host = simulation
	}
	p.headline(reproducedWord(r), host, p.reproducedSentence(r))
	p.blank()
	if !r.Interrupted {
		p.pair("why", p.prose(r.Why))
	}
	if r.NotReadyAfterSeconds != nil {
		p.pair("condition", p.prose("Ready=False "+r.Reason+": "+r.Message))
		p.pair("NotReady", "after "+units.Seconds(*r.NotReadyAfterSeconds)+" in this run")
	}
	if r.RecoveredAfterSeconds != nil {
		p.pair("recovery", units.Seconds(*r.RecoveredAfterSeconds)+" after the fault ended, in this run")
	}
	p.list("", span{"!", bad}, r.Missed[min(len(r.Missed), 1):], len(r.Missed)) // the headline has the first
	if !r.CleanedUp {
		p.item(2, span{"!", bad}, "not everything of this run could be removed; once the runtime answers:")
		p.command(4, "kdiag reproduce --cleanup")
	}
	if r.Cause != "" || r.Log != "" {
		p.heading("Next")
	}
	if r.Cause != "" {
		p.item(2, plain("-"), "diagnose such a node:")
		p.command(4, "kdiag pleg --simulate "+r.Scenario)
		p.command(4, "kdiag explain "+r.Cause)
	}
	if r.Log != "" {
		p.item(2, plain("-"), "find it in the kubelet's log:")
		p.command(4, "kdiag journal "+r.Log)
	}
}
