package render

import (
	"math"
	"strings"

	"github.com/kdiag/kdiag/plegbench"
)

// bar draws v to a scale on which full takes width columns. What is more than nothing shows at least half a block.
func (g glyphs) bar(v, full float64, width int) string {
	if v <= 0 || full <= 0 || width < 1 {
		return ""
	}
	halves := int(math.Round(min(v/full, 1) * float64(width) * 2))
	if halves < 2 {
		return g.half
	}
	s := strings.Repeat(g.full, halves/2)
	if halves%2 == 1 {
		s += g.half
	}
	return s
}

// limitBar draws a share of a limit, linearly, in width columns. The limit is marked at three quarters of them, so
// that what is over it can be seen to be over, and bars under one another compare. It returns the part up to the mark
// and the part beyond.
func (g glyphs) limitBar(share float64, width int) (under, beyond string) {
	below := width * 3 / 4
	above := width - below - 1
	fullCells := int(min(share, 1) * float64(below))
	under = strings.Repeat(g.full, fullCells)
	if rest := min(share, 1)*float64(below) - float64(fullCells); rest >= 0.5 {
		under += g.half
		fullCells++
	}
	under += strings.Repeat(g.track, below-fullCells) + g.mark
	if share <= 1 {
		return under, ""
	}
	if over := math.Ceil((share - 1) * float64(below)); over <= float64(above) {
		return under, strings.Repeat(g.over, int(over))
	}
	return under, strings.Repeat(g.over, above-1) + g.more
}

// series draws values over time, one character each, on a scale from zero to the largest. A negative value is a sample
// without an answer. Where there are more values than columns, each column shows the worst of its share.
func (g glyphs) series(values []float64, width int) string {
	values = worst(values, width)
	top := 0.0
	for _, v := range values {
		top = max(top, v)
	}
	var b strings.Builder
	for _, v := range values {
		switch {
		case v < 0:
			b.WriteRune(g.lost)
		case top == 0:
			b.WriteRune(g.levels[0])
		default:
			level := int(math.Ceil(v/top*float64(len(g.levels)))) - 1
			b.WriteRune(g.levels[min(max(level, 0), len(g.levels)-1)])
		}
	}
	return b.String()
}

// worst reduces values to at most width: each of the result is the largest of its share, or lost if one of it was.
func worst(values []float64, width int) []float64 {
	if len(values) <= width || width < 1 {
		return values
	}
	out := make([]float64, width)
	for i := range out {
		for _, v := range values[i*len(values)/width : (i+1)*len(values)/width] {
			if v < 0 || out[i] < 0 {
				out[i] = -1
				continue
			}
			out[i] = max(out[i], v)
		}
	}
	return out
}

// histogram draws counts by latency as horizontal bars. Empty buckets before the first and after the last are left out, and a row of
// empty ones in between becomes one line.
func (p *page) histogram(title string, buckets []plegbench.Bucket) {
	first, last, most := len(buckets), -1, 0
	for i, b := range buckets {
		if b.Count > 0 {
			first, last, most = min(first, i), i, max(most, b.Count)
		}
	}
	if last < 0 {
		return
	}
	p.heading(title)
	rows := make([][]span, 0, last-first+1)
	for i := first; i <= last; i++ {
		if empty := emptyRun(buckets[i:]); empty > 1 {
			rows = append(rows, []span{plain("..."), plain(""), plain("")})
			i += empty - 1
			continue
		}
		b := buckets[i]
		label, style := "no answer", &p.ink.bad
		if b.LeSeconds != nil {
			label, style = "to "+strings.Replace(duration(*b.LeSeconds), ".0", "", 1), nil
		}
		bar := p.glyph.bar(float64(b.Count), float64(most), min(40, p.width/2))
		rows = append(rows, []span{plain(label), plain(count(b.Count)), {bar, style}})
	}
	p.table(table{indent: 2, align: "rrl", rows: rows})
}

// emptyRun returns how many buckets are empty up to the first that is not.
func emptyRun(buckets []plegbench.Bucket) int {
	n := 0
	for n < len(buckets) && buckets[n].Count == 0 {
		n++
	}
	return n
}
