package render

import (
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/plegbench"
)

// report writes the answer of kdiag pleg and kdiag node.
func (p *page) report(r *checks.Report) {
	fine := fineRelist(fineNode, r.Relist)
	p.headline(r.Status, where(r.Host, r.Runtime), sentence(p.cleaner, r.Status, r.Causes, r.Problems, fine))
	p.problems(r.Status, r.Causes, r.Problems)
	if r.Status == checks.Healthy && len(r.Causes) == 0 {
		p.healthy(r)
		return
	}
	p.causes(r.Causes)
	far := farFromLimits(r.Relist)
	if !far {
		p.limits("Against the kubelet's limits", r.Relist)
	}
	if measured(r.Relist) {
		p.heading("Measured")
		if far {
			p.reach(r.Relist)
		}
		p.figures(r.Relist)
	} else if r.Runtime.Endpoint != "" {
		p.heading("Runtime")
	}
	p.runtime(r.Runtime, labelWidth)
	if r.Relist != nil && r.Relist.Sweep != nil {
		p.histogram("Status calls by latency", r.Relist.Sweep.Histogram)
	}
	if r.Runtime.Endpoint != "" { // else all of them say that no runtime was asked
		p.checks(r.Checks)
	}
}

// node writes the answer of kdiag node: every check in one line, then the verdict.
func (p *page) node(r *checks.Report) {
	for _, g := range groups(r.Checks) {
		p.heading(g.title)
		p.checkTable(g.checks)
	}
	if len(r.Checks) > 0 {
		p.blank()
		p.pair("checks", labelWidth, tally(r.Checks))
		p.runtime(r.Runtime, labelWidth)
		p.blank()
	}
	p.headline(r.Status, where(r.Host, r.Runtime), sentence(p.cleaner, r.Status, r.Causes, r.Problems, fineRelist(fineNode, r.Relist)))
	p.problems(r.Status, r.Causes, r.Problems)
	p.causes(r.Causes)
}

// A group is the checks of one part of the node.
type group struct {
	title  string
	checks []checks.Result
}

// groups parts checks by the first word of their ids, in the order in which they come.
func groups(results []checks.Result) []group {
	titles := map[string]string{
		"host": "Host", "systemd": "systemd", "runtime": "Runtime", "image": "Runtime", "relist": "Relist",
		"kubelet": "Kubelet", "journal": "Logs",
	}
	var all []group
	for _, r := range results {
		word, _, _ := strings.Cut(r.ID, ".")
		title := titles[word]
		if title == "" {
			title = "Others"
		}
		i := slices.IndexFunc(all, func(g group) bool { return g.title == title })
		if i < 0 {
			i = len(all)
			all = append(all, group{title: title})
		}
		all[i].checks = append(all[i].checks, r)
	}
	return all
}

// measured reports whether a summary has figures to show.
func measured(s *plegbench.Summary) bool {
	return s != nil && (s.List != nil || s.Sweep != nil || s.Sandboxes != nil || s.Containers != nil)
}

// healthy writes the short form: figures without pictures, and of the checks only those that are not ok.
func (p *page) healthy(r *checks.Report) {
	p.blank()
	if r.Relist != nil {
		p.reach(r.Relist)
		p.pair("lists", labelWidth, lists(r.Relist.List))
		p.pair("statuses", labelWidth, p.statuses(r.Relist.Sweep))
		p.pair("holds", labelWidth, holds(r.Relist))
	}
	p.runtime(r.Runtime, labelWidth)
	p.pair("checks", labelWidth, tally(r.Checks))
	p.checkTable(notable(r.Checks))
}

// reach writes what has a limit in words, for when it is far from it.
func (p *page) reach(s *plegbench.Summary) {
	p.pair("relist", labelWidth, relistLine(s))
	p.pair("list size", labelWidth, sizeLine(s))
}

func relistLine(s *plegbench.Summary) string {
	var parts []string
	for _, g := range gauges(s) {
		switch g.label {
		case "relist now":
			parts = append(parts, g.print(g.value)+" now")
		case "in a rollout", "after a restart":
			parts = append(parts, g.print(g.value)+" "+g.label)
		}
	}
	return strings.Join(parts, ", ")
}

func sizeLine(s *plegbench.Summary) string {
	if s.ResponseBytes == nil {
		return ""
	}
	least := ""
	if s.ResponseTruncated {
		least = "at least "
	}
	return least + size(float64(*s.ResponseBytes)) + " of the " + size(float64(s.ResponseLimitBytes)) + " that the kubelet receives"
}

// holds counts sandboxes and containers in one line.
func holds(s *plegbench.Summary) string {
	var parts []string
	if s.Sandboxes != nil {
		parts = append(parts, "sandboxes "+sandboxes(s.Sandboxes))
	}
	if s.Containers != nil {
		parts = append(parts, "containers "+containers(s.Containers))
	}
	return strings.Join(parts, "; ")
}

// tally counts checks by outcome, worst first.
func tally(results []checks.Result) string {
	var parts []string
	for _, s := range []checks.Status{
		checks.StatusCritical, checks.StatusWarning, checks.StatusUnknown, checks.StatusOK, checks.StatusSkipped,
	} {
		n := 0
		for _, r := range results {
			if r.Status == s {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, count(n)+" "+string(s))
		}
	}
	return strings.Join(parts, ", ")
}

// checks writes the checks that say something in one line each, and how many there are of each outcome.
func (p *page) checks(results []checks.Result) {
	if len(results) == 0 {
		return
	}
	p.heading("Checks: " + tally(results))
	p.checkTable(notable(results))
}

// notable returns the checks that are neither ok nor skipped.
func notable(results []checks.Result) []checks.Result {
	var rest []checks.Result
	for _, c := range results {
		if c.Status != checks.StatusOK && c.Status != checks.StatusSkipped {
			rest = append(rest, c)
		}
	}
	return rest
}

func (p *page) checkTable(results []checks.Result) {
	rows := make([][]span, 0, len(results))
	for _, r := range results {
		rows = append(rows, []span{
			{p.prose(string(r.Status)), p.ink.status(r.Status)},
			plain(p.prose(r.ID)),
			plain(p.prose(r.Summary)),
		})
	}
	p.table(table{indent: 2, align: "lll", rows: rows})
}
