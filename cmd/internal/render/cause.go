package render

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/units"
)

// causeHeading writes what a further cause is: the headline has that of the first.
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
