package render

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/plegbench"
)

// A conclusion is what all diagnosing commands end in.
type conclusion struct {
	checks.Header
	runtime checks.Runtime
	causes  []checks.Cause
	notes   []string
	fine    string // what was found where nothing was
	looked  string // and which runtime was asked then
	more    string // the command that prints more
}

// A fold is how much of a conclusion is shown: lines of evidence for the cause and of the other signs, and steps.
type fold struct{ supports, others, steps int }

// screen is the most rows of an answer: a terminal of 24 lines shows them with the command and the prompt.
const screen = 22

// answer writes the conclusion of an answer about a runtime.
func (p *page) answer(a checks.Answer, command, fine string) {
	head, runtime, causes := a.Answer()
	p.conclude(conclusion{Header: *head, runtime: runtime, causes: causes, fine: fine, more: command + " --details"})
}

// conclude writes the verdict, why, and what to do next: all of it where details are wanted, else what a screen holds.
func (p *page) conclude(c conclusion) {
	p.blank()
	begin, sentences := p.rows, []string{p.sentence(c.Header, c.causes, c.fine)}
	if len(c.causes) > 0 {
		sentences = append(sentences, each(c.causes[0].Effect, p.prose)...)
	} else if c.Status != checks.Healthy && len(c.Problems) > 0 {
		c.Problems = c.Problems[1:] // the headline has the first
	}
	p.headline(p.verdict(c.Status), where(c.Host, c.runtime), sentences...)
	for _, n := range c.notes {
		p.flow([]span{{"Note", strong}, plain(": ")}, 6, plain(p.prose(n)))
	}
	p.fit(begin, func(f fold) { p.body(c, f) })
}

// fit has the rest of a conclusion written that began at a row: all of it where details are wanted, else as much as a
// screen holds.
func (p *page) fit(begin int, body func(fold)) {
	folds := []fold{{3, 3, 5}, {3, 1, 5}, {2, 1, 5}, {2, 1, 4}, {2, 1, 3}, {1, 1, 3}, {1, 1, 2}}
	if p.tight {
		folds = append(folds, fold{1, 0, 1})
	}
	if p.details {
		folds = []fold{{unwrapped, unwrapped, unwrapped}}
	}
	start, rows := p.out.Len(), p.rows
	for _, f := range folds {
		p.out.Truncate(start)
		p.rows = rows
		if body(f); p.rows-begin <= p.screen {
			return
		}
	}
}

// body writes the first cause, the others in full where details are wanted, else in a line each, and where the rest is.
func (p *page) body(c conclusion, f fold) {
	left, numbers := 0, map[string]int{}
	for i, x := range c.causes {
		if i == 0 {
			p.heading("Evidence", plain(certainty(x.Confidence)))
			x.Evidence.Missing = slices.Concat(c.Problems, x.Evidence.Missing)
			left = p.cause(x, f, numbers)
		} else if p.details {
			p.causeHeading(x)
			p.cause(x, f, numbers)
		}
	}
	switch {
	case len(c.causes) == 0:
		p.folded("?", c.Problems, f.supports)
		p.pair("runtime", c.looked)
	case !p.details:
		p.others(c.causes[1:], f.supports)
	}
	if !p.details {
		p.moreLine(c, left)
	}
}

// cause writes the evidence, the culprit and the steps of a cause, and returns how many steps it left out.
func (p *page) cause(c checks.Cause, f fold, numbers map[string]int) int {
	p.evidence(c.Evidence, f)
	unnamed := func(name string) bool {
		return !strings.Contains(p.prose(c.Summary), strings.TrimSuffix(name, ".service"))
	}
	if s := c.Subject; s != nil && (p.details || s.Kind != "RPC" && slices.ContainsFunc(p.culprit(s), unnamed)) {
		p.flow([]span{plain("  "), {"Culprit", strong}, plain("  ")}, 4, plain(p.subjectLine(*s)))
	}
	if p.details && c.Subject != nil {
		p.processes(c.Subject.Processes)
		p.related(c.Related)
	}
	if p.details && c.Action != "" {
		p.flow([]span{plain("  "), {"Action", strong}, plain("  ")}, 4, plain(p.prose(string(c.Action)+": "+c.ActionWhy)))
	}
	steps := foremost(c.NextSteps, f.steps)
	p.steps(steps, numbers)
	return len(c.NextSteps) - len(steps)
}

// evidence writes the signs for and against, and what is missing.
func (p *page) evidence(e checks.Evidence, f fold) {
	p.folded("+", e.For, f.supports)
	p.folded("-", e.Against, f.others)
	p.folded("?", e.Missing, f.others)
}

// again is a command that asks the same runtime.
func (p *page) again(command string, r checks.Runtime) string {
	switch {
	case p.rerun != "":
		return p.clean(p.rerun)
	case r.From != "":
		return command + " --from " + p.clean(r.From)
	case p.simulated && r.Simulate != "":
		return command + " --simulate " + p.clean(r.Simulate)
	case r.EndpointSource == "flag":
		return command + " --runtime-endpoint " + p.clean(strings.TrimPrefix(r.Endpoint, "unix://"))
	}
	return command
}

// moreLine writes where the rest is.
func (p *page) moreLine(c conclusion, steps int) {
	p.blank()
	more := []string{p.again("kdiag "+c.more, c.runtime) + moreSteps(steps)}
	if c.Status == checks.Healthy && p.rerun == "" && strings.HasPrefix(c.more, "pleg ") {
		more = append(more, p.again("kdiag node", c.runtime)) // the cause may lie elsewhere
	}
	if len(c.causes) > 0 {
		more = append(more, "kdiag explain "+p.prose(c.causes[0].Code))
		all := c.causes[0].NextSteps
		if last := all[max(len(all)-1, 0):]; steps > 0 && len(last) > 0 &&
			strings.HasPrefix(last[0].Command, "kdiag explain ") { // that of a known bug, which is not printed
			more = append(more, p.clean(last[0].Command)+" (known bug)")
		}
	}
	p.moreOf(append(more, "-o json"))
}

// moreAbout writes where the rest of an answer is that has no cause.
func (p *page) moreAbout(command string, r checks.Runtime) {
	p.blank()
	p.moreOf([]string{p.again(command+" --details", r), "-o json"})
}

// moreSteps is how many steps there are more, behind the command that shows them.
func moreSteps(n int) string {
	if n == 0 {
		return ""
	}
	return " (+" + units.Count(n, "step") + ")"
}

// moreOf writes the commands that show more.
func (p *page) moreOf(more []string) {
	if slices.ContainsFunc(more, func(s string) bool { return columns(s) > p.wrap-6 }) {
		p.put(span{"More", strong}, plain(": "+more[0])) // the terminal wraps what is too long, so that it can be copied
		for _, s := range more[1:] {
			p.put(plain("      " + s))
		}
		return
	}
	whole := each(more, func(s string) string { return strings.ReplaceAll(s, " ", glue) }) // each stays in one line
	p.flow([]span{{"More", strong}, plain(": ")}, 6, plain(strings.Join(whole, " "+p.glyph.dot+" ")))
}

// folded writes at most so many lines behind a sign, and how many there are more. A single one is cut where a terminal
// ends, but not what a goroutine dump shows, which was asked for.
func (p *page) folded(sign string, lines []string, most int) {
	for i, s := range lines[:min(len(lines), most)] {
		more := andMore(i, most, len(lines))
		if s = p.prose(s); most == 1 && !strings.HasPrefix(s, "goroutine ") {
			s = briefLine{p.cleaner, max(p.wrap-4-columns(more), leastSummary)}.reason(s)
		}
		p.item(2, plain(sign), s+more)
	}
}

// andMore is how many lines there are more, to stand in the last one of those that are shown.
func andMore(i, shown, all int) string {
	if i < shown-1 || all <= shown {
		return ""
	}
	return " (+" + units.Number(all-shown) + glue + "more)"
}

// others writes the further causes, one line each.
func (p *page) others(causes []checks.Cause, most int) {
	if len(causes) == 0 {
		return
	}
	p.heading("Also")
	for i, c := range causes[:min(len(causes), most)] {
		about := andMore(i, most, len(causes))
		if c.CausedBy != "" {
			about += ", because of " + p.prose(c.CausedBy)
		}
		p.oneLine([]span{plain("  "), {p.prose(c.Code), severityInk(c.Severity)}, plain(about + ": ")},
			plain(p.prose(c.Summary)))
	}
}

// foremost returns at most so many steps, in their order. Where there are more, those that only read are left out
// first, but for two.
func foremost(steps []checks.NextStep, most int) []checks.NextStep {
	out := slices.Clone(steps)
	for i := len(out) - 1; i >= 2 && len(out) > most; i-- {
		if out[i].Touches == checks.TouchesNothing {
			out = slices.Delete(out, i, i+1)
		}
	}
	return out[:min(len(out), most)]
}

// step writes what to do and what it touches in one line where it fits, and the command below.
func (p *page) step(n int, s checks.NextStep) {
	text, tag := strings.TrimSuffix(p.prose(s.Why), "."), touches(s.Touches)
	if tag = p.prose(tag); tag != "" {
		tag = "[" + tag + "]"
	}
	lead := "  " + strconv.Itoa(n) + ". "
	hang := columns(lead)
	width := p.wrap - columns(tag) - 2
	if width < hang+leastSummary {
		width, text, tag = p.wrap, text+" "+tag, ""
	}
	ink := warn
	if s.Touches == checks.TouchesNothing {
		ink = good
	}
	for i, line := range fill(text, hang, hang, width) {
		if i > 0 {
			lead, tag = spaces(hang), ""
		}
		gap := max(p.width-columns(lead+line+tag), 2)
		p.put(plain(lead+line+spaces(gap)), span{tag, ink})
	}
	if s.Command != "" {
		p.command(hang+2, s.Command)
	}
}

// touches is the tag of a step.
func touches(what string) string {
	tags := map[string]string{
		checks.TouchesNothing: "read-only", checks.TouchesDump: "writes a dump", checks.TouchesScheduler: "cordons",
		checks.TouchesLimit: "raises a limit", checks.TouchesLogs: "deletes old logs",
		checks.TouchesExited: "removes exited", checks.TouchesMount: "one mount", checks.TouchesSystemd: "systemd",
		checks.TouchesRuntime: "restarts runtime", checks.TouchesKubelet: "restarts kubelet",
		checks.TouchesNode: "whole node",
	}
	return cmp.Or(tags[what], what)
}

// simulation stands in the headline for a node that does not exist.
const simulation = "SIMULATION"

// headline writes the first lines: the verdict, the node, and why in a sentence or more.
func (p *page) headline(word span, host string, sentences ...string) {
	p.simulated = host == simulation
	hang := columns(word.text) + 2
	lead := []span{word, plain("  ")}
	switch host = p.prose(host); {
	case host == "":
	case columns(host) <= p.wrap/3:
		lead = append(lead, plain(host+"  "))
	default:
		p.flow(lead, hang, plain(host))
		lead = []span{plain(spaces(hang))}
	}
	for _, s := range sentences {
		p.flow(lead, hang, plain(s))
		lead = []span{plain(spaces(hang))}
	}
}

// where names the node, or that there is none.
func where(host string, r checks.Runtime) string {
	if r.EndpointSource == "simulated" {
		return simulation
	}
	return host
}

// verdict returns a verdict in capitals; a document without one has no answer.
func (c cleaner) verdict(v checks.Verdict) span {
	return span{strings.ToUpper(cmp.Or(c.prose(string(v)), string(checks.Unknown))), verdictInk(v)}
}

// sentence is the reason of the verdict: the first cause, else what kept kdiag from looking, else what was fine.
func (c cleaner) sentence(h checks.Header, causes []checks.Cause, fine string) string {
	switch {
	case len(causes) > 0:
		return c.prose(causes[0].Code + ": " + causes[0].Summary)
	case h.Status != checks.Healthy && len(h.Problems) > 0:
		return c.prose(h.Problems[0])
	case h.Status == checks.Healthy:
		return fine
	}
	return "no cause found"
}

// fineRelist adds how long a relist takes to what was found of a healthy node or runtime.
func fineRelist(found string, s *plegbench.Summary) string {
	if s == nil || s.ProjectedSeconds == nil || s.ThresholdSeconds <= 0 {
		return found
	}
	return found + "; a relist takes " + units.Seconds(*s.ProjectedSeconds) + " (limit " +
		units.Seconds(s.ThresholdSeconds) + ")"
}

// What is found of a node without a cause, and of a runtime alone.
const (
	fineNode    = "nothing found"
	fineRuntime = "runtime answers"
)

// runtime writes which runtime was asked, and why that one.
func (p *page) runtime(r checks.Runtime) {
	p.pair("runtime", p.runtimeName(r))
	text := p.prose(r.Endpoint)
	if why := cmp.Or(r.EndpointReason, r.EndpointSource); why != "" && text != "" {
		text += " (" + p.prose(why) + ")"
	}
	p.pair("endpoint", text)
}

// runtimeName returns such as "containerd v2.1.4 (CRI v1)"; empty when the runtime did not report it.
func (c cleaner) runtimeName(r checks.Runtime) string {
	name := c.prose(r.Name + " " + r.Version)
	if name != "" && r.APIVersion != "" {
		name += " (CRI" + glue + c.prose(r.APIVersion) + ")"
	}
	return name
}
