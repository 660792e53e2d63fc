package render

import (
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/lipgloss"

	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal"
)

// A timeline is what a picture of a stretch of time shows, in text and on the page.
type timeline struct {
	from, to       time.Time  // the axis
	logFrom, logTo *time.Time // what of it the logs cover
	segments       []segment  // of the kubelet
	events         []laneEvent
}

// A segment is a part of an episode. Its sign is stuck, starting or unhealthy.
type segment struct {
	sign     string
	from, to time.Time
	open     bool // goes on beyond the log
	number   int  // of the incident, from 1; 0 for none
	title    string
}

// A laneEvent is something that happened in a lane, or several of the same. Its sign is its marker.
type laneEvent struct {
	lane, sign string
	from, to   time.Time
	count      int64
	title      string
}

// A sign is how something is drawn. Those of the first set are also in the fonts of plain consoles.
type sign struct {
	name        string
	char, ascii rune
	text        string // in the legend
}

// signs are all signs. Where two fall into one place, the earlier one hides the later.
func signs() []sign {
	return []sign{
		{"unhealthy", '█', '#', "PLEG not healthy"},
		{"starting", '▒', '=', "kubelet starting"},
		{"stuck", '░', '-', "no good relist, not reported yet"},
		{"open", '►', '>', "no recovery seen"},
		{"restart", '♦', 'R', "restart"},
		{"stop", '▼', 'v', "stop"},
		{"start", '▲', '^', "start"},
		{"recovery", '√', '+', "recovery"},
		{"error", '×', 'x', "error"},
		{"warning", '!', '!', "warning"},
		{"outside", '·', '.', "outside the log"},
	}
}

// rankOf returns the place of a sign among all; that of an unknown one is beyond the last.
func rankOf(name string) int {
	all := signs()
	if i := slices.IndexFunc(all, func(s sign) bool { return s.name == name }); i >= 0 {
		return i
	}
	return len(all)
}

// lanes are the rows of a picture from top to bottom.
func lanes() []string { return []string{"kubelet", "runtime", "kernel", "node"} }

// timelinesOf returns the picture of all that a report knows and, where that shows several incidents too small, one
// of them together. There is none when no record has a time.
func timelinesOf(r *journal.Report) []timeline {
	all := moments(r)
	if len(all) == 0 || len(r.Episodes)+len(r.Events) == 0 {
		return nil
	}
	from, to := slices.MinFunc(all, time.Time.Compare), slices.MaxFunc(all, time.Time.Compare)
	if to.Sub(from) < time.Second {
		from, to = from.Add(-10*time.Second), to.Add(10*time.Second)
	}
	pictures := []timeline{timelineOf(r, from, to)}
	n := 0
	for _, e := range r.Incidents() {
		begin, end, ok := e.Span()
		if !ok {
			continue
		}
		if n == 0 || begin.Before(from) {
			from = begin
		}
		if n == 0 || end.After(to) {
			to = end
		}
		n++
	}
	around := to.Sub(from) / 20
	if closer := timelineOf(r, from.Add(-around), to.Add(around)); n > 1 && pictures[0].tooSmall(closer) {
		pictures = append(pictures, closer)
	}
	return pictures
}

// closeUpOf returns the picture of one incident and a little of what was around it, if it is too small in those that
// are shown.
func closeUpOf(r *journal.Report, e journal.Episode, shown []timeline) (timeline, bool) {
	const mostUntold = 20 // times the length of the records that the time before them is shown
	from, to, ok := e.Span()
	if !ok || len(shown) == 0 {
		return timeline{}, false
	}
	if told := to.Sub(*e.Start); told >= time.Second && to.Sub(from) > mostUntold*told {
		from = e.Start.Add(-told / 2)
	}
	around := max(to.Sub(from)/8, 15*time.Second)
	if from = from.Add(-around); from.Before(shown[0].from) {
		from = shown[0].from
	}
	if to = to.Add(around); to.After(shown[0].to) {
		to = shown[0].to
	}
	t := timelineOf(r, from, to)
	return t, shown[len(shown)-1].tooSmall(t)
}

// tooSmall reports whether a part takes so little of a picture that it must be shown larger to be seen.
func (t timeline) tooSmall(part timeline) bool { return t.to.Sub(t.from) > 3*part.to.Sub(part.from) }

func timelineOf(r *journal.Report, from, to time.Time) timeline {
	t := timeline{from: from, to: to, logFrom: r.From, logTo: r.To}
	number := 0
	for _, e := range r.Episodes {
		if e.Kind == journal.Incident {
			number++
		}
		t.addEpisode(e, number)
	}
	if e := r.Failing; e != nil && e.Start != nil && e.End != nil {
		t.addSegment(segment{sign: "stuck", from: *e.Start, to: *e.End, open: true, title: "relists fail"})
	}
	for _, e := range r.Events {
		t.addEvent(e)
	}
	return t
}

// addEpisode adds the segments of an episode, its recovery and its restarts.
func (t *timeline) addEpisode(e journal.Episode, number int) {
	if e.Start == nil {
		return
	}
	start, end := *e.Start, *e.Start
	if e.End != nil && e.End.After(start) {
		end = *e.End
	}
	if e.Kind == journal.Startup {
		t.addSegment(segment{sign: "starting", from: start, to: end, title: "the kubelet starts"})
	} else {
		if e.Anchor != nil && e.Anchor.Before(start) {
			t.addSegment(segment{sign: "stuck", from: *e.Anchor, to: start, title: "no good relist, not reported yet"})
		}
		t.addSegment(segment{
			sign: "unhealthy", from: start, to: end, open: !e.Recovered, number: number,
			title: "PLEG is not healthy",
		})
		if e.RecoveredAt != nil {
			t.addEvent(journal.Event{
				At: e.RecoveredAt, Lane: "kubelet", Marker: "recovery", Count: 1,
				What: e.RecoveredBy,
			})
		}
	}
	for _, restart := range e.Restarts {
		t.addEvent(restart)
	}
}

func (t *timeline) addSegment(s segment) {
	if !s.to.Before(t.from) && !s.from.After(t.to) {
		t.segments = append(t.segments, s)
	}
}

// addEvent adds an event, unless it lies outside, is not drawn, or is there already: a restart stands among the
// events and in its episode, a recovery likewise.
func (t *timeline) addEvent(e journal.Event) {
	if e.At == nil || !slices.Contains(lanes(), e.Lane) || rankOf(e.Marker) < rankOf("restart") ||
		rankOf(e.Marker) > rankOf("warning") {
		return
	}
	m := laneEvent{lane: e.Lane, sign: e.Marker, from: *e.At, to: *e.At, count: e.Count, title: eventWords(e)}
	if e.End().After(m.from) {
		m.to = e.End()
	}
	same := func(o laneEvent) bool {
		return o.lane == m.lane && o.sign == m.sign && o.from.Equal(m.from) && o.to.Equal(m.to)
	}
	if !m.to.Before(t.from) && !m.from.After(t.to) && !slices.ContainsFunc(t.events, same) {
		t.events = append(t.events, m)
	}
}

// of returns the events of a lane.
func (t timeline) of(lane string) []laneEvent {
	return slices.DeleteFunc(slices.Clone(t.events), func(e laneEvent) bool { return e.lane != lane })
}

// numbered reports whether the incidents need numbers: there are several.
func (t timeline) numbered() bool {
	n := 0
	for _, s := range t.segments {
		if s.number > 0 {
			n++
		}
	}
	return n > 1
}

// at returns where a moment lies on an axis of some width.
func (t timeline) at(moment time.Time, width float64) float64 {
	length := t.to.Sub(t.from)
	if length <= 0 {
		return 0
	}
	return min(max(float64(moment.Sub(t.from))/float64(length), 0), 1) * width
}

// laneWidth is the width of what stands before a picture: two columns of indentation, a lane's name, two more.
const laneWidth = 2 + 7 + 2

func (p *page) signStyle(name string) *lipgloss.Style {
	switch name {
	case "unhealthy", "stop", "error":
		return &p.ink.bad
	case "start", "recovery":
		return &p.ink.good
	case "starting":
		return &p.ink.command
	}
	return &p.ink.warn
}

// char returns the character of a sign; a space for an unknown one.
func (p *page) char(name string) rune {
	i := rankOf(name)
	switch all := signs(); {
	case i == len(all):
		return ' '
	case p.ascii:
		return all[i].ascii
	default:
		return all[i].char
	}
}

// eventSign is the sign of a kind of event.
func (p *page) eventSign(marker string) span {
	return span{string(p.char(marker)), p.signStyle(marker)}
}

// A canvas is one timeline in columns.
type canvas struct {
	timeline
	p     *page
	width int
	used  map[string]bool // what the legend has to explain
}

// A row is the signs in the columns of a lane; nil when it is empty. Of two in one place, the earlier one of all
// signs stays.
type row []string

func (v *canvas) column(t time.Time) int { return min(int(v.at(t, float64(v.width))), v.width-1) }

func (v *canvas) put(r row, x int, name string) {
	if r[x] == "" || rankOf(name) < rankOf(r[x]) {
		r[x] = name
	}
}

// timeline draws a timeline: an axis, one lane under the other, and what the signs mean. With all, lanes in which
// nothing happened are named too. Signs that are explained already are not explained again.
func (p *page) timeline(t timeline, c calendar, explained map[string]bool, all bool) {
	v := &canvas{timeline: t, p: p, width: p.width - laneWidth - 1, used: map[string]bool{}}
	v.axis(c)
	name := "kubelet"
	if bars := v.segmentRow(); bars != nil {
		v.lane(name, bars)
		name = ""
	}
	for _, lane := range lanes() {
		events := v.eventRow(lane)
		switch {
		case lane == "kubelet" && events != nil:
			v.lane(name, events)
		case lane == "kubelet" && name == "":
		case events != nil:
			v.lane(lane, events)
		case all:
			p.put(plain("  "+pad(lane, laneWidth-2)), plain("nothing seen"))
		}
	}
	var parts []string
	for _, s := range signs() {
		if v.used[s.name] && !explained[s.name] {
			explained[s.name] = true
			parts = append(parts, string(p.char(s.name))+glue+strings.ReplaceAll(s.text, " ", glue))
		}
	}
	if len(parts) > 0 {
		p.flow([]span{plain(spaces(laneWidth))}, laneWidth, plain(strings.Join(parts, "   ")))
	}
}

// lane writes a row behind a name.
func (v *canvas) lane(name string, r row) {
	spans := []span{plain("  " + pad(name, laneWidth-2))}
	for _, sign := range r {
		switch sign {
		case "":
			spans = append(spans, plain(" "))
			continue
		case "between":
			spans = append(spans, plain(string(v.axisChar())))
			continue
		}
		v.used[sign] = true
		if n := len(spans); spans[n-1].style == v.p.signStyle(sign) {
			spans[n-1].text += string(v.p.char(sign))
		} else {
			spans = append(spans, v.p.eventSign(sign))
		}
	}
	v.p.put(spans...)
}

// axisChar is what the axis and the middle of a burst are made of.
func (v *canvas) axisChar() rune {
	if v.p.ascii {
		return '-'
	}
	return '─'
}

// axis draws the labels, the line below them, thin where the logs do not cover it, and the numbers of the incidents.
// A label that has no room beside the one before is left out.
func (v *canvas) axis(c calendar) {
	blank := func() []rune { return []rune(spaces(v.width)) }
	write := func(row []rune, x, free int, label string) int {
		if x < free || x+len(label) > v.width {
			return free
		}
		copy(row[x:], []rune(label))
		return x + len(label) + 1
	}
	labels, line, numbers := blank(), blank(), blank()
	first, last, tickChar := 0, v.width-1, '┬'
	if v.p.ascii {
		tickChar = '+'
	}
	if v.logFrom != nil {
		first = v.column(*v.logFrom)
	}
	if v.logTo != nil {
		last = v.column(*v.logTo)
	}
	for x := range line {
		line[x] = v.axisChar()
		if x < first || x > last {
			line[x] = v.p.char("outside")
			v.used["outside"] = true
		}
	}
	free := 0
	for _, t := range c.ticks(v.from, v.to, v.width) {
		line[v.column(t.at)] = tickChar
		free = write(labels, v.column(t.at), free, t.label)
	}
	rows := [][]rune{labels, line}
	if v.numbered() {
		free = 0
		for _, s := range v.segments {
			if s.number > 0 {
				label := "#" + units.Number(s.number)
				free = write(numbers, min(v.column(s.from), v.width-len(label)), free, label)
			}
		}
		rows = append(rows, numbers)
	}
	for _, r := range rows {
		v.p.put(plain(spaces(laneWidth)), plain(string(r)))
	}
}

// segmentRow draws the segments; nil without any.
func (v *canvas) segmentRow() row {
	if len(v.segments) == 0 {
		return nil
	}
	r := make(row, v.width+1) // one more, for what goes on beyond
	for _, s := range v.segments {
		for x := v.column(s.from); x <= v.column(s.to); x++ {
			v.put(r, x, s.sign)
		}
		if s.open {
			v.put(r, v.column(s.to)+1, "open")
		}
	}
	return r
}

// eventRow draws the events of a lane; nil without any. A burst is drawn as many times as it has records; where they
// stand close together, only its ends and a line between them.
func (v *canvas) eventRow(lane string) row {
	events := v.of(lane)
	if len(events) == 0 {
		return nil
	}
	r := make(row, v.width)
	for _, e := range events {
		first, last := v.column(e.from), v.column(e.to)
		v.put(r, first, e.sign)
		v.put(r, last, e.sign)
		if e.count > int64(last-first)/2 {
			for x := first + 1; x < last; x++ {
				v.put(r, x, "between")
			}
			continue
		}
		for i := 1; i < int(e.count)-1; i++ {
			v.put(r, first+i*(last-first)/(int(e.count)-1), e.sign)
		}
	}
	return r
}
