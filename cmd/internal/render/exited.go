package render

import (
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
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

// The rows of the tables of a census; JSON has all.
const (
	topPods       = 15
	topNamespaces = 10
	topReasons    = 8
)

// Exited prints the answer of kdiag exited.
func Exited(w io.Writer, c *ExitedCensus, o Options) error {
	return write(w, "census", o, view{
		doc:  c,
		text: func(p *page) { p.census(c) },
		brief: func(m briefLine) string {
			return m.cut(verdictWord(m.cleaner, c.Status) + " " + censusSentence(m.cleaner, c))
		},
	})
}

// censusSentence sums up the census in one sentence.
func censusSentence(c cleaner, e *ExitedCensus) string {
	if e.Status == checks.Unknown && len(e.Problems) > 0 || e.Census == nil {
		if len(e.Problems) > 0 {
			return c.prose(e.Problems[0])
		}
		return "nothing was seen"
	}
	text := plural(e.Total, "exited container") + ", " + deadSandboxes(e.Sandboxes)
	if e.LimitBytes > 0 && e.ListBytes > 0 {
		text += "; list at " + percent(e.ListOfLimit) + " of its limit"
	}
	return text
}

func deadSandboxes(n int) string {
	if n == 1 {
		return "1" + glue + "dead sandbox"
	}
	return count(n) + glue + "dead sandboxes"
}

func (p *page) census(e *ExitedCensus) {
	p.headline(e.Status, where(e.Host, e.Runtime), censusSentence(p.cleaner, e))
	for _, problem := range e.Problems {
		if problem != "" && !strings.HasSuffix(censusSentence(p.cleaner, e), p.prose(problem)) {
			p.item(2, plain("?"), p.prose(problem))
		}
	}
	if e.Census != nil {
		p.worstPods(e)
		p.namespaces(e.ByNamespace)
		p.reasons(e.ByReason)
		p.ages(e)
		p.listRoom(e)
		p.growth(e.Growth)
	}
	p.missing(e.Missing)
	p.heading("Measured")
	if e.Census != nil {
		s := e.States
		p.pair("containers", labelWidth,
			count(s.Running)+" running, "+count(s.Exited)+" exited, "+count(s.Created)+" created, "+count(s.Unknown)+" unknown")
		dead := count(s.DeadSandboxes) + " not ready, " + count(s.EmptySandboxes) + " of those without containers"
		p.pair("sandboxes", labelWidth, count(s.ReadySandboxes)+" ready, "+dead)
		if e.Partial {
			p.pair("partial", labelWidth, "a list was not complete: there is more than what is counted here")
		}
	}
	p.runtime(e.Runtime, labelWidth)
	if e.Census != nil && e.Total > 0 && e.Next != "" {
		p.heading("Next")
		p.flow([]span{plain("  ")}, 2, plain("what may go, as a plan; nothing is removed without --yes"))
		p.command(4, e.Next)
	}
	p.steps(e.NextSteps, true, map[string]bool{})
}

// worstPods draws the pods with the most exited containers.
func (p *page) worstPods(e *ExitedCensus) {
	if len(e.ByPod) == 0 {
		return
	}
	p.heading("Worst pods")
	shown := e.ByPod[:min(len(e.ByPod), topPods)]
	t := table{indent: 2, align: "lrll"}
	for i := range shown {
		u := &shown[i]
		t.rows = append(t.rows, []span{
			plain(p.unitName(u.Namespace, u.Pod, u.Container)), plain(count(u.Count)),
			plain(p.glyph.bar(float64(u.Count), float64(shown[0].Count), min(24, p.width/6))),
			plain(p.lastEnd(e.GeneratedAt, u)),
		})
	}
	p.table(t)
	p.more(len(e.ByPod)-len(shown), "pod and container", "pods and containers")
}

// more writes how many rows a table left out.
func (p *page) more(n int, one, many string) {
	switch {
	case n == 1:
		p.put(plain("  and 1 more " + one))
	case n > 1:
		p.put(plain("  and " + count(n) + " more " + many))
	}
}

// unitName is the name of one container of one pod, cut to the width of its column.
func (p *page) unitName(namespace, pod, container string) string {
	name := p.prose(namespace) + "/" + p.prose(pod)
	if container != "" {
		name += " (" + p.prose(container) + ")"
	}
	return briefLine{cleaner: p.cleaner}.middle(name, max(p.width*3/8, 22))
}

// lastEnd describes how the newest of a unit ended, when it was created, and whether the pod is gone.
func (p *page) lastEnd(now time.Time, u *gc.PodCount) string {
	var parts []string
	if u.LastExitCode != nil {
		parts = append(parts, p.ending(u.LastReason, *u.LastExitCode))
	}
	if age := now.Sub(u.Newest).Seconds(); age >= 0 {
		parts = append(parts, duration(age)+glue+"ago")
	}
	if u.Gone {
		parts = append(parts, "pod gone")
	}
	return strings.Join(parts, ", ")
}

func (p *page) ending(reason string, code int32) string {
	if reason == "" {
		return "exit" + glue + "code" + glue + strconv.Itoa(int(code))
	}
	return p.prose(reason) + glue + "(" + strconv.Itoa(int(code)) + ")"
}

func (p *page) namespaces(all []gc.NamespaceCount) {
	if len(all) < 2 {
		return // the names of the pods show it
	}
	p.heading("By namespace")
	shown := all[:min(len(all), topNamespaces)]
	t := table{indent: 2, align: "lrrr", head: []string{"namespace", "exited", "pods", "bytes"}}
	for _, n := range shown {
		t.rows = append(t.rows, []span{
			plain(briefLine{cleaner: p.cleaner}.middle(p.prose(n.Namespace), 40)), plain(count(n.Count)), plain(count(n.Pods)),
			plain(size(float64(n.Bytes))),
		})
	}
	p.table(t)
	p.more(len(all)-len(shown), "namespace", "namespaces")
}

func (p *page) reasons(all []gc.ReasonCount) {
	if len(all) == 0 {
		return
	}
	p.heading("How the newest of each ended")
	shown := all[:min(len(all), topReasons)]
	t := table{indent: 2, align: "lrr", head: []string{"reason (exit code)", "pods and containers", "exited of these"}}
	for _, r := range shown {
		t.rows = append(t.rows, []span{
			plain(briefLine{cleaner: p.cleaner}.middle(p.ending(r.Reason, r.ExitCode), 32)),
			plain(count(r.Count)), plain(count(r.Exited)),
		})
	}
	p.table(t)
	p.more(len(all)-len(shown), "reason", "reasons")
}

func (p *page) ages(e *ExitedCensus) {
	most := 0
	for _, a := range e.ByAge {
		most = max(most, a.Count)
	}
	if most == 0 {
		return
	}
	p.heading("By age")
	t := table{indent: 2, align: "lrl"}
	for _, a := range e.ByAge {
		label := "older"
		if a.UpToSeconds > 0 {
			label = "to " + ageLabel(a.UpToSeconds)
		}
		t.rows = append(t.rows, []span{
			plain(label), plain(count(a.Count)),
			plain(p.glyph.bar(float64(a.Count), float64(most), min(24, p.width/4))),
		})
	}
	p.table(t)
}

// ageLabel prints a round age: 1 hour, 30 days.
func ageLabel(seconds float64) string {
	const day = 24 * 60 * 60
	if seconds >= day {
		return plural(int(seconds/day), "day")
	}
	return plural(int(seconds/3600), "hour")
}

// listRoom draws the list of containers, and the share of the exited ones, against the limit of one message.
func (p *page) listRoom(e *ExitedCensus) {
	if e.LimitBytes <= 0 || e.ListBytes == 0 {
		return
	}
	p.heading("In the list that every relist asks for")
	const label = 12
	for _, g := range []struct {
		name  string
		bytes int64
		share float64
	}{{"whole list", e.ListBytes, e.ListOfLimit}, {"exited ones", e.Bytes, e.ShareOfLimit}} {
		of := padLeft(percent(g.share), 4) + " of " + size(float64(e.LimitBytes))
		value := padLeft(size(float64(g.bytes)), 9)
		space := min(p.width-2-label-2-9-2-2-columns(of), 40)
		if space < 12 {
			p.pair(g.name, label, value+", "+of)
			continue
		}
		under, beyond := p.glyph.limitBar(g.share, space)
		p.put(plain("  "+pad(g.name, label)+"  "+value+"  "), plain(under), span{beyond, &p.ink.bad},
			plain(spaces(space-columns(under+beyond))+"  "+of))
	}
	if e.ListOfLimit > 1 {
		p.flow([]span{plain("  ")}, 2,
			plain("over the limit: the kubelet gets no list, and cannot collect garbage by itself"))
	}
}

func (p *page) growth(g *gc.Growth) {
	if g == nil {
		return
	}
	p.heading("Between the two looks")
	p.pair("took", labelWidth, duration(g.Seconds))
	more := signed(g.Containers) + " exited, " + signed(g.Sandboxes) + " dead sandboxes"
	p.pair("containers", labelWidth, more+"; "+signed(int(g.ContainersPerDay))+" exited in a day")
	text := "not growing"
	switch {
	case g.SecondsToLimit != nil && *g.SecondsToLimit == 0:
		text = "over its limit already"
	case g.SecondsToLimit != nil:
		text = "growing; reaches its limit in " + duration(*g.SecondsToLimit)
	}
	p.pair("list", labelWidth, text)
}

func signed(n int) string {
	if n < 0 {
		return count(n)
	}
	return "+" + count(n)
}

// missing writes the evidence on pods that could not be read, and what follows.
func (p *page) missing(all []string) {
	if len(all) == 0 {
		return
	}
	p.heading("Which pods no longer exist is not known, so all count as alive")
	for _, m := range all {
		p.item(2, plain("?"), p.prose(m))
	}
}
