package render

import (
	"io"
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
	Status     checks.Verdict `json:"status"`
	*gc.Census                // nil when the lists could not be read
	Missing    []string       `json:"missing"`        // evidence on which pods exist that could not be read, and why
	Problems   []string       `json:"problems"`       // why there is no census, or only a part
	Next       string         `json:"next,omitempty"` // the command that shows what of it may go
	// NextSteps are for when there is no census.
	NextSteps []checks.NextStep `json:"nextSteps,omitempty"`
}

// topRows is how many rows of a table text shows; JSON has all.
const topRows = 10

// Exited prints the answer of kdiag exited.
func Exited(w io.Writer, c *ExitedCensus, o Options) error {
	return write(w, "census", o, view{c, func(p *page) { p.census(c) }, func(m briefLine) string {
		return m.cut(m.verdict(c.Status).text + " " + m.censusSentence(c))
	}})
}

// censusSentence sums up the census in one sentence.
func (c cleaner) censusSentence(e *ExitedCensus) string {
	switch {
	case len(e.Problems) > 0 && (e.Census == nil || e.Status == checks.Unknown):
		return c.prose(e.Problems[0])
	case e.Census == nil:
		return "nothing was seen"
	}
	text := units.Count(e.Total, "exited container") + ", " + units.Count(e.Sandboxes, "dead sandbox")
	if e.LimitBytes > 0 && e.ListBytes > 0 {
		text += "; list at " + units.Percent(e.ListOfLimit) + " of its limit"
	}
	return text
}

func (p *page) census(e *ExitedCensus) {
	sentence := p.censusSentence(e)
	p.headline(p.verdict(e.Status), where(e.Host, e.Runtime), sentence)
	for _, problem := range e.Problems {
		if problem = p.prose(problem); problem != sentence {
			p.item(2, plain("?"), problem)
		}
	}
	if e.Census != nil {
		p.censusTables(e)
		p.listSize(e)
		p.growth(e.Growth)
	}
	p.missing(e.Missing)
	p.heading("Measured")
	if e.Census != nil {
		s := e.States
		p.pair("containers", units.Number(s.Running)+" running, "+units.Number(s.Exited)+" exited"+
			countOf(s.Created, "created")+countOf(s.Unknown, "unknown"))
		p.pair("sandboxes", units.Number(s.ReadySandboxes)+" ready, "+units.Number(s.DeadSandboxes)+" not ready"+
			countOf(s.EmptySandboxes, "without containers"))
		if e.Partial {
			p.pair("partial", "a list was incomplete: there is more than what is counted here")
		}
	}
	p.runtime(e.Runtime)
	if e.Census != nil && e.Total > 0 && e.Next != "" {
		p.heading("Next")
		p.text(2, "show the removal plan (dry run):")
		p.command(4, e.Next)
	}
	p.steps(e.NextSteps, nil)
}

// censusTables writes the exited containers by pod, namespace, reason and age, and the pods that are gone.
func (p *page) censusTables(e *ExitedCensus) {
	pods := table{indent: 2, align: "lrll"}
	for _, u := range e.ByPod[:min(len(e.ByPod), topRows)] {
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
		bar := p.glyph.bar(float64(u.Count), float64(e.ByPod[0].Count), min(24, p.width/6))
		pods.add(p.unitName(u.Namespace, u.Pod, u.Container), units.Number(u.Count), bar, strings.Join(last, ", "))
	}
	p.section("Worst pods", pods, len(e.ByPod))

	namespaces := table{indent: 2, align: "lrrr", head: []string{"namespace", "exited", "pods", "bytes"}}
	for _, n := range e.ByNamespace[:min(len(e.ByNamespace), topRows)] {
		name := middle(p.prose(n.Namespace), p.width/2)
		namespaces.add(name, units.Number(n.Count), units.Number(n.Pods), size(n.Bytes))
	}
	p.section("By namespace", namespaces, len(e.ByNamespace))

	reasons := table{indent: 2, align: "lrr", head: []string{"reason (exit code)", "containers", "exited of these"}}
	for _, r := range e.ByReason[:min(len(e.ByReason), topRows)] {
		reasons.add(middle(p.ending(r.Reason, r.ExitCode), p.width/2), units.Number(r.Count), units.Number(r.Exited))
	}
	p.section("How the newest of each ended", reasons, len(e.ByReason))

	ages := table{indent: 2, align: "lrl"}
	for _, a := range e.ByAge {
		label := "older"
		if a.UpToSeconds > 0 {
			label = "<= " + units.Seconds(a.UpToSeconds)
		}
		if a.Count > 0 {
			ages.add(label, units.Number(a.Count), p.glyph.bar(float64(a.Count), float64(e.Total), min(24, p.width/4)))
		}
	}
	p.section("By age", ages, len(ages.rows))
}

// section writes a table below a title, and how many of all rows it leaves out; nothing when it is empty.
func (p *page) section(title string, t table, all int) {
	if len(t.rows) == 0 {
		return
	}
	p.heading(title)
	p.table(t)
	p.more(all - len(t.rows))
}

// unitName is the name of one container of one pod, cut to the width of its column.
func (p *page) unitName(namespace, pod, container string) string {
	name := p.prose(namespace + "/" + pod)
	if container != "" {
		name += " (" + p.prose(container) + ")"
	}
	return middle(name, max(p.width*3/8, 22))
}

func (c cleaner) ending(reason string, code int32) string {
	if reason == "" {
		reason = "exit code"
	}
	return c.prose(reason) + glue + "(" + strconv.Itoa(int(code)) + ")"
}

// listSize draws the list of containers, and the share of the exited ones, against the limit of one message.
func (p *page) listSize(e *ExitedCensus) {
	if e.LimitBytes <= 0 || e.ListBytes == 0 {
		return
	}
	p.heading("In the list that every relist asks for")
	limit := float64(e.LimitBytes)
	p.gauges([]gauge{
		{"whole list", float64(e.ListBytes), limit, size[float64]},
		{"exited ones", float64(e.Bytes), limit, size[float64]},
	})
	if e.ListOfLimit > 1 {
		p.text(2, "over the limit: the kubelet gets no list, and cannot collect garbage by itself")
	}
}

func (p *page) growth(g *gc.Growth) {
	if g == nil {
		return
	}
	p.heading("Between the two looks")
	signed := func(n int) string { return strings.Replace("+"+units.Number(n), "+-", "-", 1) }
	p.pair("took", units.Seconds(g.Seconds))
	p.pair("containers", signed(g.Containers)+" exited, "+signed(g.Sandboxes)+" dead sandboxes; "+
		signed(int(g.ContainersPerDay))+" exited in a day")
	if g.SecondsToLimit != nil {
		p.pair("list", "reaches its limit in "+units.Seconds(*g.SecondsToLimit))
	}
}

// missing writes the evidence on pods that could not be read, and what follows.
func (p *page) missing(all []string) {
	p.list("Which pods no longer exist is not known, so all count as alive", plain("?"), all, len(all))
}
