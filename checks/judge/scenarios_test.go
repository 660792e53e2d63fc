package judge

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/advisories"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/collect"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/redact"
	"github.com/kdiag/kdiag/internal/testkit"
)

// TestScenarios judges the nodes of testdata/scenarios, which nodes.txtar describes, and compares what is found.
func TestScenarios(t *testing.T) {
	all, _ := scenarios()
	for _, s := range all {
		t.Run(s.name, func(t *testing.T) {
			in := node(t, s.lines)
			report := NewReport(checks.Header{}, in)
			checkReport(t, report)
			checkTexts(t, report)
			for line := range strings.SplitSeq(strings.TrimSpace(s.want), "\n> ") {
				if diff := compare(t, s.lines, in, report, line); diff != "" {
					t.Errorf("%s:\n%s", line, diff)
				}
			}
			checkRedacted(t, redact.Strict, in, report)
		})
	}
}

// TestChecks has each check be ok on one of these nodes, and two other things on others, and described in
// docs/checks.md. What a cause claims must be a check.
func TestChecks(t *testing.T) {
	shown := map[string]map[checks.Status]bool{}
	for _, r := range results(judged(nil)) {
		shown[r.ID] = map[checks.Status]bool{}
	}
	all, _ := scenarios()
	for _, s := range all {
		for _, r := range results(judged(node(t, s.lines))) {
			shown[r.ID][r.Status] = true
		}
	}
	list, _, _ := strings.Cut(testkit.Read(t, "../../docs/checks.md"), "\n# Looks\n")
	for id, s := range shown {
		if !s[checks.StatusOK] || len(s) < 3 || !strings.Contains(list, "\n## "+id+"\n") {
			t.Errorf("%s is shown as %v only, or is not in docs/checks.md", id, s)
		}
	}
	for _, d := range causes.All() {
		for _, id := range d.Claims {
			if shown[id] == nil {
				t.Errorf("%s claims %s, which is no check", d.Code, id)
			}
		}
	}
}

// TestAdvisoriesShow has each expression of a known bug match what is said about a cause as which it shows, on one of
// these nodes or in a recorded case, and not all that is said about it.
func TestAdvisoriesShow(t *testing.T) {
	said := map[string][]string{}
	add := func(r *checks.Report) {
		for _, c := range r.Causes {
			for _, text := range append([]string{c.Summary}, c.Evidence.For...) {
				if !strings.HasPrefix(text, "known bug of") {
					said[c.Code] = append(said[c.Code], text)
				}
			}
		}
	}
	for _, in := range gallery() {
		add(NewReport(checks.Header{}, in))
	}
	all, _ := scenarios()
	for _, s := range all {
		add(NewReport(checks.Header{}, node(t, s.lines)))
	}
	for _, a := range advisories.All() {
		shows, hides := a.Seen == "", a.Seen == ""
		for _, code := range a.Causes {
			for _, text := range said[code] {
				shows, hides = shows || a.Shows(text), hides || !a.Shows(text)
			}
		}
		if !shows || !hides {
			t.Errorf("%s: seen %q matches a text of %v: %t, none: %t", a.ID, a.Seen, a.Causes, shows, hides)
		}
	}
}

// checkRedacted judges facts as a bundle has them: as JSON, without secrets, and with pseudonyms.
func checkRedacted(t *testing.T, level redact.Level, in *facts.Input, report *checks.Report) {
	t.Helper()
	text, err := json.Marshal(in)
	must(t, err)
	var redacted bytes.Buffer
	_, err = redact.New(level, collect.Names(in)).Copy(&redacted, bytes.NewReader(text), redact.JSON)
	must(t, err)
	var again facts.Input
	must(t, json.Unmarshal(redacted.Bytes(), &again))
	equal(t, "out of a bundle: "+string(level), essence(report), essence(NewReport(checks.Header{}, &again)))
}

// essence is what two reports must have in common of which one has pseudonyms.
func essence(r *checks.Report) []string {
	all := []string{string(r.Status)}
	for _, c := range r.Causes {
		all = append(all, fmt.Sprint(c.Code, c.Severity, c.Confidence, c.CausedBy, c.Subject.Kind))
	}
	for _, c := range r.Checks {
		all = append(all, c.ID+" "+string(c.Status))
	}
	return all
}

// compare returns how one line of what is found differs from the report on a node that was made of lines.
func compare(t *testing.T, lines string, in *facts.Input, report *checks.Report, line string) string {
	t.Helper()
	var steps, commands, effects, blamed, evidence []string
	said := slices.Clone(report.Notes)
	for _, c := range report.Causes {
		for _, s := range c.NextSteps {
			commands = append(commands, s.Command)
			steps = append(steps, s.Command+": "+s.Touches+": "+s.Why)
		}
		said, effects = append(said, c.Summary), append(effects, c.Effect...)
		evidence = slices.Concat(evidence, c.Evidence.For, c.Evidence.Against, c.Evidence.Missing)
		for _, s := range append([]checks.Subject{*c.Subject}, c.Related...) {
			name := cmp.Or(s.ID, s.Name)
			if s.Kind == "Cgroup" {
				name = cmp.Or(s.Pod, s.Name)
			}
			for _, p := range s.Processes {
				name += fmt.Sprintf(" [%d]", p.PID)
			}
			blamed = append(blamed, s.Kind+" "+name)
		}
	}
	var status checks.Status
	verb, rest, _ := strings.Cut(line, " ")
	for _, r := range report.Checks {
		said = append(said, r.Summary)
		if r.ID == verb {
			status = r.Status
		}
	}
	if more := len(blamed) - 3; more > 0 {
		blamed = append(blamed[:3], fmt.Sprint(more, " more"))
	}
	probe, benchmark := NewRuntimeProbe(checks.Header{}, in), NewRelistBenchmark(checks.Header{}, in)
	problems := slices.Concat(report.Problems, probe.Problems, benchmark.Problems)
	switch {
	case strings.Contains(verb, "."):
		return gocmp.Diff(rest, string(status))
	case verb == "blames":
		return gocmp.Diff(rest, strings.Join(blamed, ", "))
	case verb == "effect":
		return gocmp.Diff(rest, strings.Join(effects, "; "))
	case verb == "verdicts":
		return gocmp.Diff(rest, fmt.Sprint(report.Status, " ", probe.Status, " ", benchmark.Status))
	case verb == "without":
		pattern, difference, _ := strings.Cut(rest, ": ")
		return gocmp.Diff(difference, without(t, lines, pattern, report.Causes))
	case verb == "does" && !contains(steps, rest), verb == "never" && contains(commands, rest):
		return strings.Join(steps, "\n")
	case verb == "says" && !contains(said, rest):
		return strings.Join(said, "\n")
	case verb == "shows" && !slices.ContainsFunc(evidence, func(l string) bool { return strings.HasSuffix(l, rest) }):
		return strings.Join(evidence, "\n")
	case line == "no problem" && len(problems) > 0, verb == "problem" && !contains(problems, rest):
		return strings.Join(problems, "\n")
	case !slices.Contains([]string{"does", "never", "says", "shows", "problem", "no"}, verb):
		return gocmp.Diff(line, finds(report))
	}
	return ""
}

// finds writes the causes, critical ones with !, and each with its root: FilesystemHung!; TaskStuck < FilesystemHung.
// Without any it writes the verdict.
func finds(r *checks.Report) string {
	var words []string
	for _, c := range r.Causes {
		w := c.Code
		if c.Severity == checks.Critical {
			w += "!"
		}
		if c.CausedBy != "" {
			w += " < " + c.CausedBy
		}
		words = append(words, w)
	}
	return cmp.Or(strings.Join(words, "; "), string(r.Status))
}

// without writes what the first cause has more than on a node without the lines that match a pattern.
func without(t *testing.T, lines, pattern string, named []checks.Cause) string {
	t.Helper()
	matches := regexp.MustCompile("^(?:" + pattern + ")").MatchString
	kept := slices.DeleteFunc(strings.Split(lines, "\n"), matches)
	before := Judge(node(t, strings.Join(kept, "\n")))
	if len(before) == 0 || len(named) == 0 || before[0].Code != named[0].Code {
		return "another cause"
	}
	a, b := before[0], named[0]
	return fmt.Sprintf("for %+d, against %+d, missing %+d, confidence %+.2f, steps %+d",
		len(b.Evidence.For)-len(a.Evidence.For), len(b.Evidence.Against)-len(a.Evidence.Against),
		len(b.Evidence.Missing)-len(a.Evidence.Missing), b.Confidence-a.Confidence,
		len(b.NextSteps)-len(a.NextSteps))
}

// contains reports whether one of some texts contains a part.
func contains(all []string, part string) bool {
	return slices.ContainsFunc(all, func(s string) bool { return strings.Contains(s, part) })
}
