package render

import (
	"cmp"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

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

// A GCReport is the document of kdiag gc-exited.
type GCReport struct {
	checks.Header
	Runtime checks.Runtime `json:"runtime"`
	gc.Report
	// Missing is the evidence on which pods exist that could not be read, and why.
	Missing []string `json:"missing"`
	// EndsMissed counts containers that stay because the runtime did not report when they ended.
	EndsMissed int      `json:"endsMissed,omitempty"`
	Notes      []string `json:"notes"` // what was unknown when the plan was made
}

// GC prints the answer of kdiag gc-exited.
func GC(w io.Writer, r *GCReport, o Options) error {
	return write(w, o, r, func(p *page) { p.cleanup(r) }, gcWord(r).text+" "+o.brief().gcSentence(r))
}

// gcWord is the verdict on a clean-up in one word.
func gcWord(r *GCReport) span {
	switch {
	case len(r.Problems) > 0 && r.Status == checks.Unhealthy:
		return span{"UNHEALTHY", strongly(bad)}
	case len(r.Problems) > 0:
		return span{"UNKNOWN", strongly(unknown)}
	case r.DryRun:
		return span{"PLAN", strongly(warn)}
	case r.Stopped != "":
		return span{"STOPPED", strongly(bad)}
	case r.Removed == 0 && len(r.Plan.Remove) > 0:
		return span{"NOTHING DONE", strongly(bad)}
	case len(r.Failed)+len(r.LogsLeft)+r.Left+r.EndsMissed > 0:
		return span{"PARTLY", strongly(bad)}
	}
	return span{"DONE", strongly(good)}
}

func (c cleaner) gcSentence(r *GCReport) string {
	if len(r.Problems) > 0 {
		return c.prose(r.Problems[0])
	}
	missed := ""
	if r.EndsMissed > 0 {
		missed = "; " + units.Number(r.EndsMissed) + " not checked"
	}
	switch {
	case len(r.Plan.Remove) == 0 && (r.DryRun || len(r.Skipped) == 0):
		return "nothing to remove; " + units.Number(r.Plan.Keep) + " kept" + missed
	case r.DryRun:
		return "would remove " + candidates(r.Plan.Remove) + missed + "; keeps " + units.Count(r.Plan.Keep, "object") +
			"; the lists shrink by " + size(r.Plan.Bytes) + ofLogs(", the disk gains ", r.Plan.LogBytes)
	}
	text := "removed " + units.Number(r.Removed) + " of " + units.Number(len(r.Plan.Remove))
	if r.Speed != nil && r.Removed > 0 {
		text += " in " + units.Seconds(r.Seconds)
	}
	text += countOf(len(r.Failed), "failed") + countOf(len(r.Skipped), "skipped") + countOf(r.Left, "left") + missed
	text += countOf(len(r.LogsLeft), "of their logs left") + ofLogs("; freed ", r.LogBytes)
	if r.Stopped != "" {
		text += ": " + c.prose(r.Stopped)
	}
	return text
}

func ofLogs(before string, bytes int64) string {
	if bytes == 0 {
		return ""
	}
	return before + size(bytes) + " of logs"
}

// candidates describes candidates by their number and kind.
func candidates(all []gc.Candidate) string {
	var parts []string
	for _, kind := range [][2]string{{gc.KindContainer, "exited container"}, {gc.KindSandbox, "dead sandbox"}} {
		if n := len(only(all, func(c gc.Candidate) bool { return c.Kind == kind[0] })); n > 0 {
			parts = append(parts, units.Count(n, kind[1]))
		}
	}
	return units.List(parts)
}

func (p *page) cleanup(r *GCReport) {
	p.short = true
	p.headline(gcWord(r), where(r.Host, r.Runtime), p.gcSentence(r))
	if len(r.Problems) > 0 {
		p.list("", plain("?"), r.Problems[1:], len(r.Problems))
		p.blank()
		p.runtime(r.Runtime)
		p.steps(r.NextSteps, nil)
		return
	}
	switch {
	case !r.DryRun:
	case r.Plan.Rules.IgnorePodLiveness:
		p.heading("Pod liveness was ignored")
		p.text(2, LivenessRisk)
	default:
		p.missing(r.Missing)
	}
	if r.DryRun && len(r.Plan.Remove) > 0 {
		p.heading("Dry run: nothing was removed")
	}
	p.steps(r.NextSteps, nil)
	p.moreAbout("kdiag gc-exited", r.Runtime)
	if r.DryRun {
		p.candidates(r)
	}
	skipped := byWhy(r.Skipped, func(s gc.Skipped) (string, string) { return s.ID, s.Why })
	failed := byWhy(r.Failed, func(f gc.Failed) (string, string) { return f.ID, f.Error })
	logs := byWhy(r.LogsLeft, func(f gc.Failed) (string, string) { return f.ID, f.Error })
	p.sections(
		func() { p.list("Skipped", plain("-"), skipped, topRows) },
		func() { p.list("Failed", span{"!", bad}, failed, topRows) },
		func() { p.list("Logs left", span{"!", bad}, logs, topRows) },
		func() { p.kept(r.Plan) },
		func() { p.list("Unknown", plain("?"), r.Notes, topRows) },
		func() { p.gcMeasured(r) },
	)
}

// gcMeasured writes how long a clean-up took, and in which runtime.
func (p *page) gcMeasured(r *GCReport) {
	p.heading("Measured")
	if r.Speed != nil {
		p.pair("took", units.Seconds(r.Seconds)+", at most "+units.Number(r.Most)+" at a time")
	}
	if r.Pauses > 0 {
		p.pair("paused", units.Times(r.Pauses)+" (the runtime was slow)")
	}
	p.runtime(r.Runtime)
}

// candidates writes the objects to remove, by pod and container.
func (p *page) candidates(r *GCReport) {
	t, all := table{indent: 2, align: "lrrl", head: []string{"pod (container)", "count", "created", ""}}, r.Plan.Count()
	for _, c := range top(p, all) {
		t.add(p.unitName(c.Namespace, c.Pod, cmp.Or(c.Container, "sandbox")), units.Number(c.Count),
			agoRange(r.GeneratedAt, c.Oldest, c.Newest),
			p.glyph.bar(float64(c.Count), float64(all[0].Count), min(20, p.width/5)))
	}
	p.section("To remove", t, len(all))
}

// LivenessRisk describes the risk of --ignore-pod-liveness.
const LivenessRisk = "A pod that still exists may lose its last sandbox, with its address; a pod that is starting " +
	"may lose records of its init containers. The kubelet then creates a new sandbox and runs the init containers " +
	"again."

// agoRange describes how long ago the oldest and the newest were created.
func agoRange(now, oldest, newest time.Time) string {
	from, to := units.Duration(now.Sub(oldest)), units.Duration(now.Sub(newest))
	if from == to {
		return from + glue + "ago"
	}
	return from + " to " + to + glue + "ago"
}

// kept writes what a plan keeps, by reason.
func (p *page) kept(plan gc.Plan) {
	t := table{indent: 2, align: "rl"}
	for _, k := range plan.KeptBy {
		if k.Why == gc.KeptNewest && plan.Newest > 1 {
			k.Why = strings.Replace(k.Why, "newest", "newest "+units.Number(plan.Newest), 1)
		}
		t.add(units.Number(k.Count), p.prose(k.Why))
	}
	p.section("Kept", t, len(t.rows))
}

// byWhy describes objects by the reason that they share, most first. Where a reason holds the id itself, that is left
// out of it.
func byWhy[T any](all []T, get func(T) (id, why string)) []string {
	var order []string
	ids := map[string][]string{}
	for _, x := range all {
		id, why := get(x)
		why = strings.ReplaceAll(why, id, "ID")
		if ids[why] == nil {
			order = append(order, why)
		}
		ids[why] = append(ids[why], id)
	}
	slices.SortStableFunc(order, func(a, b string) int { return cmp.Compare(len(ids[b]), len(ids[a])) })
	for i, why := range order {
		order[i] = units.Number(len(ids[why])) + ": " + why + ", such as " + ids[why][0]
	}
	return order
}
