package render

import (
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/plegbench"
)

// pleg writes the answer of kdiag pleg.
func (p *page) pleg(r *checks.Report) {
	p.report(r, "pleg --details")
	if p.details && r.Runtime.Endpoint != "" { // else no check asked a runtime
		p.blank()
		p.pair("checks", tally(r.Checks))
		p.checks(r.Checks, false)
	}
}

// node writes the answer of kdiag node, then the checks that are not ok, or all. Their number is always shown.
func (p *page) node(r *checks.Report, all bool) {
	const kept = 2
	p.short = true
	p.screen -= kept
	p.report(r, "node --details")
	p.screen += kept
	p.blank()
	if len(r.Checks) > 0 {
		p.pair("checks", tally(r.Checks))
	}
	p.checks(r.Checks, all)
}

// report writes a conclusion, and all that was measured where details are wanted.
func (p *page) report(r *checks.Report, more string) {
	p.conclude(conclusion{
		Header: r.Header, runtime: r.Runtime, causes: r.Causes, notes: recorded(r),
		fine: fineRelist(fineNode, r.Relist), looked: p.prose(p.runtimeName(r.Runtime) + " " + r.Runtime.Endpoint),
		more: more,
	})
	if !p.details {
		return
	}
	if s := r.Relist; s != nil {
		p.limits(s)
		p.heading("Measured")
		p.figures(s)
	} else {
		p.blank()
	}
	p.runtime(r.Runtime)
	if s := r.Relist; s != nil && s.Sweep != nil {
		p.histogram("Status calls by latency", s.Sweep.Histogram)
	}
}

// checks writes all checks, or those that found something or could not look, and of these those that found the same as
// one. They have a line each where there are no details.
func (p *page) checks(results []checks.Result, all bool) {
	var found []checks.Result
	for _, r := range results {
		same := func(f checks.Result) bool { return f.Status == r.Status && f.Summary == r.Summary }
		i := slices.IndexFunc(found, same)
		switch {
		case !all && (r.Status == checks.StatusOK || r.Status == checks.StatusSkipped):
		case i >= 0 && !all:
			found[i].ID += ", " + r.ID
		default:
			found = append(found, r)
		}
	}
	for _, r := range found {
		write := func() { p.check(r) }
		if all {
			write()
		} else {
			p.sections(write)
		}
	}
}

// check writes one check.
func (p *page) check(r checks.Result) {
	status := span{pad(p.prose(string(r.Status)), len(checks.StatusCritical)), statusInk(r.Status)}
	lead, text := []span{plain("  "), status, plain("  ")}, p.prose(r.ID+": "+r.Summary)
	if p.details {
		p.flow(lead, len(checks.StatusCritical)+4, plain(text))
	} else {
		p.oneLine(lead, plain(text))
	}
}

// tally counts checks by outcome, worst first.
func tally(results []checks.Result) string {
	counts := map[checks.Status]int{}
	for _, r := range results {
		counts[r.Status]++
	}
	var parts []string
	for _, s := range []checks.Status{
		checks.StatusCritical, checks.StatusWarning, checks.StatusUnknown, checks.StatusOK, checks.StatusSkipped,
	} {
		if n := counts[s]; n > 0 {
			parts = append(parts, units.Number(n)+" "+string(s))
		}
	}
	return strings.Join(parts, ", ")
}

// limits draws the figures that have a limit.
func (p *page) limits(s *plegbench.Summary) {
	p.heading("Against the kubelet's limits")
	if listsFail(s) {
		p.pair("relist", "times out after "+units.Seconds(*s.ProjectedSeconds)+"; PLEG turns unhealthy "+
			units.Seconds(s.ThresholdSeconds)+" after the last good one")
	}
	p.gauges(limited(s))
}

// limited returns what of a summary has a limit.
func limited(s *plegbench.Summary) []gauge {
	var all []gauge
	for _, g := range []figure{
		{label: "relist now", value: s.ProjectedSeconds},
		{label: "relist, kubelet 1.35 and older", value: s.OlderProjectedSeconds},
		{label: "relist in a rollout", value: s.ChurnSeconds},
		{label: "relist after kubelet restart", value: s.ColdSeconds},
		{label: "age that the kubelet logs", value: s.ProjectedAgeSeconds},
	} {
		if g.value != nil && !listsFail(s) {
			all = append(all, gauge{g.label, *g.value, s.ThresholdSeconds, units.Seconds})
		}
	}
	if s.ResponseBytes != nil {
		label := "list size"
		if s.ResponseTruncated {
			label += " >=" // a lower bound: part of the list is missing
		}
		all = append(all, gauge{label, float64(*s.ResponseBytes), float64(s.ResponseLimitBytes), size[float64]})
	}
	return all
}

// listsFail reports whether the relist that a summary projects comes to nothing: the lists hang, it costs time, and the
// age that it would stop does not end.
func listsFail(s *plegbench.Summary) bool {
	return s.ProjectedSeconds != nil && s.ProjectedAgeSeconds == nil
}

// figures writes the numbers that have no limit, one line each.
func (p *page) figures(s *plegbench.Summary) {
	if !listsFail(s) && s.ProjectedSeconds != nil {
		text := units.Seconds(*s.ProjectedSeconds) + " now"
		if s.ColdSeconds != nil {
			text += ", " + units.Seconds(*s.ColdSeconds) + " after a kubelet restart" + estimate(s.ColdRange)
		}
		p.pair("relist", text)
	}
	if s.ResponseBytes != nil {
		p.pair("list size", size(*s.ResponseBytes)+", limit "+size(s.ResponseLimitBytes))
	}
	if l := s.List; l != nil {
		p.pair("lists", quantiles(l.P50Seconds, l.P99Seconds, l.MaxSeconds)+" in "+units.Count(l.Samples, "relist")+
			countOf(l.Errors, "failed"))
	}
	if w := s.Sweep; w != nil && w.Total > 0 {
		text := units.Number(w.Inspected) + " of " + units.Number(w.Total) + " checked, " +
			units.Number(w.Hung) + " hung" + countOf(w.Failed, "failed") + "; " +
			quantiles(w.P50Seconds, w.P99Seconds, w.SlowestSeconds)
		if w.Inspected < w.Total && w.Reach != "" {
			text += "; " + p.prose(w.Reach[strings.Index(w.Reach, ":")+1:])
		}
		p.pair("statuses", text)
	}
	if c := s.Sandboxes; c != nil {
		p.pair("sandboxes", units.Number(c.Ready)+" ready, "+units.Number(c.NotReady)+" not ready")
	}
	if c := s.Containers; c != nil {
		p.pair("containers", units.Number(c.Running)+" running, "+units.Number(c.Exited)+" exited"+
			countOf(c.Created, "created")+countOf(c.Unknown, "unknown"))
	}
}

func quantiles(p50, p99, most *float64) string {
	if p50 == nil {
		return "none answered"
	}
	return "p50" + glue + seconds(p50) + ", p99" + glue + seconds(p99) + ", max" + glue + seconds(most)
}

// countOf returns such as ", 3 failed"; nothing for none.
func countOf(n int, what string) string {
	if n == 0 {
		return ""
	}
	return ", " + units.Number(n) + " " + what
}

// recorded returns the notes of a report, after what the agent recorded.
func recorded(r *checks.Report) []string {
	if r.Recorded == "" {
		return r.Notes
	}
	return append([]string{"recorded: " + r.Recorded + " (kdiag history)"}, r.Notes...)
}
