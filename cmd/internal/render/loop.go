package render

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/plegbench/syncloop"
	"github.com/kdiag/kdiag/plegbench/syncloop/podworkers"
	"github.com/kdiag/kdiag/plegbench/syncloop/reproduce"
)

// A LoopView is a syncLoop at one moment, for a person at a terminal.
type LoopView struct {
	Now      time.Time
	Snapshot syncloop.Snapshot
	Log      []string // its newest lines, oldest first
	Story    *Story   // the incident that is played on it, which is shown instead of the log; nil: none
}

// A Story is an incident so far.
type Story struct {
	Scenario reproduce.Scenario
	Endpoint string  // of the runtime; empty for the embedded one
	Speed    float64 // times are shown at a kubelet's own pace
	Events   []reproduce.Event
	Report   *ReproductionReport // nil until it is over
}

const (
	loopLabel = 8               // columns of the labels of a view
	slow      = 5 * time.Second // a relist or a worker that takes so long is coloured
	widestPod = 44              // columns of a pod's name
)

// Draw returns the view in lines for a terminal of width columns and height lines. Each line is one column narrower:
// some terminals erase the last column together with what is behind it.
func (v LoopView) Draw(width, height int, o Options) []string {
	const narrowest = 12 // columns into which text is wrapped
	p, tail := newPage(o), newPage(o)
	p.wrap = max(width-1, narrowest)
	tail.wrap = p.wrap
	title := "LOG"
	if v.Story == nil {
		for _, line := range v.Log {
			tail.logLine(line)
		}
		p.oneLine(nil, span{"kdiag syncloop  " + v.Now.UTC().Format(time.TimeOnly) + " UTC  " +
			p.prose(v.Snapshot.Node) + "  " + p.prose(v.Snapshot.Runtime) + "  (q: leave)", strong})
	} else {
		for _, e := range v.Story.Events {
			lead, text := tail.event(e)
			tail.oneLine(lead, text)
		}
		title = "EVENTS  at the kubelet's pace; messages show the time of this run"
		p.story(v.Story, v.Now)
	}
	lines := slices.Collect(strings.Lines(tail.out.String()))
	if v.Story == nil || v.Story.Report == nil {
		p.loop(&v)
		room := max(height-bytes.Count(p.out.Bytes(), []byte("\n"))-2, 0) // without two headings
		p.pods(&v, max(room*2/3, room-len(lines)))
	}
	p.oneLine(nil, span{title, strong})
	out := slices.Collect(strings.Lines(p.out.String()))
	out = append(out, lines[max(0, len(lines)-max(0, height-len(out))):]...)
	return crop(out[:min(len(out), height)], width)
}

// crop cuts each line to a screen of so many columns: a command is not wrapped.
func crop(lines []string, width int) []string {
	for i, line := range lines {
		lines[i] = ansi.Truncate(strings.TrimRight(line, "\n"), max(width-1, 1), "")
	}
	return lines
}

// Above lays out an answer on a screen, with the newest of some changes below it, and a last line. A longer line of the
// answer, a command, stays whole: the terminal continues it in the next row, so that it can be copied. What does not
// fit is left out.
func Above(answer string, changes []string, last string, width, height int) []string {
	var out []string
	room := height - 2
	for line := range strings.SplitSeq(strings.TrimRight(answer, "\n"), "\n") {
		if n := ansi.StringWidth(line); n > 0 && n%width == 0 {
			line += " " // what erases the rest of a row would erase its last column
		}
		if room -= 1 + max(ansi.StringWidth(line)-1, 0)/width; room < 0 {
			break
		}
		out = append(out, line)
	}
	newest := each(changes[max(0, len(changes)-max(room, 0)):], func(s string) string {
		return briefLine{width: max(width-1, 1)}.cut(cleaner{}.prose(s))
	})
	out = append(append(out, ""), crop(append(newest, last), width)...)
	return out[max(0, len(out)-height):]
}

// since is how long ago something was, at the kubelet's pace.
func (v *LoopView) since(t time.Time) time.Duration {
	d := v.Now.Sub(t)
	if v.Story != nil {
		return v.Story.paced(d)
	}
	return d
}

// logLine writes a line of klog's.
func (p *page) logLine(line string) {
	text := p.prose(line)
	p.oneLine(nil, span{text, map[byte]ink{'E': bad, 'W': warn}[(text + " ")[0]]})
}

// labelled writes one line behind a label.
func (p *page) labelled(label string, i ink, format string, args ...any) {
	p.oneLine([]span{plain(pad(label, loopLabel))}, span{p.prose(fmt.Sprintf(format, args...)), i})
}

// loop writes how the syncLoop, PLEG and the node are.
func (p *page) loop(v *LoopView) {
	loop, relist := v.Snapshot.Loop, v.Snapshot.PLEG
	since := func(t time.Time) string {
		if t.IsZero() {
			return "long" // never
		}
		return units.Duration(v.since(t))
	}
	p.labelled("LOOP", "", "last turn %s ago, %d turns, %d updates pending", since(loop.LastTurn), loop.Turns,
		loop.Updates)
	if !loop.SkippingSince.IsZero() {
		p.labelled("", bad, "skipping for %s: %s", since(loop.SkippingSince), loop.Why)
	}
	for _, c := range loop.Channels {
		if v.Story == nil && c.Read > 0 {
			p.labelled("", "", "%-14s %5d, %s ago: %s", c.Name, c.Read, since(c.Last), cmp.Or(c.What, "clean up"))
		}
	}
	if age := v.Now.Sub(relist.LastRelist); relist.LastRelist.IsZero() {
		p.labelled("PLEG", "", "no good relist yet")
	} else {
		const width = 24
		limit := v.since(v.Now.Add(-relist.Threshold))
		under, beyond := p.glyph.limitBar(age.Seconds()/relist.Threshold.Seconds(), width)
		p.flow([]span{plain(pad("PLEG", loopLabel) + under), {beyond, bad}, plain(spaces(width + 1 - columns(under+beyond)))},
			loopLabel, plain("last good relist "+since(relist.LastRelist)+" ago, limit "+units.Duration(limit)))
	}
	running, color := "none in progress", ink("")
	if t := relist.InProgressSince; !t.IsZero() {
		running = "one in progress for " + since(t)
		if v.since(t) >= slow {
			color = warn
		}
	}
	p.labelled("", color, "%d relists, %d failed; %s", relist.Relists, relist.Failures, running)
	p.labelled("", "", "cache %s old, %d pods to inspect again; events: %d pending, %d dropped",
		since(relist.LastRelist), relist.Uninspected, relist.Queued, relist.Discarded)
	for _, c := range v.Snapshot.Conditions {
		if age := since(c.LastTransitionTime.Time); (c.Type == "Ready") != (c.Status == "True") {
			p.labelled("NODE", bad, "%s for %s: %s", strings.Replace(string(c.Type), "Ready", "NotReady", 1), age, c.Message)
		} else if c.Type == "Ready" {
			p.labelled("NODE", good, "Ready for %s", age)
		}
	}
}

// pods writes the workers of the pods, at most so many.
func (p *page) pods(v *LoopView, most int) {
	s := &v.Snapshot
	phases := map[string]string{}
	for _, pod := range s.Pods {
		phases[string(pod.UID)] = string(pod.Status.Phase)
	}
	name := func(w podworkers.WorkerState) string {
		if v.Story != nil { // all pods are of this node and in the same namespace
			_, short, _ := strings.Cut(strings.TrimSuffix(w.Name, "-"+s.Node), "/")
			return p.prose(short)
		}
		return p.prose(w.Name)
	}
	slices.SortStableFunc(s.Workers, func(a, b podworkers.WorkerState) int {
		return cmp.Or(strings.Compare(activity(b), activity(a)), a.Since.Compare(b.Since))
	})
	p.oneLine(nil, span{fmt.Sprintf("PODS    %d, workers: %d, the busy first", len(s.Pods), len(s.Workers)), strong})
	shown := s.Workers[:min(len(s.Workers), most)]
	widest := 0
	for _, w := range shown {
		widest = max(widest, min(columns(name(w)), widestPod))
	}
	for _, w := range shown {
		i := ink("")
		if activity(w) != "idle" && v.since(w.Since) >= slow {
			i = warn
		}
		p.oneLine(nil, span{fmt.Sprintf("%s  %-9s  %s, %s, %s", pad(middle(name(w), widest), widest),
			cmp.Or(phases[string(w.UID)], "gone"), w.Step, activity(w), units.Duration(v.since(w.Since))), i})
	}
}

// activity returns what a worker does.
func activity(w podworkers.WorkerState) string {
	switch {
	case w.WaitingInCache:
		return "waits for PLEG"
	case w.Busy:
		return "works"
	}
	return "idle"
}

// story writes what is played, the present step and what to look at; at the end the answer.
func (p *page) story(s *Story, now time.Time) {
	on, clock := "", ""
	if s.Endpoint == "" {
		on = simulation + "  "
	}
	step, what, look, began := s.step(now)
	if !began.IsZero() && s.Report == nil {
		clock = "+" + kubeletTime(s.paced(now.Sub(began)).Seconds()) + "  "
	}
	p.flow([]span{{"kdiag reproduce " + p.prose(s.Scenario.Name), strong}, plain("  ")}, 2,
		plain(fmt.Sprintf("%s%s%.4gx speed  (q: leave)", on, clock, s.Speed)))
	if s.Report != nil {
		p.reproduced(s.Report)
		p.blank()
		return
	}
	p.flow([]span{{pad("STEP", loopLabel), strong}}, loopLabel, plain(fmt.Sprintf("%d of 4: ", step)+p.prose(what)))
	p.flow([]span{{pad("LOOK", loopLabel), strong}}, loopLabel, span{p.prose(look), info})
}

// paced is a duration of the run at the kubelet's pace.
func (s *Story) paced(d time.Duration) time.Duration { return time.Duration(float64(d) * s.Speed) }

// step is the number of the present step, what happens in it, what to look at, and when the first fault began.
func (s *Story) step(now time.Time) (step int, what, look string, began time.Time) {
	var last reproduce.Event
	faults, times := 0, max(s.Scenario.Times, 1)
	for _, e := range s.Events {
		switch e.What {
		case reproduce.Fault:
			if faults++; faults == 1 {
				began = e.At
			}
			last = e
		case reproduce.Lifted, reproduce.Recovered:
			last = e
		}
	}
	ago := kubeletTime(s.paced(now.Sub(last.At)).Seconds())
	fault := "the fault"
	if times > 1 {
		fault = fmt.Sprintf("fault %d of %d", faults, times)
	}
	switch {
	case faults == 0:
		return 1, "the kubelet starts its pods", "PODS: all become Running, then the fault begins", began
	case last.What == reproduce.Fault:
		return 2, fmt.Sprintf("%s, for %s of %s: %s", fault, ago, units.Duration(time.Duration(s.Scenario.Hold)),
			s.Scenario.Summary), s.Scenario.Look, began
	case last.What == reproduce.Lifted && faults < times:
		return 2, fmt.Sprintf("%s ended %s ago; the next begins after %s", fault, ago,
			units.Duration(time.Duration(s.Scenario.Pause))), s.Scenario.Look, began
	case last.What == reproduce.Lifted:
		return 3, "recovery: the fault ended " + ago + " ago",
			"PLEG: a relist succeeds. LOOP: goes on. PODS: what died runs again. NODE: Ready", began
	}
	return 4, "clean-up: what was created is removed", "the verdict follows", began
}

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

// A Tracer prints the life of a pod as it happens. It is not safe for use by several goroutines.
type Tracer struct {
	Out    io.Writer
	Format Format // text, or JSON with one object a line
	Keep   bool   // for HTML

	steps []syncloop.Step
	part  string // of the last step
}

// Step prints one step. A line with the name of the part goes before the first of several steps of it.
func (t *Tracer) Step(s syncloop.Step) {
	if t.Keep {
		t.steps = append(t.steps, s)
	}
	if t.Format == JSON {
		line, _ := json.Marshal(struct { // nothing that JSON lacks
			Kind string  `json:"kind"`
			N    int     `json:"n,omitempty"`
			At   float64 `json:"atSeconds"`
			Took float64 `json:"tookSeconds"`
			Part string  `json:"part,omitempty"`
			Func string  `json:"func,omitempty"`
			Text string  `json:"text"`
		}{s.Kind, s.N, s.At.Seconds(), s.Took.Seconds(), s.Part, s.Func, s.Text})
		_, _ = fmt.Fprintf(t.Out, "%s\n", line)
		return
	}
	text, took := Printable(s.Text), units.Duration(s.Took)
	switch s.Kind {
	case syncloop.StepWork:
		if s.Took == 0 {
			took = ""
		}
		if s.Part != t.part {
			_, _ = fmt.Fprintln(t.Out, " "+s.Part)
		}
		t.part = s.Part
		_, _ = fmt.Fprintf(t.Out, "%4d  +%-7s %-7s %-21s %s\n", s.N, units.Duration(s.At), took, s.Func, text)
		return
	case syncloop.StepWaiting:
		_, _ = fmt.Fprintf(t.Out, "      waiting: %s %s\n", took, text)
		return
	case syncloop.StepEnd:
		text += after(s)
	}
	t.part = ""
	_, _ = fmt.Fprintln(t.Out, text)
}

// after tells how long the slowest work of a chapter took, and the chapter.
func after(s syncloop.Step) string {
	if s.Took == 0 {
		return " after " + units.Duration(s.At)
	}
	return ", " + units.Duration(s.Took) + " of " + units.Duration(s.At)
}

// HTML writes what was kept as one page, with a lane for each part.
func (t *Tracer) HTML(w io.Writer, h checks.Header) error {
	h.Command = "kdiag syncloop"
	return writePage(w, h, func(p *htmlPage) {
		p.raw("<h1>The life of a pod</h1>\n<p>Each row is a step; its lane is the part of the kubelet that makes it.</p>\n")
		for _, s := range t.steps {
			text, took := Printable(s.Text), units.Duration(s.Took)
			if s.Took == 0 {
				took = ""
			}
			switch lane := slices.Index(syncloop.TraceParts, s.Part); s.Kind {
			case syncloop.StepChapter:
				p.raw("<h2>%s</h2>\n<div class=\"lanes head\"><span></span>", text)
				for _, part := range syncloop.TraceParts {
					p.raw("<span>%s</span>", part)
				}
				p.raw("</div>\n")
			case syncloop.StepWork:
				span := min(2, len(syncloop.TraceParts)-lane)
				p.raw("<div class=\"lanes\"><small>+%s</small><div style=\"grid-column: %d / span %d\"><small>%d "+
					"<span>%s</span> %s</small><br>%s <small>%s</small></div></div>\n", units.Duration(s.At), max(lane, 0)+2, span,
					s.N, s.Part, s.Func, text, took)
			case syncloop.StepWaiting:
				p.raw("<p class=\"pause\"><small>waiting: %s %s</small></p>\n", took, text)
			case syncloop.StepEnd:
				p.raw("<p class=\"strong\">%s</p>\n", text+after(s))
			default:
				p.raw("<p class=\"warn\">%s</p>\n", text)
			}
		}
	})
}
