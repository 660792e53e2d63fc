package render

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/lipgloss"

	"github.com/kdiag/kdiag/checks"
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
	EndsMissed int               `json:"endsMissed,omitempty"`
	Notes      []string          `json:"notes"`    // what was unknown when the plan was made
	Problems   []string          `json:"problems"` // why there is no plan
	Down       bool              `json:"-"`        // and that was the runtime's fault
	NextSteps  []checks.NextStep `json:"nextSteps,omitempty"`
}

// The rows of the tables of a plan and a result; JSON has all.
const (
	topRemovals = 15
	topWhys     = 10
)

// GC prints the answer of kdiag gc-exited.
func GC(w io.Writer, r *GCReport, o Options) error {
	return write(w, "clean-up", o, view{
		doc:   r,
		text:  func(p *page) { p.cleanup(r) },
		brief: func(m briefLine) string { return m.cut(gcWord(r) + " " + gcSentence(m.cleaner, r)) },
	})
}

// gcWord is the verdict on a clean-up in one word.
func gcWord(r *GCReport) string {
	switch {
	case len(r.Problems) > 0 && r.Down:
		return "UNHEALTHY"
	case len(r.Problems) > 0:
		return "UNKNOWN"
	case r.DryRun:
		return "PLAN"
	case r.Stopped != "":
		return "STOPPED"
	case len(r.Failed)+r.Left+r.EndsMissed > 0:
		return "PARTLY"
	}
	return "DONE"
}

func gcSentence(c cleaner, r *GCReport) string {
	if len(r.Problems) > 0 {
		return c.prose(r.Problems[0])
	}
	missed := ""
	if r.EndsMissed > 0 {
		missed = "; " + count(r.EndsMissed) + " not looked at"
	}
	if len(r.Plan.Remove)+len(r.Skipped) == 0 || r.DryRun && len(r.Plan.Remove) == 0 {
		return "nothing may go; " + count(r.Plan.Keep) + " dead stay" + missed
	}
	if r.DryRun {
		return candidates(r.Plan.Remove) + " may go" + missed + ", " + count(r.Plan.Keep) + " stay; " +
			size(float64(r.Plan.Bytes)) + " less in the lists"
	}
	text := "removed " + count(r.Removed) + " of " + count(len(r.Plan.Remove))
	if r.Speed != nil && r.Seconds > 0 && r.Removed > 0 {
		text += " in " + duration(r.Seconds) + " (" + perSecond(r.PerSecond) + ")"
	}
	for _, part := range []struct {
		n    int
		what string
	}{{len(r.Failed), "failed"}, {len(r.Skipped), "skipped"}, {r.Left, "left"}} {
		if part.n > 0 {
			text += ", " + count(part.n) + " " + part.what
		}
	}
	text += missed
	if r.Stopped != "" {
		text += ": " + c.prose(r.Stopped)
	}
	return text
}

// candidates describes candidates by their number and kind.
func candidates(all []gc.Candidate) string {
	containers := 0
	for i := range all {
		if all[i].Kind == gc.KindContainer {
			containers++
		}
	}
	sandboxes := len(all) - containers
	switch {
	case sandboxes == 0:
		return plural(containers, "exited container")
	case containers == 0:
		return deadSandboxes(sandboxes)
	}
	return plural(containers, "exited container") + " and " + deadSandboxes(sandboxes)
}

func perSecond(v float64) string {
	if v < 10 {
		return fmt.Sprintf("%.1f/s", v)
	}
	return count(int(v+0.5)) + "/s"
}

func (p *page) cleanup(r *GCReport) {
	if r.DryRun || len(r.Problems) > 0 {
		p.planned(r)
		if len(r.Plan.Remove) > 0 && len(r.Problems) == 0 {
			p.heading("Nothing was removed")
			p.nextSteps(r.NextSteps)
		}
		return
	}
	style := &p.ink.goodV
	if gcWord(r) != "DONE" {
		style = &p.ink.badV
	}
	p.gcHeadline(r, style)
	p.reasonsOf("Skipped", plain("-"), skipped(r.Skipped))
	p.reasonsOf("Failed", span{"!", &p.ink.bad}, failed(r.Failed))
	p.stays(r.Plan)
	p.unknowns(r.Notes)
	if len(r.NextSteps) > 0 {
		p.heading("Next")
		p.nextSteps(r.NextSteps)
	}
	p.heading("Measured")
	if r.Speed != nil {
		p.pair("took", labelWidth, duration(r.Seconds)+", "+perSecond(r.PerSecond)+", at most "+count(r.Most)+" at a time")
	}
	if r.Pauses > 0 {
		p.pair("paused", labelWidth, timesWord(r.Pauses)+", for the runtime's sake")
	}
	p.runtime(r.Runtime, labelWidth)
}

func timesWord(n int) string {
	if n == 1 {
		return "once"
	}
	return count(n) + " times"
}

// planned writes a plan.
func (p *page) planned(r *GCReport) {
	style := &p.ink.warnV
	if len(r.Problems) > 0 {
		style = &p.ink.unknownV
	}
	p.gcHeadline(r, style)
	if len(r.Problems) > 0 {
		for _, problem := range r.Problems[1:] {
			p.item(2, plain("?"), p.prose(problem))
		}
		p.runtimeOnly(r.Runtime)
		p.steps(r.NextSteps, true, map[string]bool{})
		return
	}
	p.removalTable(r)
	p.reasonsOf("Not from the older plan", plain("-"), skipped(r.Skipped))
	p.stays(r.Plan)
	p.unknowns(r.Notes)
	if !r.Plan.Rules.IgnorePodLiveness {
		p.missing(r.Missing)
	} else {
		p.heading("Whether pods live was ignored")
		p.flow([]span{plain("  ")}, 2, plain(LivenessRisk))
	}
	p.runtimeOnly(r.Runtime)
}

// LivenessRisk describes the risk of --ignore-pod-liveness.
const LivenessRisk = "A pod that still exists may lose its last sandbox, and with it its address and its record; one " +
	"that is only starting may lose older records of its init containers. The kubelet then makes a new sandbox for a pod " +
	"that should run, and runs its init containers again."

func (p *page) runtimeOnly(r checks.Runtime) {
	if r.Endpoint != "" {
		p.heading("Measured")
		p.runtime(r, labelWidth)
	}
}

func (p *page) gcHeadline(r *GCReport, style *lipgloss.Style) {
	word := gcWord(r)
	lead := []span{{word, style}, plain("  ")}
	if host := p.prose(where(r.Host, r.Runtime)); host != "" && columns(host) <= p.width/3 {
		lead = append(lead, plain(host+"  "))
	}
	p.flow(lead, columns(word)+2, plain(gcSentence(p.cleaner, r)))
}

func (p *page) removalTable(r *GCReport) {
	all := r.Plan.Count()
	if len(all) == 0 {
		return
	}
	p.heading("May go")
	shown := all[:min(len(all), topRemovals)]
	t := table{indent: 2, align: "lrrl", head: []string{"pod (container)", "count", "made", ""}}
	for i := range shown {
		c := &shown[i]
		name := p.unitName(c.Namespace, c.Pod, cmp.Or(c.Container, "sandbox"))
		t.rows = append(t.rows, []span{
			plain(name), plain(count(c.Count)), plain(agoRange(r.GeneratedAt, c.Oldest, c.Newest)),
			plain(p.glyph.bar(float64(c.Count), float64(shown[0].Count), min(20, p.width/5))),
		})
	}
	p.table(t)
	p.more(len(all)-len(shown), "of these", "of these")
}

// agoRange describes how long ago the oldest and the newest were created.
func agoRange(now, oldest, newest time.Time) string {
	from, to := duration(now.Sub(oldest).Seconds()), duration(now.Sub(newest).Seconds())
	if from == to {
		return from + glue + "ago"
	}
	return from + " to " + to + glue + "ago"
}

// stays writes what a plan keeps, by reason.
func (p *page) stays(plan gc.Plan) {
	if len(plan.KeptBy) == 0 {
		return
	}
	p.heading("Stays")
	t := table{indent: 2, align: "rl"}
	for _, k := range plan.KeptBy {
		t.rows = append(t.rows, []span{plain(count(k.Count)), plain(p.prose(keptWhy(&plan, k.Why)))})
	}
	p.table(t)
}

// keptWhy is a reason with the numbers of the plan in it.
func keptWhy(plan *gc.Plan, why string) string {
	switch {
	case why != gc.KeptNewest || plan.Newest == 1:
		return why
	case plan.Newest == 0:
		return "all of its pod and container name stay, as the kubelet is set to"
	case plan.Rules.Keep == plan.Newest:
		return "among the newest " + count(plan.Newest) + " of its pod and container name, as --keep says"
	}
	return "among the newest " + count(plan.Newest) +
		" of its pod and container name, as many as the kubelet is set to keep"
}

// unknowns writes what was unknown when the plan was made.
func (p *page) unknowns(all []string) {
	if len(all) == 0 {
		return
	}
	p.heading("Not known")
	for _, n := range all {
		p.item(2, plain("?"), p.prose(n))
	}
}

// nextSteps writes the commands to run next.
func (p *page) nextSteps(all []checks.NextStep) {
	for _, s := range all {
		p.flow([]span{plain("  ")}, 2, plain(p.prose(s.Why)))
		p.command(4, s.Command)
	}
}

// A whyCount counts ids by why.
type whyCount struct {
	why, example string
	count        int
}

func skipped(all []gc.Skipped) []whyCount {
	return countWhys(len(all), func(i int) (string, string) { return all[i].ID, all[i].Why })
}

func failed(all []gc.Failed) []whyCount {
	return countWhys(len(all), func(i int) (string, string) { return all[i].ID, all[i].Error })
}

// countWhys groups by reason, most first. Reasons may hold the id itself; then the id is left out of them.
func countWhys(n int, get func(int) (id, why string)) []whyCount {
	at := map[string]int{}
	var out []whyCount
	for i := range n {
		id, why := get(i)
		why = strings.ReplaceAll(why, id, "ID")
		j, ok := at[why]
		if !ok {
			j = len(out)
			at[why] = j
			out = append(out, whyCount{why: why, example: id})
		}
		out[j].count++
	}
	slices.SortStableFunc(out, func(a, b whyCount) int { return cmp.Compare(b.count, a.count) })
	return out
}

func (p *page) reasonsOf(title string, sign span, all []whyCount) {
	if len(all) == 0 {
		return
	}
	p.heading(title)
	shown := all[:min(len(all), topWhys)]
	for _, w := range shown {
		text := count(w.count) + ": " + p.prose(w.why) + ", such as " + shortID(p.prose(w.example))
		if w.count == 1 {
			text = shortID(p.prose(w.example)) + ": " + p.prose(w.why)
		}
		p.item(2, sign, text)
	}
	p.more(len(all)-len(shown), "reason", "reasons")
}
