package render

import (
	"cmp"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl/gc"
)

// An ExitedCensus is the document of kdiag exited.
type ExitedCensus struct {
	checks.Header
	Runtime    checks.Runtime `json:"runtime"`
	*gc.Census                // nil when the lists could not be read
	Missing    []string       `json:"missing"`        // evidence on which pods exist that could not be read, and why
	Next       string         `json:"next,omitempty"` // the command that shows what could be removed
}

// topRows is how many rows of a table text shows without --details; JSON has all.
const topRows = 10

// top returns the rows that are shown.
func top[T any](p *page, rows []T) []T {
	if p.details {
		return rows
	}
	return rows[:min(len(rows), topRows)]
}

// Exited prints the answer of kdiag exited.
func Exited(w io.Writer, c *ExitedCensus, o Options) error {
	m := o.brief()
	return write(w, o, c, func(p *page) { p.census(c) }, m.verdict(c.Status).text+" "+m.censusSentence(c))
}

// ExitedAgain prints, in text, what a second census adds to one that was printed.
func ExitedAgain(w io.Writer, c *ExitedCensus, o Options) error {
	return write(w, o, nil, func(p *page) {
		p.out.WriteByte('\n') // apart from the first
		p.censusHead(c)
		if c.Census != nil {
			p.growth(c.Growth)
		}
	}, "")
}

// censusSentence sums up the census in one sentence.
func (c cleaner) censusSentence(e *ExitedCensus) string {
	switch {
	case len(e.Problems) > 0 && (e.Census == nil || e.Status == checks.Unknown):
		return c.prose(e.Problems[0])
	case e.Census == nil:
		return "no lists"
	}
	text := units.Count(e.Total, "exited container") + ", " + units.Count(e.Sandboxes, "dead sandbox")
	if e.LimitBytes > 0 && e.ListBytes > 0 {
		text += "; list at " + units.Percent(e.ListOfLimit) + " of its limit"
	}
	return text
}

func (p *page) censusHead(e *ExitedCensus) {
	sentence := p.censusSentence(e)
	p.headline(p.verdict(e.Status), where(e.Host, e.Runtime), sentence)
	others := only(e.Problems, func(problem string) bool { return p.prose(problem) != sentence })
	p.list("", plain("?"), others, len(others))
}

func (p *page) census(e *ExitedCensus) {
	p.short = true
	p.censusHead(e)
	p.steps(e.NextSteps, nil)
	p.moreAbout("kdiag exited", e.Runtime)
	if e.Census != nil {
		p.sections(func() { p.growth(e.Growth) }, func() { p.listSize(e) })
		p.censusTables(e)
	}
	p.sections(func() { p.missing(e.Missing) }, func() { p.censusMeasured(e) })
}

// censusMeasured writes what was counted, and in which runtime.
func (p *page) censusMeasured(e *ExitedCensus) {
	p.heading("Measured")
	if e.Census != nil {
		s := e.States
		p.pair("containers", units.Number(s.Running)+" running, "+units.Number(s.Exited)+" exited"+
			countOf(s.Created, "created")+countOf(s.Unknown, "unknown"))
		p.pair("sandboxes", units.Number(s.ReadySandboxes)+" ready, "+units.Number(s.DeadSandboxes)+" not ready"+
			countOf(s.EmptySandboxes, "without containers"))
		if e.Partial {
			p.pair("partial", "a list was incomplete: the true numbers are higher")
		}
	}
	p.runtime(e.Runtime)
}

// censusTables writes the exited containers by pod, owner, namespace, reason and age.
func (p *page) censusTables(e *ExitedCensus) {
	pods := table{indent: 2, align: "lrll"}
	worst := top(p, e.ByPod)
	short := !slices.ContainsFunc(worst, func(u gc.PodCount) bool {
		return columns(p.unitName(u.Namespace, u.Pod, u.Container)) > p.width/2
	})
	for _, u := range worst {
		var last []string
		if u.LastExitCode != nil {
			last = append(last, p.ending(u.LastReason, *u.LastExitCode))
		}
		if age := e.GeneratedAt.Sub(u.Newest); age >= 0 {
			last = append(last, units.Duration(age)+glue+"ago")
		}
		if u.Gone {
			last = append(last, "pod gone")
		}
		bar := ""
		if short { // else the names take its room
			bar = p.glyph.bar(float64(u.Count), float64(e.ByPod[0].Count), min(24, p.width/6))
		}
		pods.add(p.unitName(u.Namespace, u.Pod, u.Container), units.Number(u.Count), bar, strings.Join(last, ", "))
	}
	p.section("Most exited containers", pods, len(e.ByPod))

	owners := table{indent: 2, align: "lrrr", head: []string{"owner", "exited", "pods", "bytes"}}
	for _, o := range top(p, e.ByOwner) {
		owners.add(p.unitName(o.Namespace, o.Name, o.Kind), units.Number(o.Count), units.Number(o.Pods), size(o.Bytes))
	}
	p.section("By owner", owners, len(e.ByOwner))

	namespaces := table{indent: 2, align: "lrrr", head: []string{"namespace", "exited", "pods", "bytes"}}
	for _, n := range top(p, e.ByNamespace) {
		namespaces.add(p.prose(n.Namespace), units.Number(n.Count), units.Number(n.Pods), size(n.Bytes))
	}
	p.section("By namespace", namespaces, len(e.ByNamespace))

	reasons := table{indent: 2, align: "lrr", head: []string{"last exit of a container", "containers", "exited"}}
	for _, r := range top(p, e.ByReason) {
		reasons.add(p.ending(r.Reason, r.ExitCode), units.Number(r.Count), units.Number(r.Exited))
	}
	p.section("By reason (exit code)", reasons, len(e.ByReason))

	ages := table{indent: 2, align: "lrl"}
	for i, a := range e.ByAge {
		label := "older"
		switch to := units.Seconds(a.UpToSeconds); {
		case a.UpToSeconds > 0 && i > 0:
			label = units.Seconds(e.ByAge[i-1].UpToSeconds) + " to " + to
		case a.UpToSeconds > 0:
			label = "under " + to
		}
		if a.Count > 0 {
			ages.add(label, units.Number(a.Count), p.glyph.bar(float64(a.Count), float64(e.Total), min(24, p.width/4)))
		}
	}
	p.section("By age", ages, len(ages.rows))
}

// section writes a table below a title, and how many of all rows it leaves out; nothing when it is empty. A screen that
// does not hold all rows gets fewer, or nothing.
func (p *page) section(title string, t table, all int) {
	const worth = 3 // rows
	if p.folds() {
		free := p.screen - p.rows - 3 - min(len(t.head), 1) // blank line, title, and how many more
		if len(t.rows) > free+1 && free >= worth {
			t.rows = t.rows[:free]
		}
	}
	if len(t.rows) == 0 {
		return
	}
	p.sections(func() {
		p.heading(title)
		p.table(t)
		p.more(all - len(t.rows))
	})
}

// unitName is the name of one container of one pod, or of an owner and its kind. It is never cut: it is what a person
// types next.
func (p *page) unitName(namespace, pod, container string) string {
	name := p.prose(namespace + "/" + pod)
	if container != "" {
		name += " (" + p.prose(container) + ")"
	}
	return name
}

func (c cleaner) ending(reason string, code int32) string {
	return c.prose(cmp.Or(reason, "exit code")) + glue + "(" + strconv.Itoa(int(code)) + ")"
}

// listSize draws the list of containers, and the share of the exited ones, against the limit of one message.
func (p *page) listSize(e *ExitedCensus) {
	if e.LimitBytes <= 0 || e.ListBytes == 0 {
		return
	}
	p.heading("Container list, as every relist reads it")
	limit := float64(e.LimitBytes)
	p.gauges([]gauge{
		{"list size", float64(e.ListBytes), limit, size[float64]},
		{"exited part", float64(e.Bytes), limit, size[float64]},
	})
	if e.ListOfLimit > 1 {
		p.text(2, "over the limit: the kubelet can no longer list containers, nor remove exited ones")
	}
}

func (p *page) growth(g *gc.Growth) {
	if g == nil {
		return
	}
	p.heading("Growth")
	signed := func(n int) string { return strings.Replace("+"+units.Number(n), "+-", "-", 1) }
	p.pair("watched", units.Seconds(g.Seconds))
	p.pair("containers", signed(g.Containers)+" exited, "+signed(g.Sandboxes)+" dead sandboxes; "+
		signed(int(g.ContainersPerDay))+" exited per day")
	if g.SecondsToLimit != nil {
		p.pair("list", "limit reached in "+units.Seconds(*g.SecondsToLimit))
	}
}

// missing writes the evidence on pods that could not be read, and what follows.
func (p *page) missing(all []string) {
	p.list("Cannot tell which pods are gone; treating all as existing", plain("?"), all, len(all))
}
