package render

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal"
)

// A timeline is what a picture of a stretch of time shows, in text and in HTML.
type timeline struct {
	from, to       time.Time  // the axis
	logFrom, logTo *time.Time // what of it the logs cover
	lanes          []string   // the rows from top to bottom
	marks          []mark     // by rank of their signs, the highest first
	marked         bool       // only lanes with marks are drawn
}

// A mark is something that lasted or happened in a lane, or several of the same.
type mark struct {
	lane     string
	sign     sign
	from, to time.Time
	number   int // of the incident, from 1; 0 for none
	title    string
	broad    bool // the sign fills the time from one end to the other
}

// A sign is how a mark is drawn.
type sign struct {
	name        string
	char, ascii rune
	ink         ink
	text        string // in the legend; empty for a sign that is not in it
	level       int    // of levels, how high it is drawn; 0: all of the lane
}

// signs are all signs. Where two fall into one place, the earlier one hides the later. The characters are also in the
// fonts of plain consoles.
func signs() []sign {
	return append([]sign{
		{"open", '►', '>', bad, "not over", 0},
		{"recovery", '√', '+', good, "recovery", 0},
		{"unhealthy", '█', '#', bad, "PLEG not healthy", 0},
		{"notready", '▓', '%', bad, "node NotReady", 0},
		{"starting", '▒', '=', info, "kubelet starting", 0},
		{"stuck", '░', '-', warn, "relist stuck (not reported yet)", 0},
		{"restart", '♦', 'R', warn, "restart", 0},
		{"stop", '▼', 'v', bad, "stop", 0},
		{"start", '▲', '^', good, "start", 0},
		{"error", '×', 'x', bad, "error", 0},
		{"warning", '!', '!', warn, "warning", 0},
	}, historySigns()...)
}

// signOf returns the sign with a name; one of a space for an unknown name.
func signOf(name string) sign {
	all := signs()
	if i := slices.IndexFunc(all, func(s sign) bool { return s.name == name }); i >= 0 {
		return all[i]
	}
	return sign{char: ' ', ascii: ' '}
}

// lanes are the rows of a picture from top to bottom.
func lanes() []string { return []string{lanePLEG, "kubelet", "runtime", "kernel", "node"} }

// lanePLEG is the lane of the episodes; events are in the others.
const lanePLEG = "PLEG"

// timelinesOf returns the picture of all that a report covers and, where that shows the incident of the headline too
// small, one of that incident. There is none when no record has a time.
func timelinesOf(r *journal.Report) []timeline {
	from, to, ok := bounds(r)
	if !ok || len(r.Episodes)+len(r.Events) == 0 {
		return nil
	}
	var begin, end time.Time
	if e := r.Headline(); e != nil {
		begin, end, _ = e.Span()
	}
	return zoomed(from, to, begin, end, func(from, to time.Time) timeline { return timelineOf(r, from, to) })
}

// zoomed returns the picture of a time and, where that shows a part too small, one of the part. A zero time is no part.
func zoomed(from, to, begin, end time.Time, draw func(from, to time.Time) timeline) []timeline {
	const tooSmall = 3
	if to.Sub(from) < time.Second {
		from, to = from.Add(-10*time.Second), to.Add(10*time.Second)
	}
	pictures := []timeline{draw(from, to)}
	around := max(end.Sub(begin)/8, 15*time.Second)
	if part := end.Sub(begin) + 2*around; !begin.IsZero() && to.Sub(from) > tooSmall*part {
		pictures = append(pictures, draw(begin.Add(-around), end.Add(around)))
	}
	return pictures
}

func timelineOf(r *journal.Report, from, to time.Time) timeline {
	t := timeline{from: from, to: to, logFrom: r.From, logTo: r.To, lanes: lanes()}
	number := 0
	for _, e := range r.Episodes {
		if e.Kind == journal.Incident {
			number++
		}
		t.addEpisode(e, number)
	}
	if r.Failing != nil {
		t.addEpisode(*r.Failing, 0)
	}
	for _, e := range r.Events {
		if s := signOf(e.Marker); e.At != nil && s.name != "" && slices.Contains(lanes()[1:], e.Lane) {
			t.add(mark{lane: e.Lane, sign: s, from: *e.At, to: e.End(), title: eventText(e)})
		}
	}
	t.rank()
	return t
}

// rank sorts the marks.
func (t *timeline) rank() {
	ranks := map[string]int{}
	for i, s := range signs() {
		ranks[s.name] = i
	}
	slices.SortStableFunc(t.marks, func(a, b mark) int { return cmp.Compare(ranks[a.sign.name], ranks[b.sign.name]) })
}

// addEpisode adds the marks of an episode: stuck, then unhealthy, then recovered or not.
func (t *timeline) addEpisode(e journal.Episode, number int) {
	if e.Start == nil {
		return
	}
	add := func(name string, from, to *time.Time, number int) {
		s := signOf(name)
		t.add(mark{lanePLEG, s, *from, *to, number, s.text, true})
	}
	end := cmp.Or(e.End, e.Start)
	switch e.Kind {
	case journal.Startup:
		add("starting", e.Start, end, 0)
		return
	case journal.Failing:
		add("stuck", e.Start, end, 0)
	default:
		if e.Anchor != nil && e.Anchor.Before(*e.Start) {
			add("stuck", e.Anchor, e.Start, 0)
		}
		if e.NotReady != "" {
			t.add(mark{"node", signOf("notready"), *e.Start, *end, number, signOf("notready").text, false})
		} else {
			add("unhealthy", e.Start, end, number)
		}
	}
	if !e.Recovered {
		add("open", end, end, 0)
	} else if e.RecoveredAt != nil {
		add("recovery", e.RecoveredAt, e.RecoveredAt, 0)
	}
}

// add adds a mark, unless it lies outside.
func (t *timeline) add(m mark) {
	if m.to.Before(m.from) {
		m.to = m.from
	}
	if !m.to.Before(t.from) && !m.from.After(t.to) {
		t.marks = append(t.marks, m)
	}
}

// of returns the marks of a lane.
func (t timeline) of(lane string) []mark {
	return only(t.marks, func(m mark) bool { return m.lane == lane })
}

// numbered returns the incidents by time, if they need numbers: there are several.
func (t timeline) numbered() []mark {
	all := only(t.marks, func(m mark) bool { return m.number > 0 })
	slices.SortFunc(all, func(a, b mark) int { return a.number - b.number })
	if len(all) < 2 {
		return nil
	}
	return all
}

// at returns where a time lies on an axis of some width.
func (t timeline) at(moment time.Time, width float64) float64 {
	length := t.to.Sub(t.from)
	if length <= 0 {
		return 0
	}
	return min(max(float64(moment.Sub(t.from))/float64(length), 0), 1) * width
}

// sign returns the character of a sign in its ink.
func (p *page) sign(name string) span { return p.char(signOf(name)) }

func (p *page) char(s sign) span {
	if p.ascii {
		return span{string(s.ascii), s.ink}
	}
	return span{string(s.char), s.ink}
}

// laneWidth is the width of what stands before a picture: two columns of indentation, a lane's name, two more.
func (t timeline) laneWidth() int {
	return 2 + slices.Max(append(each(t.lanes, columns), 7)) + 2
}

// picture draws a timeline: an axis, one lane under the other, and what the signs mean.
func (p *page) picture(t timeline, c calendar) {
	laneWidth := t.laneWidth()
	width := p.width - laneWidth - 1
	column := func(at time.Time) int { return min(int(t.at(at, float64(width))), width-1) }
	p.axis(t, c, width, column)
	used := map[string]bool{}
	for _, lane := range t.lanes {
		row := make([]span, width)
		for i := range row {
			row[i] = plain(" ")
		}
		marks := t.of(lane)
		for _, m := range slices.Backward(marks) {
			first, last := column(m.from), column(m.to)
			used[m.sign.name] = m.sign.text != ""
			for x := first + 1; x < last; x++ {
				if m.broad {
					row[x] = p.char(m.sign)
				} else if row[x].text == " " {
					row[x] = plain(p.glyph.line)
				}
			}
			row[first], row[last] = p.char(m.sign), p.char(m.sign)
		}
		if len(marks) == 0 && t.marked {
			continue
		}
		if len(marks) == 0 {
			row = []span{plain("-")}
		}
		p.put(append([]span{plain("  " + pad(lane, laneWidth-2))}, joined(row)...)...)
	}
	var legend []string
	for _, s := range signs() {
		if used[s.name] {
			legend = append(legend, p.char(s).text+glue+strings.ReplaceAll(s.text, " ", glue))
		}
	}
	if len(legend) > 0 {
		p.text(laneWidth, strings.Join(legend, "   "))
	}
}

// joined puts neighbours of one ink together.
func joined(row []span) []span {
	all := row[:1]
	for _, s := range row[1:] {
		if last := &all[len(all)-1]; last.ink == s.ink {
			last.text += s.text
		} else {
			all = append(all, s)
		}
	}
	return all
}

// axis draws the labels, the line below them, dotted where the logs do not cover it, and the numbers of the incidents.
// A label that has no room beside the one before is left out.
func (p *page) axis(t timeline, c calendar, width int, column func(time.Time) int) {
	labels, line, numbers := []rune(spaces(width)), []rune(strings.Repeat(p.glyph.line, width)), []rune(spaces(width))
	for x := range line {
		if t.logFrom != nil && x < column(*t.logFrom) || t.logTo != nil && x > column(*t.logTo) {
			line[x] = []rune(p.glyph.track)[0]
		}
	}
	write := func(row []rune, x int, label string) {
		if x+len(label) <= width && (x == 0 || row[x-1] == ' ') && row[x] == ' ' {
			copy(row[x:], []rune(label))
		}
	}
	for _, tick := range c.ticks(t.from, t.to, width) {
		line[column(tick.at)] = []rune(p.glyph.mark)[0]
		write(labels, column(tick.at), tick.label)
	}
	for _, m := range t.numbered() {
		label := "#" + units.Number(m.number)
		write(numbers, min(column(m.from), width-len(label)), label)
	}
	for _, row := range []string{string(labels), string(line), string(numbers)} {
		if strings.TrimSpace(row) != "" {
			p.put(plain(spaces(t.laneWidth())), plain(row))
		}
	}
}

// A calendar prints the times of one report: in the zone of its log, so that they can be looked up there, and with no
// more of the date than tells them apart.
type calendar struct {
	zone  *time.Location
	days  bool // the report spans more than one day
	years bool // and more than one year
}

func calendarOf(r *journal.Report) calendar {
	c := calendar{zone: time.UTC}
	if r.Zone != nil {
		c.zone = r.Zone
	}
	if first, last, ok := bounds(r); ok {
		c = newCalendar(c.zone, first, last)
	}
	return c
}

// newCalendar returns the calendar of the times from first to last.
func newCalendar(zone *time.Location, first, last time.Time) calendar {
	c := calendar{zone: zone}
	c.days = c.date(first) != c.date(last)
	c.years = first.In(zone).Year() != last.In(zone).Year()
	return c
}

// bounds returns the first and the last time that a report's pictures and lines show; false without any.
func bounds(r *journal.Report) (first, last time.Time, ok bool) {
	all := []*time.Time{r.From, r.To}
	for _, e := range r.Episodes {
		all = append(all, e.Start, e.End, e.Anchor, e.RecoveredAt)
	}
	for _, s := range r.Signatures {
		all = append(all, s.First, s.Last)
	}
	all = slices.DeleteFunc(all, func(t *time.Time) bool { return t == nil })
	if len(all) == 0 {
		return first, last, false
	}
	compare := func(a, b *time.Time) int { return a.Compare(*b) }
	return *slices.MinFunc(all, compare), *slices.MaxFunc(all, compare), true
}

func (c calendar) date(t time.Time) string { return t.In(c.zone).Format(time.DateOnly) }

func (c calendar) clock(t time.Time) string { return t.In(c.zone).Format(time.TimeOnly) }

// stamp returns a time, or a dash for none.
func (c calendar) stamp(t *time.Time) string {
	switch {
	case t == nil:
		return "-"
	case c.years:
		return c.date(*t) + glue + c.clock(*t)
	case c.days:
		return t.In(c.zone).Format("Jan"+glue+"02") + glue + c.clock(*t)
	}
	return c.clock(*t)
}

// span returns such as "00:52:12 to 00:56:07"; one time when both are the same second or one is missing.
func (c calendar) span(from, to *time.Time) string {
	switch {
	case from == nil && to == nil:
		return ""
	case from == nil:
		return c.stamp(to)
	case to == nil || c.stamp(from) == c.stamp(to):
		return c.stamp(from)
	case c.date(*from) == c.date(*to):
		return c.stamp(from) + " to " + c.clock(*to)
	}
	return c.stamp(from) + " to " + c.stamp(to)
}

// full returns a span with dates and zone, for a sentence that stands alone.
func (c calendar) full(from, to time.Time) string {
	text := c.date(from) + glue + c.clock(from) + glue + c.zoneName(from)
	switch {
	case c.date(from) != c.date(to):
		return text + " to " + c.date(to) + glue + c.clock(to)
	case c.clock(from) != c.clock(to):
		return text + " to " + c.clock(to)
	}
	return text
}

// zoneName returns such as UTC or +08:00 for the zone at a time.
func (c calendar) zoneName(at time.Time) string {
	at = at.In(c.zone)
	if _, offset := at.Zone(); offset == 0 {
		return "UTC"
	}
	return at.Format("-07:00")
}

// short returns a time with its day and zone in few columns.
func (c calendar) short(t time.Time) string {
	return t.In(c.zone).Format("Jan" + glue + "02" + glue + "15:04:05Z07:00")
}

// A tick is a mark of a time axis.
type tick struct {
	at    time.Time
	label string
}

// ticks returns the marks of an axis that is width characters long.
func (c calendar) ticks(from, to time.Time, width int) []tick {
	const between, most = 4, 400 // characters between labels at least; ticks
	length := to.Sub(from)
	if length <= 0 {
		return nil
	}
	const day = 24 * time.Hour
	steps := []time.Duration{ // which a person can count with
		time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute,
		10 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour,
		day, 2 * day, 7 * day, 28 * day, 364 * day, 3640 * day,
	}
	fits := func(step time.Duration) bool {
		return float64(width)*float64(step) >= float64(len(labelLayout(step))+between)*float64(length)
	}
	step := steps[len(steps)-1]
	if i := slices.IndexFunc(steps, fits); i >= 0 {
		step = steps[i]
	}
	_, offset := from.In(c.zone).Zone()
	local := time.Duration(offset) * time.Second
	var all []tick
	for at := from.Add(local).Truncate(step).Add(-local); !at.After(to) && len(all) < most; at = at.Add(step) {
		layout := labelLayout(step)
		if c.days && step < 24*time.Hour && at.Add(local).Truncate(24*time.Hour).Equal(at.Add(local)) {
			layout = "Jan 02" // midnight is named by the day that it begins
		}
		if !at.Before(from) {
			all = append(all, tick{at, at.In(c.zone).Format(layout)})
		}
	}
	return all
}

func labelLayout(step time.Duration) string {
	switch {
	case step < time.Minute:
		return time.TimeOnly
	case step < 24*time.Hour:
		return "15:04"
	case step < 300*24*time.Hour:
		return "Jan 02"
	}
	return time.DateOnly
}
