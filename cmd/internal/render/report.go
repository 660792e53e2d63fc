package render

import (
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/plegbench"
)

// pleg writes the answer of kdiag pleg. Where nothing was found it is short: figures without pictures, and of the
// checks only those that are not ok.
func (p *page) pleg(r *checks.Report) {
	p.answer(r.Header, r.Runtime, r.Status, r.Causes, r.Problems, fineRelist(fineNode, r.Relist))
	fine := r.Status == checks.Healthy && len(r.Causes) == 0
	if s := r.Relist; s != nil {
		p.limits(s)
		p.heading("Measured")
		p.figures(s)
	} else {
		p.blank()
	}
	p.runtime(r.Runtime)
	if s := r.Relist; s != nil && s.Sweep != nil && !fine {
		p.histogram("Status calls by latency", s.Sweep.Histogram)
	}
	if r.Runtime.Endpoint == "" {
		return // in all checks no runtime was asked
	}
	if !fine {
		p.blank()
	}
	p.pair("checks", tally(r.Checks))
	p.checkTable(slices.DeleteFunc(slices.Clone(r.Checks), func(c checks.Result) bool {
		return c.Status == checks.StatusOK || c.Status == checks.StatusSkipped
	}))
}

// node writes the answer of kdiag node: every check in one line, then the verdict.
func (p *page) node(r *checks.Report) {
	area := func(c checks.Result) string {
		word, _, _ := strings.Cut(c.ID, ".")
		if title := map[string]string{
			"host": "Host", "image": "Runtime", "runtime": "Runtime", "relist": "Relist",
			"kubelet": "Kubelet", "journal": "Logs", "systemd": "systemd",
		}[word]; title != "" {
			return title
		}
		return "Others"
	}
	var titles []string
	groups := map[string][]checks.Result{}
	for _, c := range r.Checks {
		title := area(c)
		if groups[title] == nil {
			titles = append(titles, title)
		}
		groups[title] = append(groups[title], c)
	}
	for _, title := range titles {
		p.heading(title)
		p.checkTable(groups[title])
	}
	if len(r.Checks) > 0 {
		p.blank()
		p.pair("checks", tally(r.Checks))
		p.runtime(r.Runtime)
		p.blank()
	}
	p.answer(r.Header, r.Runtime, r.Status, r.Causes, r.Problems, fineRelist(fineNode, r.Relist))
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

func (p *page) checkTable(results []checks.Result) {
	t := table{indent: 2, align: "lll"}
	for _, r := range results {
		t.rows = append(t.rows, []span{
			{p.prose(string(r.Status)), statusInk(r.Status)}, plain(p.prose(r.ID)), plain(p.prose(r.Summary)),
		})
	}
	p.table(t)
}

// nearLimit is the share of its limit below which a bar shows nothing that a number does not.
const nearLimit = 0.1

// limits draws the figures that have a limit when one of them comes near it; else it is one line in the figures.
func (p *page) limits(s *plegbench.Summary) {
	all := limited(s)
	near := func(g gauge) bool { return g.share() >= nearLimit }
	if !listsFail(s) && !slices.ContainsFunc(all, near) {
		return
	}
	p.heading("Against the kubelet's limits")
	if listsFail(s) {
		p.pair("relist", "fails after "+units.Seconds(*s.ProjectedSeconds)+": its lists are not answered; PLEG turns "+
			"unhealthy "+units.Seconds(s.ThresholdSeconds)+" after the last relist whose lists were")
	}
	p.gauges(all)
}

// limited returns what of a summary has a limit.
func limited(s *plegbench.Summary) []gauge {
	var all []gauge
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
		p.pair("list size", size(*s.ResponseBytes)+" of the "+size(s.ResponseLimitBytes)+" that the kubelet receives")
	}
	if l := s.List; l != nil {
		p.pair("lists", quantiles(l.P50Seconds, l.P99Seconds, l.MaxSeconds)+" in "+units.Count(l.Samples, "relist")+
			countOf(l.Errors, "failed"))
	}
	if w := s.Sweep; w != nil && w.Total > 0 {
		text := units.Number(w.Inspected) + " of " + units.Number(w.Total) + " asked, " + units.Number(w.Hung) + " hung"
		text += countOf(w.Failed, "failed") + "; " + quantiles(w.P50Seconds, w.P99Seconds, w.SlowestSeconds)
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
