package render

import (
	"cmp"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl/gc"
)

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

// candidates writes what is to be removed, by pod and container.
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
