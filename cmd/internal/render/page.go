package render

import (
	"bytes"
	"io"
	"strings"

	"github.com/charmbracelet/lipgloss"
)

// A page is text in the making: lines that fit its width, except for commands, which are never broken.
type page struct {
	cleaner
	out   bytes.Buffer
	width int
	ink   inks
	glyph glyphs
}

// A span is a piece of a line in one style. Its text is clean.
type span struct {
	text  string
	style *lipgloss.Style // nil for none
}

func plain(s string) span { return span{text: s} }

func newPage(w io.Writer, o Options) *page {
	width := o.Width
	if width == 0 {
		width = defaultWidth
	}
	return &page{
		cleaner: cleaner{ascii: o.ASCII},
		width:   max(width, minWidth),
		ink:     newInks(w, o.Color),
		glyph:   newGlyphs(o.ASCII),
	}
}

// bytes returns the page, which ends with exactly one newline.
func (p *page) bytes() []byte {
	return append(bytes.TrimRight(p.out.Bytes(), "\n"), '\n')
}

// put writes one line.
func (p *page) put(spans ...span) {
	var b strings.Builder
	for _, s := range spans {
		if s.style == nil || strings.TrimSpace(s.text) == "" {
			b.WriteString(s.text)
			continue
		}
		b.WriteString(s.style.Render(s.text))
	}
	line := strings.ReplaceAll(b.String(), glue, " ")
	p.out.WriteString(strings.TrimRight(line, " "))
	p.out.WriteByte('\n')
}

// blank writes an empty line, unless the page is empty or there is one already.
func (p *page) blank() {
	if p.out.Len() > 0 && !bytes.HasSuffix(p.out.Bytes(), []byte("\n\n")) {
		p.out.WriteByte('\n')
	}
}

// heading starts a section.
func (p *page) heading(s string) {
	p.blank()
	p.flow(nil, 2, span{s, &p.ink.bold})
}

// flow writes text after lead, wrapped at the page's width; further lines are indented by hang.
func (p *page) flow(lead []span, hang int, text span) {
	hang = min(hang, p.width/2)
	used := 0
	for _, s := range lead {
		used += columns(s.text)
	}
	switch {
	case used > p.width:
		lead, text = unstyled(lead, text)
		used = columns(lead[0].text)
	case used > hang && used > p.width/2:
		p.put(lead...)
		lead, used = []span{plain(spaces(hang))}, hang
	}
	for i, line := range fill(text.text, used, hang, p.width) {
		if i > 0 {
			lead = []span{plain(spaces(hang))}
		}
		p.put(append(lead, span{line, text.style})...)
	}
}

// unstyled makes a lead that is wider than the page a part of the text, all but its indentation.
func unstyled(lead []span, text span) ([]span, span) {
	var b strings.Builder
	for _, s := range lead {
		b.WriteString(s.text)
	}
	all := b.String()
	words := strings.TrimLeft(all, " ")
	return []span{plain(all[:len(all)-len(words)])}, plain(strings.Join(strings.FieldsFunc(
		words+" "+text.text, func(r rune) bool { return r == ' ' }), " "))
}

// item writes text as an indented paragraph behind a sign.
func (p *page) item(indent int, sign span, text string) {
	lead := []span{plain(spaces(indent)), sign, plain(" ")}
	p.flow(lead, indent+columns(sign.text)+1, plain(text))
}

// pair writes a label and what it stands for, wrapped beside it.
func (p *page) pair(label string, width int, text string) {
	if text == "" {
		return
	}
	lead := []span{plain("  " + pad(label, width) + "  ")}
	p.flow(lead, width+4, plain(text))
}

// command writes a command on a line of its own, whole, so that it can be copied.
func (p *page) command(indent int, command string) {
	p.put(plain(spaces(indent)), span{p.clean(strings.TrimSpace(command)), &p.ink.command})
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

func spaces(n int) string { return strings.Repeat(" ", max(n, 0)) }

// pad fills s with spaces to width columns, at the right.
func pad(s string, width int) string { return s + spaces(width-columns(s)) }

// padLeft fills s with spaces to width columns, at the left.
func padLeft(s string, width int) string { return spaces(width-columns(s)) + s }
