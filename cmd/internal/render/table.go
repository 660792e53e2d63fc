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

// table writes t. Where it does not fit the page, each row becomes a paragraph: the first cell, then the others with
// their names.
func (p *page) table(t table) {
	if len(t.rows) == 0 {
		return
	}
	widths := t.widths()
	fixed := t.indent
	for _, w := range widths[:len(widths)-1] {
		fixed += w + 2
	}
	last := len(widths) - 1
	if free := p.width - fixed; widths[last] > free && (t.align[last] != 'l' || free < minLast) {
		p.stack(t)
		return
	}
	if t.head != nil {
		row := make([]span, len(t.head))
		for i, h := range t.head {
			row[i] = plain(h)
		}
		p.row(t, widths, fixed, row)
	}
	for _, row := range t.rows {
		p.row(t, widths, fixed, row)
	}
}

func (t table) widths() []int {
	widths := make([]int, len(t.align))
	for i := range widths {
		if t.head != nil {
			widths[i] = columns(t.head[i])
		}
		for _, row := range t.rows {
			widths[i] = max(widths[i], columns(row[i].text))
		}
	}
	return widths
}

func (p *page) row(t table, widths []int, fixed int, row []span) {
	lead := []span{plain(spaces(t.indent))}
	last := len(row) - 1
	for i, c := range row[:last] {
		gap := spaces(widths[i] - columns(c.text))
		if t.align[i] == 'r' {
			lead = append(lead, plain(gap), c, plain("  "))
		} else {
			lead = append(lead, c, plain(gap+"  "))
		}
	}
	if t.align[last] == 'r' {
		p.put(append(lead, plain(spaces(widths[last]-columns(row[last].text))), row[last])...)
		return
	}
	used := fixed
	for i, line := range fill(row[last].text, used, fixed, p.width) {
		if i > 0 {
			lead = []span{plain(spaces(fixed))}
		}
		p.put(append(lead, span{line, row[last].style})...)
	}
}

// stack writes the rows of a table that is too wide as paragraphs.
func (p *page) stack(t table) {
	for _, row := range t.rows {
		var parts []string
		for i, c := range row[1:] {
			if c.text == "" || t.head != nil && t.head[i+1] == "" {
				continue
			}
			if t.head != nil {
				parts = append(parts, t.head[i+1]+glue+c.text)
			} else {
				parts = append(parts, c.text)
			}
		}
		lead := []span{plain(spaces(t.indent)), row[0], plain("  ")}
		p.flow(lead, t.indent+2, plain(strings.Join(parts, ", ")))
	}
}
