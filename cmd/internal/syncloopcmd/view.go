package syncloopcmd

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/kdiag/kdiag/plegbench/syncloop"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
	"github.com/kdiag/kdiag/plegbench/syncloop/podworkers"
)

// slow is the time from which on something that is waited for is coloured. The loop turns and PLEG relists each second.
const slow = 5 * time.Second

// A view is one picture of a syncLoop at work, for a terminal.
type view struct {
	syncloop.Snapshot

	now    time.Time // ages are counted to it
	paused bool
	log    []string // newest lines, oldest first
	scroll int      // pods that are scrolled out at the top
}

// A span is text in one colour.
type span struct {
	text string
	ink  ink
}

// An ink is a code of SGR; 0 is none.
type ink int

const (
	bold ink = 1
	red  ink = 31
	warn ink = 33
	good ink = 32
)

// lines draws the view for a terminal of width columns and height lines. Each line is one column narrower: some
// terminals erase the last column together with what is behind it.
func (v view) lines(width, height int, color bool) []string {
	var top [][]span
	add := func(spans ...span) { top = append(top, spans) }
	state := span{}
	if v.paused {
		state = span{"  paused", warn}
	} else if old := v.since(v.At); old >= 2*time.Second {
		state = span{"  no snapshot for " + short(old), red}
	}
	add(span{"kdiag syncloop", bold}, span{"  " + v.now.UTC().Format("15:04:05") + " UTC  " + v.Node + "  " + v.Runtime, 0}, state)
	add()
	add(append([]span{{"SOURCES  ", bold}}, v.sources()...)...)
	v.loop(add)
	v.pleg(add)
	v.conditions(add)

	rows := v.podRows()
	room := max(height-len(top)-4, 0) // below the headings of pods and log, the keys and the table's head
	shown := min(len(rows), max(room*2/3, room-len(v.log)))
	first := max(0, min(v.scroll, len(rows)-shown))
	add(span{"PODS     ", bold}, span{fmt.Sprintf("%d to %d of %d", min(first+1, len(rows)), first+shown, len(rows)), 0}, v.slowest())
	add(span{fmt.Sprintf("%-36s %-9s %-5s %8s  %s", "POD", "PHASE", "READY", "RESTARTS", "WORKER"), 0})
	top = append(top, rows[first:first+shown]...)
	add(span{"LOG", bold})
	left := max(height-len(top)-1, 0)
	for _, line := range v.log[max(0, len(v.log)-left):] {
		add(span{line, map[byte]ink{'E': red, 'W': warn}[(line + " ")[0]]})
	}
	for len(top) < height-1 {
		add()
	}
	top = append(top[:max(0, min(len(top), height-1))], []span{{"q quits, p pauses, up and down scroll the pods", 0}})
	out := make([]string, len(top))
	for i, spans := range top {
		out[i] = join(spans, width-1, color)
	}
	return out
}

// join makes a line of at most width columns.
func join(spans []span, width int, color bool) string {
	var b strings.Builder
	for _, s := range spans {
		text := []rune(printable(s.text))
		text = text[:max(0, min(len(text), width))]
		width -= len(text)
		if color && s.ink != 0 {
			fmt.Fprintf(&b, "\x1b[%dm%s\x1b[0m", s.ink, string(text))
		} else {
			b.WriteString(string(text))
		}
	}
	return b.String()
}

// printable replaces what a terminal would act on.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}

// short formats a duration in whole seconds, or in tenths below ten.
func short(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// since is how long ago t is.
func (v view) since(t time.Time) time.Duration { return max(v.now.Sub(t), 0) }

// waited is how long ago t is, coloured once that is long.
func (v view) waited(text string, t time.Time) span {
	if d := v.since(t); d >= slow {
		return span{text + short(d), warn}
	}
	return span{text + short(v.since(t)), 0}
}

// unless is a count that should be zero.
func unless(n int, what string) span {
	if n > 0 {
		return span{fmt.Sprintf("%d %s", n, what), warn}
	}
	return span{"0 " + what, 0}
}

func (v view) sources() (spans []span) {
	pods := map[string]int{}
	for _, p := range v.Pods {
		pods[p.Annotations[pod.ConfigSourceAnnotation]]++
	}
	for _, s := range v.Sources {
		if s.Seen {
			spans = append(spans, span{fmt.Sprintf("%s: %d pods  ", s.Name, pods[s.Name]), 0})
		} else {
			spans = append(spans, span{s.Name + ": not read yet  ", warn})
		}
	}
	return spans
}

func (v view) loop(add func(...span)) {
	last := span{"no turn yet", warn}
	if !v.Loop.LastTurn.IsZero() {
		last = v.waited("last turn ago: ", v.Loop.LastTurn)
	}
	add(span{"LOOP     ", bold}, last, span{fmt.Sprintf(", %d turns, %d updates waiting", v.Loop.Turns, v.Loop.Updates), 0})
	if !v.Loop.SkippingSince.IsZero() {
		add(span{"         skipping for " + short(v.since(v.Loop.SkippingSince)) + ": " + v.Loop.Why, red})
	}
}

func (v view) pleg(add func(...span)) {
	s := v.PLEG
	last := span{"no good relist yet", warn}
	if !s.LastRelist.IsZero() {
		last = v.waited("last good relist ago: ", s.LastRelist)
	}
	underWay := span{"none in progress", 0}
	if !s.InProgressSince.IsZero() {
		underWay = v.waited("in progress for ", s.InProgressSince)
	}
	add(span{"PLEG     ", bold}, last, span{fmt.Sprintf(", the last took %s; ", s.Duration.Round(time.Millisecond)), 0}, underWay)
	add(span{fmt.Sprintf("         %d relists, ", s.Relists), 0}, unless(s.Failures, "failed"), span{", ", 0}, unless(s.Uninspected, "pods to inspect again"),
		span{fmt.Sprintf("; %d pods, %d containers, %d of others; events: %d waiting, ", s.Pods, s.Containers, v.Foreign, s.Queued), 0},
		unless(s.Discarded, "lost"))
}

// conditions shows Ready, and the other conditions that are true.
func (v view) conditions(add func(...span)) {
	add(span{"NODE     ", bold}, span{map[bool]string{true: "no conditions yet"}[len(v.Conditions) == 0], warn})
	for _, c := range v.Conditions {
		state := span{fmt.Sprintf("         %s %s for %s, %s: %s", c.Type, c.Status, short(v.since(c.LastTransitionTime.Time)), c.Reason, c.Message), red}
		switch {
		case c.Type == "Ready" && c.Status == "True":
			state.ink = good
		case c.Type != "Ready" && c.Status == "False":
			continue
		}
		add(state)
	}
}

// slowest names the worker that has been at work or waiting for the longest time.
func (v view) slowest() span {
	busy := slices.DeleteFunc(slices.Clone(v.Workers), func(w podworkers.WorkerState) bool { return !w.Busy && !w.WaitingInCache })
	if len(busy) == 0 {
		return span{}
	}
	worst := slices.MinFunc(busy, func(a, b podworkers.WorkerState) int { return a.Since.Compare(b.Since) })
	s := v.waited(fmt.Sprintf("; %d at work or waiting, %s for ", len(busy), worst.Name), worst.Since)
	return s
}

// podRows are the rows of the table: each pod with its worker, and the workers whose pods are gone.
func (v view) podRows() (rows [][]span) {
	workers := map[string]podworkers.WorkerState{}
	for _, w := range v.Workers {
		workers[string(w.UID)] = w
	}
	row := func(name, phase string, ready, all, restarts int, w podworkers.WorkerState, why string) {
		ink := map[string]ink{"Failed": red, "Pending": warn, "Unknown": warn}[phase]
		rows = append(rows, []span{
			{fmt.Sprintf("%-36.36s ", name), 0},
			{fmt.Sprintf("%-9s", phase), ink},
			{fmt.Sprintf(" %2d/%-2d %8d  ", ready, all, restarts), 0},
			v.worker(w),
			{"  " + why, warn},
		})
	}
	for _, p := range v.Pods {
		ready, restarts, why := 0, 0, p.Status.Reason
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			restarts += int(c.RestartCount)
			if c.State.Waiting != nil {
				why = cmp.Or(why, c.State.Waiting.Reason)
			}
		}
		for _, c := range p.Status.ContainerStatuses {
			if c.Ready {
				ready++
			}
		}
		row(pod.Format(p), string(p.Status.Phase), ready, len(p.Spec.Containers), restarts, workers[string(p.UID)], why)
		delete(workers, string(p.UID))
	}
	for _, w := range workers {
		row(w.Name, "gone", 0, 0, 0, w, "")
	}
	slices.SortStableFunc(rows, func(a, b []span) int { return cmp.Compare(a[0].text, b[0].text) })
	return rows
}

// worker is what a pod's worker does, and for how long it has.
func (v view) worker(w podworkers.WorkerState) span {
	text := w.Step + ", "
	switch {
	case w.Name == "":
		return span{"no worker", 0}
	case w.WaitingInCache:
		text += "waits for PLEG, "
	case w.Stopping && w.Busy:
		text += "stops containers, "
	case w.Busy:
		text += "at work, "
	default:
		return span{text + "idle, " + short(v.since(w.Since)), 0}
	}
	return v.waited(text, w.Since)
}
