package render

import (
	"path"
	"strings"
)

// maxProgressLine bounds a line of progress in bytes, as a name may be anything.
const maxProgressLine = 4096

// A reading is how far the reading of logs is.
type reading struct {
	source      string
	done, total int64 // bytes; total 0 is not known
	found       int64 // records that say that PLEG is not healthy
}

// Reading shows how far the reading of logs is: what is read, the bytes read of all and of how many, and how many
// records that say that PLEG is not healthy were found. A total of 0 is not known.
func (p *Progress) Reading(source string, done, total, found int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reading = reading{source, done, total, found}
	p.start()
}

// readingLine says it in words, with a bar where the total is known.
func (p *Progress) readingLine(c cleaner) string {
	const width = 16
	r := p.reading
	name := briefLine{c, p.width}.middle(c.prose(path.Base(r.source)), max(p.width/4, 12))
	if r.source == "-" {
		name = "standard input"
	}
	line := "reading " + name + "  "
	if r.total > 0 {
		g := newGlyphs(p.ASCII)
		done := g.bar(float64(r.done), float64(r.total), width)
		line += done + strings.Repeat(g.track, width-columns(done)) + "  " + size(float64(r.done)) + " of " +
			size(float64(r.total))
	} else {
		line += size(float64(r.done))
	}
	if r.found > 0 {
		line += "  " + count(int(r.found)) + " found"
	}
	return line
}
