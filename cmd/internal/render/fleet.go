package render

import (
	"cmp"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
)

// The formats that kdiag fleet has besides, as kubectl has them.
const (
	Wide Format = "wide" // one table of all nodes and columns
	Name Format = "name" // node/NAME of each sick node, a line each
)

const (
	leastName  = 16 // columns of a node's name that is cut
	mostGroups = 4  // in the headline
)

// Fleet prints the answer of kdiag fleet.
func Fleet(w io.Writer, r *checks.FleetReport, o Options) error {
	switch o.Format {
	case Name:
		var names strings.Builder
		for _, n := range sick(r) {
			names.WriteString("node/" + o.brief().clean(n.Name) + "\n")
		}
		_, err := io.WriteString(w, names.String())
		return err
	case Wide:
		o.NoWrap = true
	}
	m := o.brief()
	line := strings.TrimSpace(middle(m.prose(r.Cluster), mostName) + " " + m.fleet(r))
	return write(w, o, r, func(p *page) {
		if o.Format == Wide {
			p.nodes(r, r.Nodes, o.Bare, 0)
			return
		}
		p.fleet(r, o.Bare)
	}, m.verdict(r.Status).text+" "+line)
}

// sick returns the nodes that are in a group; they come first.
func sick(r *checks.FleetReport) []checks.FleetNode {
	return only(r.Nodes, func(n checks.FleetNode) bool { return n.Cause != "" })
}

// fleet puts the nodes and their causes into a sentence.
func (c cleaner) fleet(r *checks.FleetReport) string {
	all, n := units.Count(r.Counts.Nodes, "node"), r.Counts
	group := func(g checks.FleetGroup) string { return units.Number(len(g.Nodes)) + " " + c.prose(g.Cause) }
	parts := each(r.Groups[:min(len(r.Groups), mostGroups)], group)
	if more := len(r.Groups) - len(parts); more > 0 {
		parts = append(parts, units.Number(more)+" other causes")
	}
	switch unready := n.NotReady + n.Silent; {
	case r.Status == checks.Unknown && len(r.Problems) > 0:
		return c.prose(r.Problems[0])
	case unready > 0 && n.Problems > 0:
		return units.Number(unready) + " of " + all + " not ready, " + units.Number(n.Problems) + " ready but sick: " +
			strings.Join(parts, ", ")
	case unready > 0:
		return units.Number(unready) + " of " + all + " not ready: " + strings.Join(parts, ", ")
	case n.Problems > 0:
		return units.Number(n.Problems) + " of " + all + " ready but sick: " + strings.Join(parts, ", ")
	}
	parts = []string{all + ", all ready"}
	if n.Diagnosed > 0 {
		parts = append(parts, "kdiag agent on "+units.Number(n.Diagnosed)+" finds nothing critical")
	}
	if n.Logs != nil {
		text := "logs of " + units.Number(*n.Logs) + " read"
		if *n.Findings > 0 {
			text += ", " + units.Number(*n.Findings) + " with findings (-o wide)"
		}
		parts = append(parts, text)
	}
	if n := len(only(r.Nodes, func(n checks.FleetNode) bool { return n.Unschedulable })); n > 0 {
		parts = append(parts, units.Number(n)+" cordoned")
	}
	for _, check := range r.Checks {
		if check.Status == checks.StatusWarning || check.Status == checks.StatusCritical {
			parts = append(parts, c.prose(check.ID)+": "+c.prose(check.Summary))
			break
		}
	}
	return strings.Join(parts, "; ")
}

// fleet prints the nodes of a cluster on one screen, or with all details.
func (p *page) fleet(r *checks.FleetReport, bare bool) {
	begin, problems := p.rows, r.Problems
	p.headline(p.verdict(r.Status), r.Cluster, p.cleaner.fleet(r))
	if r.Status == checks.Unknown && len(problems) > 0 {
		problems = problems[1:] // the headline has the first
	}
	p.fit(begin, func(f fold) {
		for i, g := range r.Groups {
			if i == 0 || p.details {
				p.group(g, f)
			}
		}
		p.blank()
		if !p.details && len(r.Groups) > 1 {
			p.otherGroups(r.Groups[1:], f.supports)
		}
		p.clusterChecks(r.Checks, f.supports)
		p.folded("?", problems, f.supports)
		nodes := sick(r)
		left := len(nodes) - f.others
		p.blank()
		p.nodes(r, nodes[:min(len(nodes), f.others)], bare, 2)
		if left > 0 {
			p.text(2, "and "+units.Number(left)+" more: -o wide")
		}
		if p.details {
			p.nodeEvents(nodes)
			return
		}
		p.blank()
		p.moreOf([]string{p.rerun, "-o wide", "-o json"})
	})
}

// otherGroups writes at most so many groups, in a line each.
func (p *page) otherGroups(groups []checks.FleetGroup, most int) {
	for i, g := range groups[:min(len(groups), most)] {
		lead := []span{{p.prose(g.Cause), strongly(bad)}, plain("  " + units.Count(len(g.Nodes), "node"))}
		p.oneLine(append(lead, plain(andMore(i, most, len(groups))+": ")), plain(p.prose(g.Summary)))
	}
}

// group writes a group: what its nodes have in common, known bugs, and what to do.
func (p *page) group(g checks.FleetGroup, f fold) {
	p.blank()
	p.flow([]span{{p.prose(g.Cause), strongly(bad)}, plain("  ")}, 2,
		plain(units.Count(len(g.Nodes), "node")+": "+p.prose(g.Summary)))
	label, shown := "in common", min(len(g.Common), f.supports+1)
	for i, c := range g.Common[:shown] {
		line := p.prose(c.Key) + " " + p.prose(c.Value) + ": " + share(c.InGroup) + "; of the healthy nodes " +
			share(c.Elsewhere)
		if p.details {
			line += " (" + chance(c.P) + ")"
		}
		p.pair(label, line+andMore(i, shown, len(g.Common)))
		label = ""
	}
	p.pair("known bugs", p.prose(strings.Join(g.Advisories, ", ")))
	for i, s := range foremost(g.NextSteps, f.steps) {
		p.step(i+1, s)
	}
}

// share returns such as "4 of 5,000", or "all 37".
func share(s checks.FleetShare) string {
	if s.Nodes == s.Of {
		return "all " + units.Number(s.Of)
	}
	return units.Number(s.Nodes) + " of " + units.Number(s.Of)
}

// chance writes a probability with one digit.
func chance(p float64) string {
	if p < 1e-300 {
		return "p<1e-300"
	}
	return "p" + glue + strconv.FormatFloat(p, 'g', 1, 64)
}

// clusterChecks writes the checks of the cluster in a line each: with details all, else those that are not well.
func (p *page) clusterChecks(all []checks.Result, most int) {
	if !p.details {
		all = only(all, func(c checks.Result) bool { return c.Status != checks.StatusOK && c.Status != checks.StatusSkipped })
	}
	for i, c := range all[:min(len(all), most)] {
		lead := []span{plain(p.prose(c.ID) + "  "), {p.prose(string(c.Status)), statusInk(c.Status)}}
		if p.details {
			p.flow(append(lead, plain(": ")), 2, plain(p.prose(c.Summary)))
		} else {
			p.oneLine(append(lead, plain(andMore(i, most, len(all))+": ")), plain(p.prose(c.Summary)))
		}
	}
}

// nodes writes a table of nodes. A terminal gets the first columns, and names cut in the middle where there is no room;
// with details and in the wide format all columns are written whole.
func (p *page) nodes(r *checks.FleetReport, nodes []checks.FleetNode, bare bool, indent int) {
	t := table{
		indent: indent, align: "lllllllllllllll", head: []string{
			"NODE", "READY", "SINCE", "LEASE", "CAUSE", "KUBELET", "RUNTIME", "KERNEL", "ZONE", "TYPE", "POOL", "OWNER",
			"PODS", "AGE", "MESSAGE",
		},
	}
	shown, all := 5, p.details || indent == 0
	if all {
		shown = len(t.head)
	}
	room := p.wrap - indent
	widths := make([]int, shown)
	for _, n := range nodes {
		row := p.nodeRow(r.GeneratedAt, n)[:shown]
		for i := range row {
			row[i].text = cmp.Or(row[i].text, "-")
			widths[i] = max(widths[i], columns(row[i].text), len(t.head[i]))
		}
		t.rows = append(t.rows, row)
	}
	for _, w := range widths[1:] {
		room -= w + 2
	}
	if !all && room >= leastName {
		for _, row := range t.rows {
			row[0].text = middle(row[0].text, room)
		}
	}
	if t.head, t.align = t.head[:shown], t.align[:shown]; bare {
		t.head = nil
	}
	p.table(t)
}

// nodeRow is a node in columns.
func (p *page) nodeRow(now time.Time, n checks.FleetNode) []span {
	ago := func(t *time.Time) string {
		if t == nil || t.IsZero() {
			return ""
		}
		return units.Duration(now.Sub(*t))
	}
	states := map[string]span{"True": {"Ready", good}, "False": {"NotReady", bad}}
	ready := cmp.Or(states[n.Ready], span{"Unknown", unknown})
	if n.Unschedulable {
		ready.text += ",cordoned"
	}
	pods, message := "", n.Message
	if n.Pods != nil {
		pods = units.Number(*n.Pods)
	}
	if d := n.Diagnosis; d != nil && d.Status != checks.Healthy {
		message = d.Summary
	} else if l := n.Log; l != nil && l.Cause != "" && l.Cause != n.Cause {
		message = "log: " + l.Cause + ": " + l.Summary
	}
	row := []span{
		plain(p.prose(n.Name)), ready, plain(ago(n.Since)), plain(seconds(n.LeaseAgeSeconds)), {p.prose(n.Cause), bad},
	}
	for _, s := range []string{
		n.Kubelet, n.Runtime, n.Kernel, n.Zone, n.InstanceType, n.Pool, n.Owner, pods, ago(&n.Created), message,
	} {
		row = append(row, plain(p.prose(s)))
	}
	return row
}

// nodeEvents writes the events of some nodes.
func (p *page) nodeEvents(nodes []checks.FleetNode) {
	t := table{indent: 2, align: "llll"}
	for _, n := range nodes {
		for _, e := range n.Events {
			t.add(e.At.UTC().Format(time.TimeOnly), p.prose(n.Name), p.prose(e.Reason),
				units.Times(e.Count)+": "+p.prose(e.Message))
		}
	}
	if len(t.rows) > 0 {
		p.heading("Events", plain("of the last hour, UTC"))
		p.table(t)
	}
}
