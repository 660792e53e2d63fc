package render

import (
	"strings"

	"github.com/kdiag/kdiag/crictl/gc"
)

// Removing shows how far a clean-up is.
func (p *Progress) Removing(now gc.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removing = now
	p.start()
}

// removingLine shows a bar, the rate and the time left; during a pause, why.
func (p *Progress) removingLine(c cleaner) string {
	const width = 20
	r := p.removing
	g := newGlyphs(p.ASCII)
	settled := r.Removed + r.Skipped + r.Failed
	bar := g.bar(float64(settled), float64(r.Total), width)
	line := "removing  " + bar + strings.Repeat(g.track, width-columns(bar)) + "  " + count(settled) + "/" + count(r.Total)
	if r.Failed > 0 {
		line += "  " + count(r.Failed) + " failed"
	}
	if r.Paused != "" {
		return line + "  paused: " + c.prose(r.Paused)
	}
	if r.PerSecond > 0 {
		line += "  " + perSecond(r.PerSecond)
	}
	if r.TimeLeft > 0 {
		line += "  " + duration(r.TimeLeft.Seconds()) + " left"
	}
	return line
}
