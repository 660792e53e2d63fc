package render

import (
	"math"
	"slices"
	"strconv"
	"time"
)

// The measures of a drawing, in its own units; it is scaled to the width of the page.
const (
	svgWidth   = 1000
	svgLeft    = 72 // what the names of the lanes take
	svgRight   = 16 // room for the arrow of what goes on beyond
	svgTop     = 20 // the labels of the axis
	svgNumbers = 16 // the numbers of the incidents
	svgBars    = 24 // the bars in the lane of the kubelet
	svgLane    = 24 // the marks of one lane
	svgChar    = 7  // columns of the axis' labels
)

// A drawing is a scene in coordinates, as the page's template wants it.
type drawing struct {
	Width, Height, Left, Right int
	Label                      string // for those who cannot see it
	Outside                    []svgBox
	Ticks                      []svgText
	Lanes                      []svgText
	Numbers                    []svgText
	Bars                       []svgBox
	Bursts                     []svgBox
	Marks                      []svgMark
	Legend                     []svgKey
}

type svgText struct {
	X, Y   string
	Y2     int // lower end of a tick's line, or the line below a lane
	Text   string
	Anchor string
}

type svgBox struct {
	X, Y, W, H string
	Class      string
	Title      string
	Open       string // points of the arrow of a bar that goes on; empty for none
}

type svgMark struct {
	X, Y        string
	Class, Path string
	Title       string
}

type svgKey struct {
	Class, Path string // a mark has a path, a bar none
	Text        string
}

// An svgScale places moments.
type svgScale struct{ scene }

func (s svgScale) x(t time.Time) float64 {
	const wide = svgWidth - svgLeft - svgRight
	share := float64(t.Sub(s.from)) / float64(s.to.Sub(s.from))
	return svgLeft + wide*min(max(share, 0), 1)
}

// num writes a coordinate with a tenth of a unit: more is not seen.
func num(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }

// drawingOf lays a scene out. Its words are clean. With all, lanes in which nothing happened are there too.
func (p *page) drawingOf(s scene, c calendar, all bool) *drawing {
	scale := svgScale{s}
	d := &drawing{Width: svgWidth, Left: svgLeft, Right: svgWidth - svgRight, Label: "timeline " + c.heading(s.from, s.to)}
	y := svgTop
	y = d.numbers(scale, y)
	used := map[string]bool{}
	d.bars(p, scale, c, y, used)
	laneY := y
	y += svgBars
	for _, lane := range lanes() {
		marks := s.marks[lane]
		if lane != "kubelet" {
			laneY = y
		}
		if lane != "kubelet" && len(marks) == 0 && !all {
			continue
		}
		if lane != "kubelet" || len(marks) > 0 {
			d.marks(p, scale, c, marks, y+svgLane/2, used)
			y += svgLane
		}
		d.Lanes = append(d.Lanes, svgText{X: "0", Y: strconv.Itoa(laneY + 16), Y2: y, Text: lane})
	}
	d.Height = y + 2
	d.axis(scale, c)
	d.legend(used)
	return d
}

func (d *drawing) axis(s svgScale, c calendar) {
	edge := func(from, to float64) {
		if to-from >= 1 {
			d.Outside = append(d.Outside, svgBox{X: num(from), Y: strconv.Itoa(svgTop), W: num(to - from), H: strconv.Itoa(d.Height - svgTop)})
		}
	}
	if s.logFrom != nil {
		edge(svgLeft, s.x(*s.logFrom))
	}
	if s.logTo != nil {
		edge(s.x(*s.logTo), svgWidth-svgRight)
	}
	for _, t := range c.ticks(s.from, s.to, (svgWidth-svgLeft-svgRight)/svgChar) {
		x := s.x(t.at)
		anchor := "middle"
		switch {
		case x < svgLeft+25:
			anchor = "start"
		case x > svgWidth-svgRight-25:
			anchor = "end"
		}
		d.Ticks = append(d.Ticks, svgText{X: num(x), Y: "13", Y2: d.Height, Text: t.label, Anchor: anchor})
	}
}

// numbers writes the numbers of the incidents, those too close to the one before left out: their bars bear titles. It
// returns where the bars begin.
func (d *drawing) numbers(s svgScale, y int) int {
	free, first, last := 0.0, 0, 0
	var all []svgText
	for _, b := range s.bars {
		if b.number == 0 {
			continue
		}
		if last = b.number; first == 0 {
			first = last
		}
		if x := s.x(b.from); x >= free {
			text := "#" + count(b.number)
			anchor := "start"
			if x > svgWidth-svgRight-25 {
				anchor = "end"
			}
			all = append(all, svgText{X: num(x), Y: strconv.Itoa(y + 12), Text: text, Anchor: anchor})
			free = x + float64(len(text)+1)*svgChar
		}
	}
	if first == last {
		return y + 4
	}
	d.Numbers = all
	return y + svgNumbers
}

func (d *drawing) bars(p *page, s svgScale, c calendar, y int, used map[string]bool) {
	names := map[barKind]string{barStuck: "stuck", barStarting: "starting", barUnhealthy: "unhealthy"}
	const least = 3 // units; what is shorter would not be seen
	ordered := slices.Clone(s.bars)
	slices.SortStableFunc(ordered, func(a, b bar) int { return int(a.kind) - int(b.kind) })
	for _, b := range ordered {
		from, to := s.x(b.from), s.x(b.to)
		box := svgBox{
			X: num(from), Y: strconv.Itoa(y + 3), W: num(max(to-from, least)), H: strconv.Itoa(svgBars - 6),
			Class: names[b.kind], Title: p.prose(b.title + ", " + c.span(&b.from, &b.to)),
		}
		if b.number > 0 {
			box.Title = "#" + count(b.number) + " " + box.Title
		}
		if b.open {
			end := max(to, from+least)
			tip := num(end+10) + "," + strconv.Itoa(y+svgBars/2)
			box.Open = num(end) + "," + strconv.Itoa(y+3) + " " + tip + " " + num(end) + "," + strconv.Itoa(y+svgBars-3)
			used["open"] = true
		}
		used[box.Class] = true
		d.Bars = append(d.Bars, box)
	}
}

// marks draws what happened in a lane: less important kinds first, so that the others lie above them.
func (d *drawing) marks(p *page, s svgScale, c calendar, marks []mark, y int, used map[string]bool) {
	kinds := markKinds()
	ordered := slices.Clone(marks)
	slices.SortStableFunc(ordered, func(a, b mark) int { return slices.Index(kinds, b.kind) - slices.Index(kinds, a.kind) })
	for _, m := range ordered {
		title := p.prose(m.title) + ", " + c.span(&m.from, &m.to)
		if m.count > 1 {
			title += ", " + count(int(min(m.count, math.MaxInt32))) + " times"
		}
		if from, to := s.x(m.from), s.x(m.to); to-from >= 2 {
			d.Bursts = append(d.Bursts, svgBox{
				X: num(from), Y: strconv.Itoa(y - 3), W: num(to - from), H: "6", Class: m.kind, Title: title,
			})
		}
		used[m.kind] = true
		x := s.x(m.from)
		if m.from.Before(s.from) {
			x = svgLeft
		}
		d.Marks = append(d.Marks, svgMark{X: num(x), Y: strconv.Itoa(y), Class: m.kind, Path: markPath(m.kind), Title: title})
	}
}

// markPath returns the shape of a kind of mark, around its middle. Shapes differ, so that colour only repeats them.
func markPath(kind string) string {
	switch kind {
	case "start":
		return "M0,-6 L6,5 L-6,5 Z"
	case "stop":
		return "M0,6 L6,-5 L-6,-5 Z"
	case "restart":
		return "M0,-7 L6,0 L0,7 L-6,0 Z"
	case "error":
		return "M-5,-5 L5,5 M5,-5 L-5,5"
	case "recovery":
		return "M-6,0 L-2,5 L6,-5"
	}
	return "M0,-6 L0,1 M0,4 L0,6"
}

func (d *drawing) legend(used map[string]bool) {
	for _, k := range []struct{ name, text string }{
		{"stuck", "a relist is stuck, and not reported yet"},
		{"unhealthy", "PLEG is not healthy"},
		{"starting", "the kubelet starts"},
	} {
		if used[k.name] {
			d.Legend = append(d.Legend, svgKey{Class: k.name, Text: k.text})
		}
	}
	if used["open"] {
		d.Legend = append(d.Legend, svgKey{Class: "open", Path: "M-5,-6 L6,0 L-5,6 Z", Text: "no recovery seen"})
	}
	for _, kind := range markKinds() {
		if used[kind] {
			d.Legend = append(d.Legend, svgKey{Class: kind, Path: markPath(kind), Text: kind})
		}
	}
	if len(d.Outside) > 0 {
		d.Legend = append(d.Legend, svgKey{Class: "outside", Text: "outside the log"})
	}
}
