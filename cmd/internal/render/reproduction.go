package render

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/charmbracelet/lipgloss"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/plegbench/syncloop/reproduce"
)

// A ReproductionReport is the document of kdiag reproduce.
type ReproductionReport struct {
	checks.Header
	*reproduce.Report
}

// Reproduction prints the answer of kdiag reproduce. As text it is only what follows the timeline, which a Timeline has printed as it
// happened.
func Reproduction(w io.Writer, r *ReproductionReport, o Options) error {
	return write(w, "reproduction", o, view{
		doc:   r,
		text:  func(p *page) { p.reproduced(r) },
		brief: func(m briefLine) string { return m.cut(reproducedWord(r) + " " + reproducedSentence(m.cleaner, r)) },
	})
}

// A Timeline prints the events of a reproduction as they happen, each beside a bar of time. It is for one goroutine.
type Timeline struct {
	w     io.Writer
	opts  Options
	speed float64
	last  float64 // seconds of the kubelet's after the fault; below 0 before it
	state barState
}

// A barState is what the bar of time shows: the node's condition and whether something is wrong.
type barState struct{ fault, ready bool }

// The columns of a timeline, and how much of the kubelet's time a line of an otherwise empty bar stands for.
const (
	timeWidth   = 8
	whatWidth   = 13
	barSeconds  = 30
	mostBarOnly = 6
)

// NewTimeline prints the head of a timeline. A writer that fails shows at the end, with the report.
func NewTimeline(w io.Writer, s reproduce.Scenario, on string, speed float64, o Options) *Timeline {
	t := &Timeline{w: w, opts: o, speed: speed, last: -1}
	p := newPage(w, o)
	p.flow([]span{{p.prose(s.Name), &p.ink.bold}, plain("  ")}, 2, plain(p.prose(s.Summary)))
	pace := "at a kubelet's own pace"
	if speed != 1 {
		pace = "all periods of the kubelet are " + factor(speed) + " times shorter: a minute of a kubelet's takes " + duration(60/speed) +
			" here. Times on the left are a kubelet's, counted from the fault; figures in its own words are this run's"
	}
	p.flow([]span{plain("  ")}, 2, plain("on "+p.prose(on)+"; "+pace))
	p.blank()
	_, _ = w.Write(append(p.bytes(), '\n'))
	return t
}

func factor(f float64) string {
	if f == math.Trunc(f) {
		return count(int(f))
	}
	return fmt.Sprintf("%.1f", f)
}

// Event prints one.
func (t *Timeline) Event(e reproduce.Event) {
	p := newPage(t.w, t.opts)
	when := ""
	if e.KubeletSeconds != nil {
		at := *e.KubeletSeconds
		for i := 1.0; t.last >= 0 && t.last+i*barSeconds < at && i <= mostBarOnly; i++ {
			p.put(plain(spaces(timeWidth+1)), p.bar(t.state))
		}
		t.last = at
		when = "+" + kubeletTime(at)
	}
	t.state = barState{e.Fault, e.NodeReady}
	lead := []span{plain(padLeft(when, timeWidth) + " "), p.bar(t.state), plain(" "), {pad(string(e.What), whatWidth), p.kind(e.What)}, plain(" ")}
	p.flow(lead, timeWidth+whatWidth+4, plain(p.prose(e.Detail)))
	_, _ = t.w.Write(p.bytes())
}

// kubeletTime is a time of the kubelet's, as its periods are written: 2m04s.
func kubeletTime(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second)).Round(time.Second)
	return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
}

// bar is one line of the bar of time: full while the node is NotReady, half while something is wrong and it does not show.
func (p *page) bar(s barState) span {
	switch {
	case !s.ready:
		return span{p.glyph.full, &p.ink.bad}
	case s.fault:
		return span{p.glyph.half, &p.ink.warn}
	}
	return span{p.glyph.mark, &p.ink.good}
}

func (p *page) kind(w reproduce.What) *lipgloss.Style {
	switch w {
	case reproduce.NotReady, reproduce.Missed:
		return &p.ink.bad
	case reproduce.Fault, reproduce.RelistStuck, reproduce.RelistFailed, reproduce.StatusFailed, reproduce.EventsStop, reproduce.Skip:
		return &p.ink.warn
	case reproduce.Ready, reproduce.Recovered, reproduce.Resume, reproduce.CleanedUp:
		return &p.ink.good
	}
	return nil
}

func reproducedWord(r *ReproductionReport) string {
	switch {
	case r.Interrupted:
		return "INTERRUPTED"
	case len(r.Problems) > 0:
		return "UNKNOWN"
	case len(r.Missed) > 0 || !r.CleanedUp:
		return "DIFFERENT"
	}
	return "REPRODUCED"
}

func reproducedSentence(c cleaner, r *ReproductionReport) string {
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
		text = "NotReady had not come"
	}
	if r.RecoveredAfterKubeletSeconds != nil {
		text += ", well " + kubeletTime(*r.RecoveredAfterKubeletSeconds) + " after the fault's end"
	}
	return name + text
}

func (p *page) reproduced(r *ReproductionReport) {
	p.out.WriteByte('\n') // apart from the timeline
	word, style := reproducedWord(r), &p.ink.goodV
	switch word {
	case "INTERRUPTED":
		style = &p.ink.unknownV
	case "DIFFERENT":
		style = &p.ink.badV
	}
	p.flow([]span{{word, style}, plain("  ")}, columns(word)+2, plain(reproducedSentence(p.cleaner, r)))
	p.blank()
	if !r.Interrupted {
		p.pair("why", labelWidth, p.prose(r.Why))
	}
	if r.NotReadyAfterSeconds != nil {
		p.pair("condition", labelWidth, p.prose("Ready=False "+r.Reason+": "+r.Message))
		p.pair("NotReady", labelWidth, "after "+duration(*r.NotReadyAfterSeconds)+p.ownPace(r, *r.NotReadyAfterKubeletSeconds))
	}
	if r.RecoveredAfterSeconds != nil {
		p.pair("recovery", labelWidth, duration(*r.RecoveredAfterSeconds)+" after the fault's end"+p.ownPace(r, *r.RecoveredAfterKubeletSeconds))
	}
	for i, missed := range r.Missed {
		if i > 0 {
			p.item(2, span{"!", &p.ink.bad}, p.prose(missed))
		}
	}
	if !r.CleanedUp {
		p.item(2, span{"!", &p.ink.bad}, "not all that this run made could be removed; once the runtime answers:")
		p.command(4, "kdiag reproduce --cleanup")
	}
	p.nextOfReproduction(r)
}

func (p *page) ownPace(r *ReproductionReport, seconds float64) string {
	if r.Speed == 1 {
		return ""
	}
	return ", " + kubeletTime(seconds) + " at a kubelet's own pace"
}

func (p *page) nextOfReproduction(r *ReproductionReport) {
	if r.Cause == "" && r.Log == "" {
		return
	}
	p.heading("Next")
	if r.Cause != "" {
		p.item(2, plain("-"), "what kdiag pleg says on such a node, and what to do:")
		p.command(4, "kdiag pleg --simulate "+r.Scenario)
		p.command(4, "kdiag explain "+r.Cause)
	}
	if r.Log != "" {
		p.item(2, plain("-"), "the same in the kubelet's log:")
		p.command(4, "kdiag journal "+r.Log)
	}
}
