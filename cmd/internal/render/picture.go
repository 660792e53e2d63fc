package render

import (
	"math"
	"strings"

	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/plegbench"
)

// bar draws v to a scale on which full takes width columns. What is more than nothing shows at least half a block.
func (g glyphs) bar(v, full float64, width int) string {
	if v <= 0 || full <= 0 || width < 1 {
		return ""
	}
	halves := max(1, int(math.Round(min(v/full, 1)*float64(width)*2)))
	return strings.Repeat(g.full, halves/2) + strings.Repeat(g.half, halves%2)
}

// limitBar draws a share of a limit, linearly, in width columns. The limit is marked at three quarters of them, so
// that what is over it can be seen to be over, and bars under one another compare. It returns the part up to the mark
// and the part beyond.
func (g glyphs) limitBar(share float64, width int) (under, beyond string) {
	below := width * 3 / 4
	above := width - below - 1
	halves := int(min(max(share, 0), 1) * float64(below) * 2)
	under = strings.Repeat(g.full, halves/2) + strings.Repeat(g.half, halves%2)
	under += strings.Repeat(g.track, below-(halves+1)/2) + g.mark
	if share <= 1 {
		return under, ""
	}
	if over := math.Ceil((share - 1) * float64(below)); over <= float64(above) {
		return under, strings.Repeat(g.over, int(over))
	}
	return under, strings.Repeat(g.over, above-1) + ">"
}

// A gauge is one figure and the limit that it is held against.
type gauge struct {
	label        string
	value, limit float64
	print        func(float64) string
}

// share is how much of its limit a gauge uses; 0 without a limit.
func (g gauge) share() float64 {
	if g.limit <= 0 {
		return 0
	}
	return g.value / g.limit
}

// ofLimit returns such as "69% of 3m"; empty without a limit.
func (g gauge) ofLimit() string {
	if g.limit <= 0 {
		return ""
	}
	return padLeft(units.Percent(g.share()), 4) + " of " + g.print(g.limit)
}

// gauges draws figures to one scale, on which all limits are at the same mark.
func (p *page) gauges(all []gauge) {
	const shortest, longest = 12, 40
	var labels, values, limits int
	for _, g := range all {
		labels, values = max(labels, columns(g.label)), max(values, columns(g.print(g.value)))
		limits = max(limits, columns(g.ofLimit()))
	}
	width := min(p.width-2-labels-2-values-2-2-limits, longest)
	for _, g := range all {
		if width < shortest {
			p.pair(g.label, g.print(g.value)+", "+g.ofLimit())
			continue
		}
		under, beyond := p.glyph.limitBar(g.share(), width)
		p.put(plain("  "+pad(g.label, labels)+"  "+padLeft(g.print(g.value), values)+"  "),
			plain(under), span{beyond, bad}, plain(spaces(width-columns(under+beyond))+"  "+g.ofLimit()))
	}
}

// histogram draws counts by latency as horizontal bars. Empty buckets before the first and after the last are left out,
// and a row of empty ones in between becomes one line.
func (p *page) histogram(title string, buckets []plegbench.Bucket) {
	first, last, most := len(buckets), -1, 0
	for i, b := range buckets {
		if b.Count > 0 {
			first, last, most = min(first, i), i, max(most, b.Count)
		}
	}
	t := table{indent: 2, align: "rrl"}
	for i := first; i <= last; i++ {
		b := buckets[i]
		switch bar := p.glyph.bar(float64(b.Count), float64(most), min(40, p.width/2)); {
		case b.Count == 0 && buckets[i-1].Count == 0:
		case b.Count == 0 && buckets[i+1].Count == 0:
			t.add("...", "", "")
		case b.LeSeconds == nil:
			t.rows = append(t.rows, []span{plain("no answer"), plain(units.Number(b.Count)), {bar, bad}})
		default:
			t.add(between(buckets, i), units.Number(b.Count), bar)
		}
	}
	p.section(title, t, len(t.rows))
}

// between returns the latencies of a bucket, such as "2 to 5ms".
func between(buckets []plegbench.Bucket, i int) string {
	to := units.Seconds(*buckets[i].LeSeconds)
	if i == 0 {
		return "under " + to
	}
	return units.Seconds(*buckets[i-1].LeSeconds) + " to " + to
}
