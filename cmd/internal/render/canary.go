package render

import (
	"io"
	"strings"

	"github.com/kdiag/kdiag/checks"
)

// Canary prints the answer of kdiag canary.
func Canary(w io.Writer, r *checks.CanaryReport, o Options) error {
	return write(w, "canary report", o, view{
		doc:   r,
		text:  func(p *page) { p.canary(r) },
		brief: func(m briefLine) string { return m.canary(r) },
	})
}

// canary writes the answer of kdiag canary.
func (p *page) canary(r *checks.CanaryReport) {
	p.headline(r.Status, where(r.Host, r.Runtime), p.prose(canarySentence(r)))
	if r.Runtime.Endpoint != "" {
		p.heading("Canary")
	}
	p.runtime(r.Runtime, labelWidth)
	p.pair("image", labelWidth, p.prose(r.Image))
	if len(r.Steps) > 0 {
		p.pair("network", labelWidth, p.prose(map[string]string{"host": "the host's", "cni": "its own, by CNI"}[r.Network]))
	}
	p.pair("sandbox", labelWidth, shortID(p.prose(r.SandboxID)))
	p.canarySteps(r)
	p.canaryNotes(r)
	if len(r.NextSteps) > 0 {
		p.steps(r.NextSteps, true, map[string]bool{})
	}
}

// canarySentence is the summary, with what the whole took where it went well.
func canarySentence(r *checks.CanaryReport) string {
	if r.Status == checks.Healthy {
		return r.Summary + " in " + duration(r.Seconds)
	}
	return r.Summary
}

// canarySteps writes each step with its time, as number and bar; what the runtime said of a failed one stands below.
func (p *page) canarySteps(r *checks.CanaryReport) {
	if len(r.Steps) == 0 {
		return
	}
	p.heading("Steps, " + duration(r.Seconds) + " in all")
	slowest := 0.0
	for _, s := range r.Steps {
		slowest = max(slowest, s.Seconds)
	}
	t := table{indent: 2, align: "lrll"}
	for _, s := range r.Steps {
		took := duration(s.Seconds)
		if s.Status == checks.StatusSkipped {
			took = "-"
		}
		t.rows = append(t.rows, []span{
			plain(p.prose(s.Name)), plain(took), plain(pad(p.glyph.bar(s.Seconds, slowest, probeBar), probeBar)), p.canaryOutcome(s),
		})
	}
	p.table(t)
	for _, s := range r.Steps {
		if why := s.Error + s.Skipped; why != "" && !strings.Contains(r.Summary, why) {
			p.flow([]span{plain("  " + p.prose(s.Name) + ": ")}, 4, plain(p.prose(why)))
		}
	}
}

func (p *page) canaryOutcome(s checks.CanaryStep) span {
	words := map[checks.Status]string{
		checks.StatusOK: "ok", checks.StatusWarning: "slow", checks.StatusCritical: "failed", checks.StatusSkipped: "skipped",
	}
	style := p.ink.status(s.Status)
	if s.Status == checks.StatusOK {
		style = nil
	}
	return span{words[s.Status], style}
}

// canaryNotes writes what is left, what was removed of earlier runs, and what was not as it should be.
func (p *page) canaryNotes(r *checks.CanaryReport) {
	if r.Attempts > 0 {
		p.blank()
		text := span{"cleaned up: nothing of the canary is left", nil}
		if !r.CleanedUp {
			text = span{"NOT cleaned up: something of the canary may be left", &p.ink.bad}
		}
		p.flow([]span{plain("  ")}, 4, text)
	}
	for _, id := range r.Left {
		p.item(4, plain("-"), "sandbox "+shortID(p.prose(id)))
	}
	if n := len(r.Earlier); n > 0 {
		p.flow([]span{plain("  ")}, 4, plain("removed what earlier canaries left: "+count(n)))
	}
	for _, s := range r.Problems {
		p.item(2, plain("?"), p.prose(s))
	}
}

func (m briefLine) canary(r *checks.CanaryReport) string {
	text := canarySentence(r)
	if r.Status == checks.Healthy {
		text = "a canary ran and was removed in " + duration(r.Seconds)
	}
	line := verdictWord(m.cleaner, r.Status) + " " + m.prose(m.middle(m.prose(r.Host), 24)+" "+text)
	if r.Status == checks.Unhealthy { // why it failed stands at the end
		return m.middle(line, m.width)
	}
	return m.cut(line)
}
