package render

import (
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/journal"
)

// A scene is what a picture of a stretch of time shows, whatever it is drawn with.
type scene struct {
	from, to       time.Time  // the axis
	logFrom, logTo *time.Time // what of it the logs cover
	bars           []bar
	marks          map[string][]mark // by lane
}

// A barKind is what a bar stands for.
type barKind int

const (
	noBar        barKind = iota
	barStuck             // no relist is good any more, and the kubelet does not say so yet
	barStarting          // a kubelet that has just started
	barUnhealthy         // the kubelet says that PLEG is not healthy
)

// A bar is a stretch of an episode in the lane of the kubelet.
type bar struct {
	kind     barKind
	from, to time.Time
	open     bool // goes on beyond the log
	number   int  // of the incident, from 1; 0 for none
	title    string
}

// A mark is something that happened in a lane, or several of the same.
type mark struct {
	kind     string // start, stop, restart, error, warning, recovery
	from, to time.Time
	count    int64
	title    string
}

// lanes are the rows of a picture from top to bottom.
func lanes() []string { return []string{"kubelet", "runtime", "kernel", "node"} }

// markKinds are the kinds of marks: where two fall into one place, the earlier kind hides the later.
func markKinds() []string {
	return []string{"restart", "stop", "start", "recovery", "error", "warning"}
}

// overviewOf returns the picture of all that a report knows. It is false when no record has a time.
func overviewOf(r *journal.Report) (scene, bool) {
	all := moments(r)
	if len(all) == 0 {
		return scene{}, false
	}
	from := slices.MinFunc(all, time.Time.Compare)
	to := slices.MaxFunc(all, time.Time.Compare)
	if to.Sub(from) < time.Second {
		from, to = from.Add(-10*time.Second), to.Add(10*time.Second)
	}
	return sceneOf(r, from, to), true
}

// untold is how many times longer than the records of an episode its beginning may have been before them. Beyond that a
// close-up shows the records only.
const untold = 20

// clusterOf returns the picture of all incidents together. It is false when there are not several with a time.
func clusterOf(r *journal.Report, incidents []journal.Episode) (scene, bool) {
	var first, last time.Time
	n := 0
	for _, e := range incidents {
		from, to, ok := trouble(e)
		if !ok {
			continue
		}
		if n == 0 || from.Before(first) {
			first = from
		}
		if n == 0 || to.After(last) {
			last = to
		}
		n++
	}
	if n < 2 {
		return scene{}, false
	}
	around := last.Sub(first) / 20
	return sceneOf(r, first.Add(-around), last.Add(around)), true
}

// closeUpOf returns the picture of one episode and a little of what was around it. It is false when the episode has
// no time.
func closeUpOf(r *journal.Report, e journal.Episode) (scene, bool) {
	from, to, ok := trouble(e)
	if !ok {
		return scene{}, false
	}
	if told := to.Sub(*e.Start); told >= time.Second && to.Sub(from) > untold*told {
		from = e.Start.Add(-told / 2)
	}
	around := max(to.Sub(from)/8, 15*time.Second)
	whole, _ := overviewOf(r)
	from, to = from.Add(-around), to.Add(around)
	if from.Before(whole.from) {
		from = whole.from
	}
	if to.After(whole.to) {
		to = whole.to
	}
	return sceneOf(r, from, to), true
}

// worthCloseUp reports whether an episode takes so little of the overview that it must be shown larger to be seen.
func worthCloseUp(overview, closeUp scene) bool {
	const little = 3
	return overview.to.Sub(overview.from) > little*closeUp.to.Sub(closeUp.from)
}

// trouble returns from when to when an episode lasted, as far as the log tells: from the anchor to the recovery.
func trouble(e journal.Episode) (from, to time.Time, ok bool) {
	if e.Start == nil {
		return from, to, false
	}
	from, to = *e.Start, *e.Start
	for _, t := range []*time.Time{e.End, e.Anchor, e.RecoveredAt} {
		if t == nil {
			continue
		}
		if t.Before(from) {
			from = *t
		}
		if t.After(to) {
			to = *t
		}
	}
	return from, to, true
}

func sceneOf(r *journal.Report, from, to time.Time) scene {
	s := scene{from: from, to: to, logFrom: r.From, logTo: r.To, marks: map[string][]mark{}}
	number := 0
	for _, e := range r.Episodes {
		if e.Kind == journal.Incident {
			number++
		}
		s.episode(e, number)
	}
	if e := r.Failing; e != nil && e.Start != nil && e.End != nil {
		s.bar(bar{kind: barStuck, from: *e.Start, to: *e.End, open: true, title: "relists fail"})
	}
	for _, e := range r.Events {
		s.event(e)
	}
	for _, e := range r.Episodes {
		for _, restart := range e.Restarts {
			s.event(restart)
		}
	}
	return s
}

// episode adds the bars of an episode, and the mark of its recovery.
func (s *scene) episode(e journal.Episode, number int) {
	if e.Start == nil {
		return
	}
	start, end := *e.Start, *e.Start
	if e.End != nil && e.End.After(start) {
		end = *e.End
	}
	if e.Kind == journal.Startup {
		s.bar(bar{kind: barStarting, from: start, to: end, title: "the kubelet starts"})
	} else {
		if e.Anchor != nil && e.Anchor.Before(start) {
			s.bar(bar{kind: barStuck, from: *e.Anchor, to: start, title: "no good relist, not reported yet"})
		}
		s.bar(bar{kind: barUnhealthy, from: start, to: end, open: !e.Recovered, number: number, title: "PLEG is not healthy"})
	}
	if e.RecoveredAt != nil && e.Kind == journal.Incident {
		s.mark("kubelet", mark{kind: "recovery", from: *e.RecoveredAt, to: *e.RecoveredAt, count: 1, title: e.RecoveredBy})
	}
}

func (s *scene) bar(b bar) {
	if b.to.Before(s.from) || b.from.After(s.to) {
		return
	}
	s.bars = append(s.bars, b)
}

func (s *scene) event(e journal.Event) {
	if e.At == nil {
		return
	}
	m := mark{kind: e.Marker, from: *e.At, to: *e.At, count: e.Count, title: eventWords(e)}
	if e.Until != nil && e.Until.After(m.from) {
		m.to = *e.Until
	}
	s.mark(e.Lane, m)
}

// mark adds a mark, unless it lies outside, is of a kind that is not drawn, or is there already: a restart stands
// among the events and in its episode, a recovery likewise.
func (s *scene) mark(lane string, m mark) {
	if m.to.Before(s.from) || m.from.After(s.to) || !slices.Contains(markKinds(), m.kind) || !slices.Contains(lanes(), lane) {
		return
	}
	same := func(o mark) bool { return o.kind == m.kind && o.from.Equal(m.from) && o.to.Equal(m.to) }
	if !slices.ContainsFunc(s.marks[lane], same) {
		s.marks[lane] = append(s.marks[lane], m)
	}
}

// eventWords says what an event is: its words, else its code, and its subject.
func eventWords(e journal.Event) string {
	text := e.What
	if text == "" {
		text = e.Code
	}
	switch who := "the kubelet or the runtime"; {
	case e.Subject == "":
	case strings.Contains(text, who):
		text = strings.Replace(text, who, e.Subject, 1)
	default:
		text += ": " + e.Subject
	}
	return text
}
