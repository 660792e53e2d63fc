package render

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/kdiag/kdiag/journal/klog"
	"github.com/kdiag/kdiag/plegbench/syncloop"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// The least that a terminal must have for a LoopView.
const (
	loopMinWidth  = 60
	loopMinHeight = 16
)

const (
	// loopLong is from when on something that is waited for is coloured. The loop turns and PLEG relists each second, and
	// a sync of a pod that runs takes less.
	loopLong = 5 * time.Second
	// loopStale is from when on a snapshot counts as old. Taking one is a matter of microseconds, twice a second.
	loopStale = 2 * time.Second
	// loopLabel is the width of the names of the sections.
	loopLabel = 9
	// loopLogLeast is how many lines the log keeps, whatever there is of pods; on a tall terminal a third of both.
	loopLogLeast = 4
)

// A LoopView is one picture of a syncLoop at work, for a terminal.
type LoopView struct {
	syncloop.Snapshot

	Now     time.Time     // ages are counted to it
	Paused  time.Duration // for how long the picture has been held; zero while it moves
	Relists []float64     // seconds of the newest relists, oldest first; negative for one that failed
	Log     []string      // the newest lines, oldest first
	Scroll  int           // pods that are scrolled out at the top
}

// Lines draws the view for a terminal of width columns and height lines. All lines are at least one column narrower: some
// terminals erase the last column together with what is behind it. It also returns v.Scroll, or the largest that makes
// sense.
func (v LoopView) Lines(width, height int, o Options) (lines []string, scroll int) {
	o.Width = width - 1
	p := &loopPage{page: newPage(io.Discard, o), now: v.Now, most: max(height/12, 1)}
	p.width = max(width-1, 1)
	if width < loopMinWidth || height < loopMinHeight {
		p.cut(plain(fmt.Sprintf("%dx%d is too small", width, height)))
		p.cut(plain(fmt.Sprintf("needs %dx%d", loopMinWidth, loopMinHeight)))
		p.cut(plain("q quits"))
		return p.lines(height), v.Scroll
	}
	p.title(v)
	p.sources(v)
	p.loop(v.Loop)
	p.pleg(v)
	p.node(v)
	room := height - p.count() - 1 // the keys are the last line
	rows := p.podRows(v)
	shown := min(len(rows)+2, max(room-max(loopLogLeast, room/3), 3), room) // with the section's name, and the columns'
	scroll = p.pods(rows, v.Scroll, shown-2)
	p.log(v.Log, height-p.count()-1)
	for p.count() < height-1 {
		p.cut()
	}
	p.keys(v, scroll > 0 || len(rows) > shown-2)
	return p.lines(height), scroll
}

// A loopPage is a page whose lines are cut, not wrapped: what changes must not move what stands below it. Only a reason why
// something stands still may take more than one line.
type loopPage struct {
	*page
	now  time.Time
	most int // lines of a reason
}

// lines returns what was put, at most height lines.
func (p *loopPage) lines(height int) []string {
	all := strings.Split(strings.TrimSuffix(p.out.String(), "\n"), "\n")
	return all[:min(len(all), max(height, 0))]
}

func (p *loopPage) count() int { return strings.Count(p.out.String(), "\n") }

// cut writes one line, of which it marks that it is longer than the page.
func (p *loopPage) cut(spans ...span) {
	free := p.width
	for _, s := range spans {
		free -= columns(s.text)
	}
	if free >= 0 {
		p.put(spans...)
		return
	}
	free = p.width - columns(p.glyph.more)
	var out []span
	for _, s := range spans {
		part, rest := head(s.text, free, len(s.text))
		out = append(out, span{part, s.style})
		if free -= columns(part); rest != "" {
			break
		}
	}
	p.put(append(out, plain(p.glyph.more))...)
}

// section writes the first or, without a name, a further line of a section.
func (p *loopPage) section(name string, spans ...span) {
	p.cut(append([]span{{pad(name, loopLabel), &p.ink.bold}}, spans...)...)
}

// reason writes a part of a section, what and then why, in as many lines as it needs and may take.
func (p *loopPage) reason(name string, what, why span) {
	lines := fill(why.text, loopLabel+columns(what.text), loopLabel, p.width)
	if len(lines) > p.most {
		rest := strings.TrimLeft(strings.Join(lines[p.most-1:], " "), " ")
		lines = append(lines[:p.most-1:p.most-1], rest)
	}
	for i, line := range lines {
		if i == 0 {
			p.section(name, what, span{line, why.style})
			continue
		}
		p.section("", span{line, why.style})
	}
}

// lapse returns a time that passes for a person, in steps that can be read while it does.
func lapse(d time.Duration) string {
	seconds := math.Round(max(d.Seconds(), 0)*10) / 10
	if seconds < 1 {
		return fmt.Sprintf("%.1f", seconds) + glue + "s"
	}
	return duration(seconds)
}

// since returns how long ago t is.
func (p *loopPage) since(t time.Time) time.Duration { return max(p.now.Sub(t), 0) }

// waited returns for how long something has been waited for, which stands out once it is long.
func (p *loopPage) waited(text string, t time.Time) span {
	d := p.since(t)
	s := plain(text + " " + lapse(d))
	if d >= loopLong {
		s.style = &p.ink.warn
	}
	return s
}

func (p *loopPage) title(v LoopView) {
	state := span{}
	switch old := p.since(v.At); {
	case v.Paused > 0:
		state = span{"  paused for " + lapse(v.Paused), &p.ink.warnV}
	case old >= loopStale:
		state = span{"  no answer of the syncLoop for " + lapse(old), &p.ink.badV}
	}
	at := v.Now.UTC().Format("15:04:05") + " UTC"
	name := span{"kdiag syncloop", &p.ink.bold}
	of := "  " + p.prose(v.Node) + "  " + p.prose(v.Runtime)
	left := p.width - columns(name.text) - columns(state.text) - columns(at) - 2
	of, _ = head(of, max(left, 0), len(of))
	p.cut(name, plain(of), state, plain(spaces(left-columns(of)+2)+at))
	p.cut()
}

func (p *loopPage) sources(v LoopView) {
	pods := map[string]int{}
	for _, q := range v.Pods {
		pods[q.Annotations[pod.ConfigSourceAnnotation]]++
	}
	var spans []span
	for i, s := range v.Sources {
		if i > 0 {
			spans = append(spans, plain("; "))
		}
		if name := p.prose(s.Name); s.Seen {
			spans = append(spans, plain(name+" "+plural(pods[s.Name], "pod")))
		} else {
			spans = append(spans, span{name + " not seen yet", &p.ink.warn})
		}
	}
	if len(spans) == 0 {
		spans = []span{plain("none")}
	}
	p.section("SOURCES", spans...)
}

func (p *loopPage) loop(l syncloop.LoopState) {
	last := plain("no turn yet")
	if !l.LastTurn.IsZero() {
		last = p.waited("last turn", l.LastTurn)
		last.text += " ago"
	}
	p.section("LOOP", last, plain(", "+plural(int(l.Turns), "turn")+", "+plural(l.Updates, "update")+" not taken"))
	if !l.SkippingSince.IsZero() {
		p.reason("", span{"skipping for " + lapse(p.since(l.SkippingSince)) + ": ", &p.ink.bad}, span{p.prose(l.Why), &p.ink.bad})
	}
}

func (p *loopPage) pleg(v LoopView) {
	s := v.PLEG
	last := "no good relist yet"
	if !s.LastRelist.IsZero() {
		last = "last good relist " + lapse(p.since(s.LastRelist)) + " ago"
	}
	if s.Relists > 0 {
		last += ", the last took " + duration(s.Duration.Seconds())
	}
	const most = 60
	series := ""
	if room := min(p.width-loopLabel-columns(last)-2, most); room > 0 && len(v.Relists) > 0 {
		series = "  " + p.glyph.series(v.Relists[max(0, len(v.Relists)-room):], room)
	}
	p.section("PLEG", plain(last), plain(series))
	underWay := plain("none under way")
	if !s.InProgressSince.IsZero() {
		underWay = p.waited("one under way for", s.InProgressSince)
	}
	p.section("", underWay, plain("; "+plural(s.Relists, "relist")+", "), p.unless(s.Failures, "failed"),
		plain("; "), p.unless(s.Uninspected, "to inspect again"))
	p.section("", plain(plural(s.Pods, "pod")+", "+plural(s.Containers, "container")+", "+count(v.Foreign)+" of others; events: "+
		count(s.Queued)+" not taken, "), p.unless(s.Discarded, "lost"))
}

// unless returns a count that should be zero.
func (p *loopPage) unless(n int, what string) span {
	s := plain(count(n) + " " + what)
	if n > 0 {
		s.style = &p.ink.warn
	}
	return s
}

// node writes the condition Ready, those that are as they should not be, and the names of the others.
func (p *loopPage) node(v LoopView) {
	name, quiet := "NODE", []string(nil)
	for _, ready := range []bool{true, false} {
		for _, c := range v.Conditions {
			status, kind := string(c.Status), p.prose(string(c.Type))
			switch {
			case (kind == "Ready") != ready:
				continue
			case !ready && status == "False":
				quiet = append(quiet, kind)
				continue
			}
			state := span{kind + " " + p.prose(status), &p.ink.bad}
			if ready && status == "True" {
				state.style = &p.ink.good
			}
			if t := c.LastTransitionTime.Time; !t.IsZero() {
				state.text += " for " + lapse(p.since(t))
			}
			state.text += ", "
			p.reason(name, state, plain(p.prose(c.Reason)+": "+p.prose(c.Message)))
			name = ""
		}
	}
	if len(quiet) > 0 {
		p.section(name, plain(strings.Join(quiet, ", ")+" False"))
		name = ""
	}
	if name != "" {
		p.section(name, span{"no conditions yet", &p.ink.warn})
	}
}

// log writes the newest lines into the room that is left.
func (p *loopPage) log(lines []string, room int) {
	if room < 2 {
		return
	}
	p.cut(span{"LOG", &p.ink.bold})
	for _, line := range lines[max(0, len(lines)-(room-1)):] {
		p.cut(p.logLine(line))
	}
}

// logLine shortens the header of a line of klog's to severity and time of day: there is no room for more beside the
// message.
func (p *loopPage) logLine(line string) span {
	h, message, ok := klog.ParseHeader([]byte(line))
	if !ok {
		return plain(p.prose(line))
	}
	const clockAt = len("E0102 ")
	line = strings.TrimLeft(line, " ")
	s := plain(string(h.Severity) + " " + line[clockAt:clockAt+len("15:04:05")] + " " + p.prose(string(message)))
	switch h.Severity {
	case 'E', 'F':
		s.style = &p.ink.bad
	case 'W':
		s.style = &p.ink.warn
	}
	return s
}

func (p *loopPage) keys(v LoopView, scrolls bool) {
	text := "q quits, p pauses"
	if v.Paused > 0 {
		text = "q quits, p goes on"
	}
	if scrolls {
		text += ", up and down scroll the pods"
	}
	p.cut(span{text, &p.ink.command})
}
