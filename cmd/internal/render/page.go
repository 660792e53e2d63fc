package render

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
)

// A page is text in the making: lines that fit its width, except for commands, which are never broken.
type page struct {
	cleaner
	out       bytes.Buffer
	width     int                // of pictures
	wrap      int                // where text is wrapped
	rows      int                // of a terminal, written so far; a command may take several
	screen    int                // the most rows of a conclusion
	tight     bool               // rather leave out evidence and steps than take more
	short     bool               // leave out sections and rows that a screen does not hold, where no details are wanted
	styles    map[ink]ansi.Style // empty without colour
	glyph     glyphs
	details   bool
	rerun     string // the command that prints more; empty where that follows from the document
	simulated bool   // there is no such node, so the commands must not act on one
}

// unwrapped is the width of text that is not wrapped.
const unwrapped = 1 << 20

// A span is a piece of a line in one ink. Its text is clean.
type span struct {
	text string
	ink  ink // empty for none
}

func plain(s string) span { return span{text: s} }

// bare returns a line without inks.
func bare(line []span) string {
	return strings.Join(each(line, func(s span) string { return s.text }), "")
}

func newPage(o Options) *page {
	p := &page{
		cleaner: cleaner{ascii: o.ASCII},
		width:   max(cmp.Or(o.Width, defaultWidth), minWidth),
		styles:  newStyles(o.Color),
		glyph:   newGlyphs(o.ASCII),
		details: o.Details,
		rerun:   o.More,
		screen:  cmp.Or(o.Rows, screen),
		tight:   o.Rows > 0,
	}
	if p.wrap = p.width; o.NoWrap {
		p.wrap = unwrapped
	}
	return p
}

// sections writes one section after the other, but for those that are to be left out: what was written before must not
// scroll away.
func (p *page) sections(all ...func()) {
	for _, section := range all {
		length, rows := p.out.Len(), p.rows
		if section(); p.rows > p.screen && p.folds() {
			p.out.Truncate(length)
			p.rows = rows
		}
	}
}

// folds reports whether sections may be left out. A program gets all.
func (p *page) folds() bool { return p.short && !p.details && p.wrap != unwrapped }

// bytes returns the page, which ends with exactly one newline.
func (p *page) bytes() []byte {
	return append(bytes.TrimRight(p.out.Bytes(), "\n"), '\n')
}

// put writes one line.
func (p *page) put(spans ...span) {
	var b strings.Builder
	used := 0
	for _, s := range spans {
		used += columns(s.text)
		if s.ink != "" && strings.TrimSpace(s.text) != "" {
			s.text = p.styles[s.ink].Styled(s.text)
		}
		b.WriteString(s.text)
	}
	p.rows += 1 + (used-1)/p.wrap
	line := strings.ReplaceAll(b.String(), glue, " ")
	p.out.WriteString(strings.TrimRight(line, " ") + "\n")
}

// blank writes an empty line, unless the page is empty or there is one already.
func (p *page) blank() {
	if p.out.Len() > 0 && !bytes.HasSuffix(p.out.Bytes(), []byte("\n\n")) {
		p.out.WriteByte('\n')
		p.rows++
	}
}

// heading starts a section. More stands behind the title.
func (p *page) heading(title string, more ...span) {
	p.blank()
	if len(more) == 0 {
		p.flow(nil, 2, span{title, strong})
		return
	}
	lead := []span{{title, strong}, plain("  ")}
	for _, s := range more[:len(more)-1] {
		lead = append(lead, s, plain("  "))
	}
	p.flow(lead, 2, more[len(more)-1])
}

// flow writes text after lead, wrapped at the page's width; further lines are indented by hang.
func (p *page) flow(lead []span, hang int, text span) {
	hang = min(hang, p.wrap/2)
	used := columns(bare(lead))
	switch {
	case used > p.wrap:
		lead, text = unstyled(lead, text)
		used = columns(lead[0].text)
	case used > hang && used > p.wrap/2:
		p.put(lead...)
		lead, used = []span{plain(spaces(hang))}, hang
	}
	for i, line := range fill(text.text, used, hang, p.wrap) {
		if i > 0 {
			lead = []span{plain(spaces(hang))}
		}
		p.put(append(lead, span{line, text.ink})...)
	}
}

// unstyled makes a lead that is wider than the page a part of the text, all but its indentation.
func unstyled(lead []span, text span) ([]span, span) {
	all := bare(lead)
	words := strings.TrimLeft(all, " ")
	return []span{plain(all[:len(all)-len(words)])}, plain(strings.Join(strings.FieldsFunc(
		words+" "+text.text, func(r rune) bool { return r == ' ' }), " "))
}

// text writes a paragraph that is indented.
func (p *page) text(indent int, text string) {
	p.flow([]span{plain(spaces(indent))}, indent, plain(text))
}

// item writes text as an indented paragraph behind a sign.
func (p *page) item(indent int, sign span, text string) {
	lead := []span{plain(spaces(indent)), sign, plain(" ")}
	p.flow(lead, indent+columns(sign.text)+1, plain(text))
}

// list writes at most so many lines, each behind a sign, below a title; nothing when there are none.
func (p *page) list(title string, sign span, lines []string, most int) {
	if len(lines) > 0 && title != "" {
		p.heading(title)
	}
	if p.details {
		most = len(lines)
	}
	for _, s := range lines[:min(len(lines), most)] {
		p.item(2, sign, p.prose(s))
	}
	p.more(len(lines) - most)
}

// more writes how much of a list was left out.
func (p *page) more(n int) {
	if n > 0 {
		p.text(2, "and "+units.Number(n)+" more; -o json has all")
	}
}

// pair writes a label and what it stands for, wrapped beside it; nothing where that is empty.
func (p *page) pair(label, text string) {
	if text == "" {
		return
	}
	lead := []span{plain("  " + pad(label, labelWidth) + "  ")}
	p.flow(lead, labelWidth+4, plain(text))
}

// labelWidth is the width of the labels of pairs.
const labelWidth = 10

// command writes a command whole, on one line, so that it can be copied. One that is not kdiag's own does nothing when
// it is pasted out of a simulation; neither does a capture of dumps.
func (p *page) command(indent int, command string) {
	command = p.clean(strings.TrimSpace(command))
	if strings.HasPrefix(command, "crictl ") {
		command = shortIDs(command) // which it understands
	}
	if p.simulated && !ours(command) {
		command = "# " + command
	}
	p.put(plain(spaces(indent)), span{command, info})
}

// ours reports whether a command only runs kdiag, and takes no dumps.
func ours(command string) bool {
	return strings.HasPrefix(command, "kdiag ") && !strings.HasPrefix(command, "kdiag stacks ")
}

// oneLine writes text in one line behind a lead, cut where a terminal ends, unless that left too little of it.
func (p *page) oneLine(lead []span, text span) {
	free := p.wrap - columns(bare(lead))
	if free < leastSummary {
		p.flow(lead, 4, text)
		return
	}
	p.put(append(lead, span{briefLine{p.cleaner, free}.reason(text.text), text.ink})...)
}

// Fill breaks text at white space into lines of at most so many columns.
func Fill(text string, width int) string {
	return strings.Join(fill(strings.Join(strings.Fields(text), " "), 0, 0, width), "\n")
}

// fill breaks text at spaces into lines: the first starts at column used, the others at column hang, and all end
// before column width. A word that is longer than a line is broken anywhere.
func fill(text string, used, hang, width int) []string {
	const widest = 2 // columns of a character; a line without room for one gets one all the same
	var lines []string
	line, free := "", width-used
	flush := func() {
		lines = append(lines, line)
		line, free = "", width-hang
	}
	for _, word := range strings.Split(text, " ") {
		n := columns(word)
		switch {
		case line == "" && n <= free:
			line, free = word, free-n
			continue
		case line != "" && n+1 <= free:
			line, free = line+" "+word, free-n-1
			continue
		case line != "" || used > hang && len(lines) == 0:
			flush()
		}
		for {
			part, rest := head(word, max(free, widest), len(word))
			line = part
			if rest == "" {
				break
			}
			flush()
			word = rest
		}
		free -= columns(line)
	}
	flush()
	return lines
}

// only returns those that are to be kept.
func only[T any](all []T, keep func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(x T) bool { return !keep(x) })
}

// each returns what f makes of each.
func each[T, U any](all []T, f func(T) U) (made []U) {
	for _, x := range all {
		made = append(made, f(x))
	}
	return made
}

func spaces(n int) string { return strings.Repeat(" ", max(n, 0)) }

// pad fills s with spaces to width columns, at the right.
func pad(s string, width int) string { return s + spaces(width-columns(s)) }

// padLeft fills s with spaces to width columns, at the left.
func padLeft(s string, width int) string { return spaces(width-columns(s)) + s }

// size formats bytes; no line is broken between the number and its unit.
func size[T int | int64 | float64](bytes T) string {
	return strings.ReplaceAll(units.Size(int64(bytes)), " ", glue)
}

// seconds formats a duration that may be absent; absent is a dash, never zero.
func seconds(v *float64) string {
	return figure{value: v, print: units.Seconds}.text()
}

// An ink is a style of text. In HTML it is the class of an element.
type ink string

// The inks. A verdict has two: strong, and its colour.
const (
	strong  ink = "strong"
	info    ink = "info" // commands, and states that are neither good nor bad
	good    ink = "good"
	warn    ink = "warn"
	bad     ink = "bad"
	unknown ink = "unknown"
)

// newStyles returns the style of each ink; none without colour. The colours are the terminal's own 16, so that they
// suit its background.
func newStyles(color bool) map[ink]ansi.Style {
	if !color {
		return nil
	}
	styles := map[ink]ansi.Style{strong: ansi.Style{}.Bold()}
	for name, color := range map[ink]ansi.BasicColor{
		bad: ansi.Red, good: ansi.Green, warn: ansi.Yellow, unknown: ansi.Magenta, info: ansi.Cyan,
	} {
		styles[name] = ansi.Style{}.ForegroundColor(color)
		styles[strongly(name)] = ansi.Style{}.Bold().ForegroundColor(color)
	}
	return styles
}

// strongly adds strong to a colour.
func strongly(i ink) ink { return strong + " " + i }

func verdictInk(v checks.Verdict) ink {
	inks := map[checks.Verdict]ink{checks.Healthy: good, checks.Degraded: warn, checks.Unhealthy: bad}
	return strongly(cmp.Or(inks[v], unknown))
}

func severityInk(s checks.Severity) ink { return statusInk(checks.Status(s)) }

func statusInk(s checks.Status) ink {
	return map[checks.Status]ink{checks.StatusOK: good, checks.StatusWarning: warn, checks.StatusCritical: bad}[s]
}

// Glyphs are the characters that pictures are made of. Those of the first set are also in the fonts of plain consoles.
type glyphs struct {
	full, half string // of a bar
	track      string // what a bar leaves empty below its limit
	mark       string // the limit
	over       string // of a bar beyond its limit
	line       string // of an axis, and the middle of a burst
	dot        string // between things in one line
}

func newGlyphs(ascii bool) glyphs {
	if ascii {
		return glyphs{full: "#", half: "-", track: ".", mark: "|", over: "!", line: "-", dot: "|"}
	}
	return glyphs{full: "█", half: "▌", track: "·", mark: "│", over: "▓", line: "─", dot: "·"}
}

// minLast is the narrowest last column of a table into which text is still wrapped.
const minLast = 20

// A table is rows of cells under one another.
type table struct {
	indent int
	align  string   // one letter per column: l or r; an l column at the end is wrapped
	head   []string // may be nil; an empty name is a column without one
	rows   [][]span
}

// add adds a row of cells without ink.
func (t *table) add(cells ...string) {
	t.rows = append(t.rows, each(cells, plain))
}

// table writes t. Where it does not fit the page, each row becomes a paragraph: the first cell, then the others with
// their names.
func (p *page) table(t table) {
	if len(t.rows) == 0 {
		return
	}
	rows := t.rows
	if t.head != nil {
		rows = append([][]span{each(t.head, plain)}, rows...)
	}
	last := len(t.align) - 1
	widths := make([]int, last+1)
	for _, row := range rows {
		for i, c := range row {
			widths[i] = max(widths[i], columns(c.text))
		}
	}
	fixed := t.indent + 2*last
	for _, w := range widths[:last] {
		fixed += w
	}
	if free := p.wrap - fixed; widths[last] > free && (t.align[last] != 'l' || free < minLast) {
		p.stack(t)
		return
	}
	for _, row := range rows {
		lead := []span{plain(spaces(t.indent))}
		for i, c := range row {
			gap := spaces(widths[i] - columns(c.text))
			switch {
			case t.align[i] == 'r':
				lead = append(lead, plain(gap), c, plain("  "))
			case i < last:
				lead = append(lead, c, plain(gap+"  "))
			default:
				p.column(lead, fixed, c)
			}
		}
		if t.align[last] == 'r' {
			p.put(lead...)
		}
	}
}

// column writes the last cell of a row, wrapped below itself.
func (p *page) column(lead []span, fixed int, c span) {
	for i, line := range fill(c.text, fixed, fixed, p.wrap) {
		if i > 0 {
			lead = []span{plain(spaces(fixed))}
		}
		p.put(append(lead, span{line, c.ink})...)
	}
}

// stack writes the rows of a table that is too wide as paragraphs.
func (p *page) stack(t table) {
	for _, row := range t.rows {
		var parts []string
		for i, c := range row[1:] {
			switch {
			case c.text == "" || t.head != nil && t.head[i+1] == "":
			case t.head != nil:
				parts = append(parts, t.head[i+1]+glue+c.text)
			default:
				parts = append(parts, c.text)
			}
		}
		lead := []span{plain(spaces(t.indent)), row[0], plain("  ")}
		p.flow(lead, t.indent+2, plain(strings.Join(parts, ", ")))
	}
}
