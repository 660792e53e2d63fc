package render

import (
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/lipgloss"
)

// laneWidth is the width of what stands before a picture: two columns of indentation, a lane's name, two more.
const laneWidth = 2 + 7 + 2

// A sceneGlyphs is what a picture in text is made of. Those of the first set are also in the fonts of plain consoles.
type sceneGlyphs struct {
	bars                map[barKind]rune
	open                rune
	marks               map[string]rune
	axis, tick, outside rune
	between             rune // the ends of a burst
}

func newSceneGlyphs(ascii bool) sceneGlyphs {
	if ascii {
		return sceneGlyphs{
			bars: map[barKind]rune{barStuck: '-', barStarting: '=', barUnhealthy: '#'}, open: '>',
			marks: map[string]rune{"restart": 'R', "stop": 'v', "start": '^', "recovery": '+', "error": 'x', "warning": '!'},
			axis:  '-', tick: '+', outside: '.', between: '-',
		}
	}
	return sceneGlyphs{
		bars: map[barKind]rune{barStuck: '░', barStarting: '▒', barUnhealthy: '█'}, open: '►',
		marks: map[string]rune{"restart": '♦', "stop": '▼', "start": '▲', "recovery": '√', "error": '×', "warning": '!'},
		axis:  '─', tick: '┬', outside: '·', between: '─',
	}
}

func (p *page) barStyle(k barKind) *lipgloss.Style {
	switch k {
	case barUnhealthy:
		return &p.ink.bad
	case barStuck:
		return &p.ink.warn
	}
	return &p.ink.command
}

func (p *page) markStyle(kind string) *lipgloss.Style {
	switch kind {
	case "stop", "error":
		return &p.ink.bad
	case "start", "recovery":
		return &p.ink.good
	}
	return &p.ink.warn
}

// A cell is one character of a picture; the zero cell is empty.
type cell struct {
	char  rune
	style *lipgloss.Style
}

// A canvas is one scene in columns.
type canvas struct {
	scene
	width int
	glyph sceneGlyphs
	used  map[string]bool // what the legend has to explain: kinds of marks, and the names below
}

// The names of bars in a legend.
const (
	usedUnhealthy = "bar"
	usedStuck     = "stuck bar"
	usedStarting  = "start bar"
	usedOpen      = "open bar"
	usedOutside   = "outside"
)

// scene draws a scene: an axis, one lane under the other, and what the signs mean. With all, lanes in which nothing
// happened are named too. Signs that are explained already are not explained again.
func (p *page) scene(s scene, c calendar, explained map[string]bool, all bool) {
	v := canvas{scene: s, width: p.width - laneWidth - 1, glyph: newSceneGlyphs(p.ascii), used: map[string]bool{}}
	labels, axis := v.axis(c)
	p.lane("", labels)
	p.lane("", axis)
	if numbers := v.numbers(); numbers != nil {
		p.lane("", numbers)
	}
	name := "kubelet"
	if bars := v.barRow(p); bars != nil {
		p.lane(name, bars)
		name = ""
	}
	for _, lane := range lanes() {
		row := v.markRow(p, s.marks[lane])
		switch {
		case lane == "kubelet" && row != nil:
			p.lane(name, row)
		case lane == "kubelet" && name == "":
		case row != nil:
			p.lane(lane, row)
		case all:
			p.put(plain("  "+pad(lane, laneWidth-2)), plain("nothing seen"))
		}
	}
	p.legend(v, explained)
}

// lane writes a row of cells behind a name.
func (p *page) lane(name string, cells []cell) {
	spans := []span{plain("  " + pad(name, laneWidth-2))}
	var b strings.Builder
	var style *lipgloss.Style
	flush := func() {
		if b.Len() > 0 {
			spans = append(spans, span{b.String(), style})
			b.Reset()
		}
	}
	for _, c := range cells {
		if c.style != style {
			flush()
			style = c.style
		}
		if c.char == 0 {
			c.char = ' '
		}
		b.WriteRune(c.char)
	}
	flush()
	p.put(spans...)
}

// column returns where a moment lies.
func (v *canvas) column(t time.Time) int {
	length := v.to.Sub(v.from)
	if length <= 0 {
		return 0
	}
	x := int(float64(t.Sub(v.from)) / float64(length) * float64(v.width))
	return min(max(x, 0), v.width-1)
}

// axis draws the labels and the line below them. What the logs do not cover is drawn thin.
func (v *canvas) axis(c calendar) (labels, line []cell) {
	labels, line = make([]cell, v.width), make([]cell, v.width)
	first, last := 0, v.width-1
	if v.logFrom != nil {
		first = v.column(*v.logFrom)
	}
	if v.logTo != nil {
		last = v.column(*v.logTo)
	}
	for i := range line {
		line[i].char = v.glyph.axis
		if i < first || i > last {
			line[i].char = v.glyph.outside
			v.used[usedOutside] = true
		}
	}
	free := 0
	for _, t := range c.ticks(v.from, v.to, v.width) {
		x := v.column(t.at)
		line[x].char = v.glyph.tick
		if x < free || x+len(t.label) > v.width {
			continue
		}
		write(labels[x:], t.label, nil)
		free = x + len(t.label) + 1
	}
	return labels, line
}

func write(cells []cell, s string, style *lipgloss.Style) {
	for i, r := range []rune(s) {
		cells[i] = cell{r, style}
	}
}

// numbers draws the numbers of the incidents above their bars; those that stand too close share a label. It returns nil
// where there is only one.
func (v *canvas) numbers() []cell {
	type group struct{ x, first, last int }
	label := func(g group) string {
		if g.first == g.last {
			return "#" + count(g.first)
		}
		return "#" + count(g.first) + "-" + count(g.last)
	}
	var groups []group
	for _, b := range v.bars {
		if b.number == 0 {
			continue
		}
		next := group{v.column(b.from), b.number, b.number}
		if n := len(groups); n > 0 && next.x <= groups[n-1].x+columns(label(groups[n-1])) {
			groups[n-1].last = b.number
			continue
		}
		groups = append(groups, next)
	}
	if len(groups) == 0 || groups[len(groups)-1].last == groups[0].first {
		return nil
	}
	row := make([]cell, v.width)
	for i, g := range groups {
		text := label(g)
		limit := v.width
		if i+1 < len(groups) {
			limit = groups[i+1].x
		}
		if x := min(g.x, limit-columns(text)); x >= 0 {
			write(row[x:], text, nil)
		}
	}
	return row
}

// barRow draws the episodes; nil without any. What is worse hides what is less bad.
func (v *canvas) barRow(p *page) []cell {
	if len(v.bars) == 0 {
		return nil
	}
	names := map[barKind]string{barStuck: usedStuck, barStarting: usedStarting, barUnhealthy: usedUnhealthy}
	kinds := make([]barKind, v.width+1) // one more, for what goes on beyond
	row := make([]cell, v.width+1)
	for _, b := range v.bars {
		for x := v.column(b.from); x <= v.column(b.to); x++ {
			if b.kind > kinds[x] {
				kinds[x] = b.kind
				row[x] = cell{v.glyph.bars[b.kind], p.barStyle(b.kind)}
			}
		}
	}
	for _, b := range v.bars {
		if x := v.column(b.to) + 1; b.open && kinds[x] == noBar {
			row[x] = cell{v.glyph.open, p.barStyle(b.kind)}
			v.used[usedOpen] = true
		}
	}
	for _, k := range kinds {
		v.used[names[k]] = true
	}
	return row
}

// markRow draws the marks of a lane; nil without any. A burst is drawn as many times as it has records; where they
// stand close together, only its ends and a line between them.
func (v *canvas) markRow(p *page, marks []mark) []cell {
	if len(marks) == 0 {
		return nil
	}
	row := make([]cell, v.width)
	kinds := markKinds()
	rank := slices.Repeat([]int{len(kinds)}, v.width)
	put := func(x, r int) {
		if r < rank[x] {
			rank[x] = r
			row[x] = cell{v.glyph.marks[kinds[r]], p.markStyle(kinds[r])}
		}
	}
	for _, m := range marks {
		r := slices.Index(kinds, m.kind)
		first, last := v.column(m.from), v.column(m.to)
		put(first, r)
		if last > first {
			put(last, r)
		}
		if m.count > int64(last-first)/2 {
			for x := first + 1; x < last; x++ {
				if row[x].char == 0 {
					row[x] = cell{v.glyph.between, p.markStyle(m.kind)}
				}
			}
			continue
		}
		for i := 1; i < int(m.count)-1; i++ {
			put(first+i*(last-first)/(int(m.count)-1), r)
		}
	}
	for _, r := range rank {
		if r < len(kinds) {
			v.used[kinds[r]] = true
		}
	}
	return row
}

// legend says what the signs mean that the picture has.
func (p *page) legend(v canvas, explained map[string]bool) {
	g := v.glyph
	var parts []string
	add := func(used string, char rune, text string) {
		if v.used[used] && !explained[used] {
			explained[used] = true
			parts = append(parts, string(char)+glue+strings.ReplaceAll(text, " ", glue))
		}
	}
	add(usedStuck, g.bars[barStuck], "no good relist, not reported yet")
	add(usedUnhealthy, g.bars[barUnhealthy], "PLEG not healthy")
	add(usedOpen, g.open, "no recovery seen")
	add(usedStarting, g.bars[barStarting], "kubelet starting")
	add("restart", g.marks["restart"], "restart")
	add("stop", g.marks["stop"], "stop")
	add("start", g.marks["start"], "start")
	add("error", g.marks["error"], "error")
	add("warning", g.marks["warning"], "warning")
	add("recovery", g.marks["recovery"], "recovery")
	add(usedOutside, g.outside, "outside the log")
	if len(parts) == 0 {
		return
	}
	lead := []span{plain(spaces(laneWidth))}
	p.flow(lead, laneWidth, plain(strings.Join(parts, "   ")))
}
