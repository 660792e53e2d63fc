package render

import (
	"io"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
)

// Canary prints the answer of kdiag canary.
func Canary(w io.Writer, r *checks.CanaryReport, o Options) error {
	m, text := o.brief(), r.Summary
	if r.Status == checks.Healthy {
		text = "canary created, started, stopped, removed in " + units.Seconds(r.Seconds)
	}
	line := m.verdict(r.Status).text + " " + m.prose(middle(m.prose(r.Host), mostName)+" "+text)
	if r.Status == checks.Unhealthy { // why it failed stands at the end
		line = middle(line, m.width)
	}
	return write(w, o, r, func(p *page) { p.canary(r) }, line)
}

// canary writes the answer of kdiag canary.
func (p *page) canary(r *checks.CanaryReport) {
	sentence := p.prose(r.Summary)
	if r.Status == checks.Healthy {
		sentence += " in " + units.Seconds(r.Seconds)
	}
	p.headline(p.verdict(r.Status), where(r.Host, r.Runtime), sentence)
	p.canarySteps(r)
	if r.Attempts > 0 {
		p.blank()
		if r.CleanedUp {
			p.text(2, "cleaned up")
		} else {
			p.flow([]span{plain("  ")}, 4, span{"NOT cleaned up: parts of the canary may be left", bad})
		}
	}
	for _, id := range r.Left {
		p.item(4, plain("-"), "sandbox "+p.prose(id))
	}
	if n := len(r.Earlier); n > 0 {
		p.text(2, "removed "+units.Count(n, "leftover")+" of earlier canaries")
	}
	problems := only(r.Problems, func(s string) bool { return s != r.Summary })
	p.list("", plain("?"), problems, len(problems))
	p.steps(r.NextSteps, nil)
	p.short = true
	p.sections(func() {
		p.blank()
		p.runtime(r.Runtime)
		p.pair("image", p.prose(r.Image))
		p.pair("network", p.prose(r.Network))
		p.pair("sandbox", p.prose(r.SandboxID))
	})
}

// canarySteps writes each step with its time, as number and bar; the error of a failed one stands below.
func (p *page) canarySteps(r *checks.CanaryReport) {
	slowest := slices.Max(append(each(r.Steps, func(s checks.CanaryStep) float64 { return s.Seconds }), 0))
	words := map[checks.Status]string{
		checks.StatusOK: "ok", checks.StatusWarning: "slow", checks.StatusCritical: "failed",
		checks.StatusSkipped: "skipped",
	}
	t := table{indent: 2, align: "lrll"}
	for _, s := range r.Steps {
		took := units.Seconds(s.Seconds)
		if s.Status == checks.StatusSkipped {
			took = "-"
		}
		t.rows = append(t.rows, []span{
			plain(p.prose(s.Name)), plain(took), plain(p.glyph.bar(s.Seconds, slowest, callBar)),
			{words[s.Status], statusInk(s.Status)},
		})
	}
	p.section("Steps (total "+units.Seconds(r.Seconds)+")", t, len(r.Steps))
	for _, s := range r.Steps {
		if why := s.Error + s.Skipped; why != "" && !strings.Contains(r.Summary, why) {
			p.flow([]span{plain("  " + p.prose(s.Name) + ": ")}, 4, plain(p.prose(why)))
		}
	}
}
