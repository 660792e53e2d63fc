package render

import (
	"cmp"
	"fmt"
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

// evidence writes the signs for and against, and missing ones.
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
			strings.HasPrefix(last[0].Command, "kdiag explain ") { // about a known bug, which is not printed
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
		p.put(span{"More", strong}, plain(": "+more[0])) // the terminal wraps a long line, which can be copied
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

// causeHeading writes the title of a further cause: the headline has the first one.
func (p *page) causeHeading(c checks.Cause) {
	text := confidence(c.Confidence)
	if c.CausedBy != "" {
		text += "; because of " + p.prose(c.CausedBy)
	}
	p.heading(p.prose(c.Code), span{p.prose(string(c.Severity)), severityInk(c.Severity)}, plain(text))
	for _, line := range append([]string{c.Summary}, c.Effect...) {
		p.text(2, p.prose(line))
	}
}

// confidence returns a confidence in words, and as the number that JSON has.
func confidence(v float64) string {
	word := "a guess"
	for _, step := range []struct {
		from float64
		word string
	}{{0.95, "almost certain"}, {0.8, "very likely"}, {0.6, "likely"}, {0.4, "possible"}} {
		if v >= step.from {
			word = step.word
			break
		}
	}
	return word + " (" + strconv.FormatFloat(v, 'f', 2, 64) + ")"
}

// certainty returns a confidence as it stands behind a title.
func certainty(v float64) string { return strings.Replace(confidence(v), "(", "(confidence ", 1) }

// related writes further culprits.
func (p *page) related(subjects []checks.Subject) {
	for _, s := range subjects {
		p.flow([]span{plain("    ")}, 6, plain("also "+p.subjectLine(s)))
	}
}

func (p *page) processes(processes []checks.Process) {
	t := table{indent: 4, align: "llll"}
	for _, q := range processes {
		t.add(p.prose(q.Role), p.prose(q.Name), "pid"+glue+strconv.Itoa(q.PID), p.processState(q))
	}
	p.table(t)
}

// processState returns such as "sleeping in futex_wait_queue, age 9d2h".
func (c cleaner) processState(q checks.Process) string {
	state := c.prose(q.State)
	if q.Wchan != "" && q.Wchan != "0" {
		state += " in " + c.prose(q.Wchan)
	}
	if q.Age != "" {
		state += ", age" + glue + c.prose(q.Age)
	}
	return state
}

// subjectLine names a culprit in words and by the ids by which it can be asked for, such as "container ledger of
// payments/ledger-db-0, id fe14010b4fe83".
func (c cleaner) subjectLine(s checks.Subject) string {
	kind := strings.ToLower(c.prose(s.Kind))
	switch s.Kind {
	case "PodSandbox":
		kind = "sandbox"
	case "RPC":
		kind = s.Kind
	}
	parts := []string{kind}
	pod := c.podName(s)
	if s.Name != "" && s.Name != s.Pod {
		parts = append(parts, c.prose(s.Name))
	}
	switch {
	case pod != "" && s.Kind == "Pod":
		parts = append(parts, pod)
	case pod != "":
		parts = append(parts, "of", pod)
	}
	line, id := strings.Join(parts, " "), c.prose(s.ID)
	switch {
	case id == "" || s.ID == s.Name:
	case len(parts) == 1:
		line += " " + id
	case s.Kind == "Process":
		line += ", pid" + glue + id
	default:
		line += ", id" + glue + id
	}
	if s.PodUID != "" {
		line += ", pod" + glue + "uid" + glue + c.prose(s.PodUID)
	}
	return line
}

func (c cleaner) podName(s checks.Subject) string {
	if s.Namespace == "" || s.Pod == "" {
		return c.prose(s.Pod)
	}
	return c.prose(s.Namespace + "/" + s.Pod)
}

// steps writes what to do, in order. A command that stands above is referred to by its number; numbers holds those,
// and may be nil.
func (p *page) steps(steps []checks.NextStep, numbers map[string]int) {
	if len(steps) == 0 {
		return
	}
	if numbers == nil {
		numbers = map[string]int{}
	}
	var again []int
	fresh := slices.DeleteFunc(slices.Clone(steps), func(s checks.NextStep) bool {
		n := numbers[s.Command]
		if n > 0 {
			again = append(again, n)
		}
		return n > 0
	})
	p.nextHeading(steps)
	for _, s := range fresh {
		n := len(numbers) + 1
		numbers[s.Command] = n
		p.step(n, s)
	}
	if len(again) > 0 {
		slices.Sort(again)
		p.text(2, "plus "+units.Plural(len(again), "step ", "steps ")+units.List(each(again, strconv.Itoa))+" above")
	}
}

// nextHeading begins the next steps. In a simulation it explains the # before those that would act on a node.
func (p *page) nextHeading(steps []checks.NextStep) {
	others := func(s checks.NextStep) bool { return s.Command != "" && !ours(s.Command) }
	if p.simulated && slices.ContainsFunc(steps, others) {
		p.heading("Next", plain("(simulated: lines with # would act on a real node; do not run them here)"))
		return
	}
	p.heading("Next")
}

// answer puts a verdict and its first cause into one line. Verdict, code and culprit are never cut away: what is left
// of the room, and of the action in brackets, goes to the summary. Of a healthy host it is what was fine.
func (m briefLine) answer(a checks.Answer, fine string) string {
	head, _, causes := a.Answer()
	word := middle(m.verdict(head.Status).text, mostName)
	if len(causes) == 0 {
		fine = strings.TrimSpace(middle(m.prose(head.Host), mostName) + " " + fine)
		return m.cut(word + " " + m.sentence(*head, nil, fine))
	}
	c, more := causes[0], ""
	if len(causes) > 1 {
		more = " (+" + units.Number(len(causes)-1) + ")"
	}
	culprit := m.culprit(c.Subject)
	if slices.Contains(checks.Actions(), c.Action) {
		acting, named := m.causeLine(word, c, culprit, " ["+string(c.Action)+"]"+more)
		if named && strings.Contains(acting, ": ") { // the action takes neither the culprit's place nor the summary's
			return acting
		}
	}
	line, _ := m.causeLine(word, c, culprit, more)
	return line
}

// causeLine writes a verdict, a cause and what follows them, and reports whether the culprit is named in full.
func (m briefLine) causeLine(word string, c checks.Cause, culprit []string, more string) (string, bool) {
	rest := briefLine{m.cleaner, m.width - len(more)}
	start, summary := word+" "+middle(m.prose(c.Code), mostName), m.prose(c.Summary)
	if c.Confidence < unsure {
		start += fmt.Sprintf(" (%.2f)", c.Confidence)
	}
	lacks := func(line string) bool {
		return slices.ContainsFunc(culprit, func(name string) bool { return !strings.Contains(line, name) })
	}
	line := rest.reason(start + ": " + summary)
	if lacks(line) {
		line = start + " " + middle(strings.Join(culprit, "/"), rest.width-len(start)-1)
		if rest.width-len(line) >= leastSummary {
			line = rest.reason(line + ": " + summary)
		}
	}
	return m.cut(line + more), !lacks(line)
}

// culprit returns the fewest names by which a subject can be found: pod and name, or its id.
func (c cleaner) culprit(s *checks.Subject) []string {
	if s == nil {
		return nil
	}
	name, pod := c.prose(s.Name), c.podName(*s)
	if s.Name == s.Pod && pod != "" {
		name = ""
	}
	if name == "" && pod == "" {
		name = c.prose(s.ID)
	}
	return slices.DeleteFunc([]string{pod, name}, func(s string) bool { return s == "" })
}
