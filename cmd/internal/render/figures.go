package render

import (
	"strings"

	"github.com/kdiag/kdiag/plegbench"
)

// labelWidth is the width of the labels in the list of figures.
const labelWidth = 10

// A gauge is one figure and the limit that it is held against.
type gauge struct {
	label string
	value float64
	limit float64
	print func(float64) string
}

// gauges returns what of a summary has a limit.
func gauges(s *plegbench.Summary) []gauge {
	var out []gauge
	for _, g := range []struct {
		label string
		value *float64
	}{
		{"relist now", s.ProjectedSeconds},
		{"kubelet <= 1.35", s.OlderProjectedSeconds},
		{"in a rollout", s.ChurnSeconds},
		{"after a restart", s.ColdSeconds},
		{"last seen active", s.ProjectedAgeSeconds},
	} {
		if g.value != nil && !listsFail(s) {
			out = append(out, gauge{g.label, *g.value, s.ThresholdSeconds, duration})
		}
	}
	if s.ResponseBytes != nil {
		label := "list size"
		if s.ResponseTruncated {
			label += " >=" // a lower bound: part of the list is missing
		}
		out = append(out, gauge{label, float64(*s.ResponseBytes), float64(s.ResponseLimitBytes), size})
	}
	return out
}

// listsFail reports whether the relist that a summary projects comes to nothing: the lists hang, it costs time, and the
// age that it would stop does not end.
func listsFail(s *plegbench.Summary) bool {
	return s.ProjectedSeconds != nil && s.ProjectedAgeSeconds == nil
}

// noPicture is the share of its limit below which a bar shows nothing that a number does not.
const noPicture = 0.1

// farFromLimits reports whether no figure comes near its limit.
func farFromLimits(s *plegbench.Summary) bool {
	if s == nil || listsFail(s) {
		return false
	}
	for _, g := range gauges(s) {
		if g.share() >= noPicture {
			return false
		}
	}
	return true
}

// share is how much of its limit a gauge uses; 0 without a limit.
func (g gauge) share() float64 {
	if g.limit <= 0 {
		return 0
	}
	return g.value / g.limit
}

// limits draws the figures that have a limit to one scale, on which all limits are at the same mark.
func (p *page) limits(title string, s *plegbench.Summary) {
	if s == nil {
		return
	}
	all := gauges(s)
	if len(all) == 0 && !listsFail(s) {
		return
	}
	p.heading(title)
	if listsFail(s) {
		p.pair("relist now", labelWidth, "fails after "+duration(*s.ProjectedSeconds)+
			": its lists are not answered, so it does not count, and PLEG is unhealthy "+duration(s.ThresholdSeconds)+" after the last that did")
	}
	var labels, values, of int
	for _, g := range all {
		labels, values = max(labels, columns(g.label)), max(values, columns(g.print(g.value)))
		of = max(of, columns(p.ofLimit(g)))
	}
	room := min(p.width-2-labels-2-values-2-2-of, 40)
	for _, g := range all {
		if room < 12 {
			p.pair(g.label, labels, g.print(g.value)+", "+p.ofLimit(g))
			continue
		}
		under, beyond := p.glyph.limitBar(g.share(), room)
		p.put(
			plain("  "+pad(g.label, labels)+"  "+padLeft(g.print(g.value), values)+"  "),
			plain(under), span{beyond, &p.ink.bad}, plain(spaces(room-columns(under+beyond))+"  "+p.ofLimit(g)),
		)
	}
}

func (p *page) ofLimit(g gauge) string {
	if g.limit <= 0 {
		return ""
	}
	return padLeft(percent(g.share()), 4) + " of " + g.print(g.limit)
}

// figures writes the numbers that have no limit, one line each.
func (p *page) figures(s *plegbench.Summary) {
	if s == nil {
		return
	}
	p.pair("lists", labelWidth, lists(s.List))
	p.pair("statuses", labelWidth, p.statuses(s.Sweep))
	p.pair("sandboxes", labelWidth, sandboxes(s.Sandboxes))
	if s.Containers != nil {
		p.pair("containers", labelWidth, containers(s.Containers)+beyondNewest(s.ExitedBeyondNewest))
	}
	p.pair("each takes", labelWidth, perContainer(s))
}

func lists(l *plegbench.ListSummary) string {
	if l == nil {
		return ""
	}
	text := "no answer in " + plural(l.Samples, "try")
	if l.Samples != 1 {
		text = "no answer in " + count(l.Samples) + " tries"
	}
	if l.P50Seconds == nil {
		return text
	}
	text = quantiles(l.P50Seconds, l.P99Seconds) + ", max" + glue + optional(l.MaxSeconds, duration) +
		" in " + plural(l.Samples, "relist")
	if l.Errors > 0 {
		text += ", " + count(l.Errors) + " failed"
	}
	return text
}

func quantiles(p50, p99 *float64) string {
	return "p50" + glue + optional(p50, duration) + ", p99" + glue + optional(p99, duration)
}

func (p *page) statuses(s *plegbench.SweepSummary) string {
	if s == nil || s.Total == 0 && s.Inspected == 0 {
		return ""
	}
	text := count(s.Inspected) + " of " + count(s.Total) + " asked, "
	if s.Hung == 0 {
		text += "none hung"
	} else {
		text += count(s.Hung) + " hung"
	}
	if s.Failed > 0 {
		text += ", " + count(s.Failed) + " failed"
	}
	if s.P50Seconds != nil {
		text += "; " + quantiles(s.P50Seconds, s.P99Seconds) + ", slowest" + glue + optional(s.SlowestSeconds, duration)
	}
	if s.Inspected < s.Total && s.Reach != "" {
		_, why, found := strings.Cut(s.Reach, ": ")
		if !found {
			why = s.Reach
		}
		text += "; " + p.prose(why)
	}
	return text
}

func sandboxes(s *plegbench.SandboxCounts) string {
	if s == nil {
		return ""
	}
	return count(s.Ready) + " ready, " + count(s.NotReady) + " not ready"
}

// containers counts by state; states that no container is in are left out, except for running and exited.
func containers(c *plegbench.ContainerCounts) string {
	parts := []string{count(c.Running) + " running", count(c.Exited) + " exited"}
	if c.Created > 0 {
		parts = append(parts, count(c.Created)+" created")
	}
	if c.Unknown > 0 {
		parts = append(parts, count(c.Unknown)+" in an unknown state")
	}
	return strings.Join(parts, ", ")
}

// beyondNewest says how many exited containers a garbage collector could take.
func beyondNewest(n *int) string {
	if n == nil || *n == 0 {
		return ""
	}
	return "; " + count(*n) + " of the exited have a newer one of the same pod and name"
}

func perContainer(s *plegbench.Summary) string {
	if s.BytesPerContainer == nil {
		return ""
	}
	text := size(*s.BytesPerContainer) + " of the list"
	if s.ContainersAtLimit != nil {
		text += "; " + count(*s.ContainersAtLimit) + " containers fill " + size(float64(s.ResponseLimitBytes))
	}
	return text
}
