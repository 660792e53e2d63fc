package render

import "strings"

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
