//go:build e2e

package e2etest

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/bundle"
	"github.com/kdiag/kdiag/cmd/internal/cli"
)

// A Fault is one way in which a node is broken, or odd, and what kdiag has to say.
type Fault struct {
	Name string
	Make Maker
	Want Want
}

// A Maker makes a fault, and undoes it when the test ends. It may change where kdiag runs, and name the culprit.
type Maker func(t *testing.T, at *Place)

// Shell makes a fault with a command of a shell, and undoes it with another.
func Shell(make, undo string) Maker {
	return func(t *testing.T, _ *Place) {
		t.Cleanup(func() { Sh(t, undo) })
		Sh(t, make)
	}
}

// Nothing makes no fault.
func Nothing(*testing.T, *Place) {}

// A Want is what kdiag must report of a fault. An empty field is not checked, but for Codes. Files of faults have its
// fields in lower case.
type Want struct {
	Codes    []string // the causes, roots first; the other fields are about the first
	Harmless bool     // any causes, of which none is critical
	Unknown  bool     // kdiag cannot tell
	Among    bool     // other causes may be there, which are consequences where they are critical
	Chain    bool     // the last cause is a consequence of the first
	Status   checks.Verdict
	Severity checks.Severity // of the first
	Culprits []string        // each is an id, a name or a pod of one and the same subject
	Lines    []string        // each matches "SEVERITY CONFIDENCE SUMMARY", or a line of the effect or the evidence
	Steps    []string        // parts of next steps in their order, of which the first is a part of the first step
	Notes    []string        // each matches a note
	Problems []string        // each matches a problem
	Results  []string        // each matches "CHECK STATUS SUMMARY"
	Stacks   []string        // each matches, as Lines do, what kdiag pleg --stacks reports
	NoStacks string          // matches nothing that kdiag pleg --stacks reports
	Repair   []string        // parts of the steps that end the fault
	Only     string          // the command that is asked, where it is not node and pleg
	Flags    []string        // of each question
	Child    string          // where one child of kdiag's waits, however often kdiag has looked
}

// CheckFile is Check for the faults of a file in testdata. A command of a shell makes one, and another undoes it, or
// the maker of its name does. A Place has values for variables of all files, such as ${DIR}; values are added to them.
func (p Place) CheckFile(t *testing.T, file string, makers map[string]Maker, values ...string) {
	t.Helper()
	rows := Documents[[]struct {
		Name, Make, Undo string
		Want
	}](t, file, append(values, p.Values...)...)
	var faults []Fault
	for _, row := range *rows[0] {
		made, ok := makers[row.Name]
		if ok == (row.Make != "") {
			t.Fatalf("%s needs a command or a maker", row.Name)
		}
		if !ok {
			made = p.Shell(row.Make, row.Undo)
		}
		faults = append(faults, Fault{row.Name, made, row.Want})
		delete(makers, row.Name)
	}
	if len(makers) > 0 {
		t.Fatalf("%s has no rows for %v", file, slices.Sorted(maps.Keys(makers)))
	}
	p.Check(t, faults)
}

// Check makes one fault after the other, checks what kdiag reports of it, runs the next steps and the repair, undoes
// the fault, and waits until kdiag finds the node well again.
func (p Place) Check(t *testing.T, faults []Fault) {
	for _, f := range faults {
		t.Run(f.Name, func(t *testing.T) { p.check(t, f) })
	}
}

// CheckControls is Check for what is odd and harmless: kdiag must name nothing critical.
func (p Place) CheckControls(t *testing.T, controls []Fault) {
	for i := range controls {
		controls[i].Want.Harmless = true
	}
	p.Check(t, controls)
}

func (p Place) check(t *testing.T, f Fault) {
	t.Cleanup(func() { p.recovers(t, f.Want) }) // after all that Make undoes
	at := p
	f.Make(t, &at)
	w := f.Want.of(at.Culprit)
	commands := []string{"node", "pleg"}
	if w.Only != "" {
		commands = []string{w.Only}
	}
	var causes []checks.Cause
	for i, command := range commands {
		r := w.check(t, at, at.Ask(t, at.question(command, w.Flags...)...))
		if i == 0 {
			causes = w.causes(r)
			at.runSteps(t, causes)
		}
	}
	if len(w.Stacks) > 0 || w.NoStacks != "" {
		w.checkStacks(t, at, at.Ask(t, at.question("pleg", append(w.Flags, "--stacks")...)...))
	}
	at.record(t, w, causes)
	if len(causes) > 0 && at.prove(t, causes[0]) {
		return
	}
	if len(w.Repair) > 0 && !t.Failed() {
		at.repair(t, causes[0], w.Repair)
	}
}

// of returns what is wanted with the culprit in its place.
func (w Want) of(culprit string) Want {
	fill := func(culprit string, lists ...*[]string) {
		for _, list := range lists {
			*list = slices.Clone(*list)
			for i, text := range *list {
				(*list)[i] = strings.ReplaceAll(text, "CULPRIT", culprit)
			}
		}
	}
	fill(culprit, &w.Culprits, &w.Steps, &w.Repair)
	fill(regexp.QuoteMeta(culprit), &w.Lines, &w.Notes, &w.Results, &w.Stacks)
	return w
}

// causes returns those that are wanted.
func (w Want) causes(r *checks.Report) []checks.Cause {
	return slices.DeleteFunc(slices.Clone(r.Causes), func(c checks.Cause) bool {
		return !slices.Contains(w.Codes, c.Code)
	})
}

func (w Want) check(t *testing.T, p Place, o Outcome) *checks.Report {
	t.Helper()
	r := o.Report(t)
	want := map[checks.Verdict]int{checks.Unhealthy: cli.ExitProblem, checks.Unknown: cli.ExitUnknown}[r.Status]
	if o.Code != want {
		t.Errorf("exit code %d with status %s, want %d", o.Code, r.Status, want)
	}
	if w.Unknown != (r.Status == checks.Unknown) {
		t.Errorf("status %s, problems %q", r.Status, r.Problems)
	}
	w.checkCodes(t, p, r)
	if causes := w.causes(r); len(w.Codes) > 0 && len(causes) > 0 {
		w.checkFirst(t, p, causes)
	}
	matches(t, "notes", r.Notes, w.Notes)
	matches(t, "problems", r.Problems, w.Problems)
	var results []string
	for _, c := range r.Checks {
		results = append(results, fmt.Sprintf("%s %s %s", c.ID, c.Status, c.Summary))
	}
	matches(t, "checks", results, w.Results)
	if w.Status != "" && r.Status != w.Status {
		t.Errorf("status %s, want %s", r.Status, w.Status)
	}
	if w.Child != "" && ProbesIn(w.Child) != 1 { // only then: with a locked memory map it would wait
		t.Errorf("%d children of kdiag's wait in %s, want 1", ProbesIn(w.Child), w.Child)
	}
	if p.Also != nil {
		p.Also(t, r)
	}
	if t.Failed() {
		t.Log(o.Stdout, o.Stderr)
	}
	return r
}

func (w Want) checkCodes(t *testing.T, p Place, r *checks.Report) {
	t.Helper()
	got := []string{}
	for _, c := range p.own(r, w.Codes...) {
		switch {
		case slices.Contains(w.Codes, c.Code), !w.Harmless && !w.Among:
			got = append(got, c.Code)
		case c.Severity == checks.Critical && (w.Harmless || c.CausedBy == ""):
			t.Errorf("%s is critical: %s", c.Code, strings.Join(said([]checks.Cause{c}), "\n"))
		}
	}
	if diff := cmp.Diff(append([]string{}, w.Codes...), got); diff != "" {
		t.Errorf("causes (-want +got):\n%s", diff)
	}
}

// checkFirst checks the first cause, and the lines of all.
func (w Want) checkFirst(t *testing.T, p Place, causes []checks.Cause) {
	t.Helper()
	c := causes[0]
	if w.Severity != "" && c.Severity != w.Severity {
		t.Errorf("%s is %s, want %s", c.Code, c.Severity, w.Severity)
	}
	if c.CausedBy != "" && (p.Alone || shared[c.CausedBy] == "") {
		t.Errorf("%s is caused by %s, want a root", c.Code, c.CausedBy)
	}
	for _, c := range causes[1:] {
		if c.CausedBy == "" && c.Severity == checks.Critical && w.Among {
			t.Errorf("%s is not a consequence: %s", c.Code, c.Summary)
		}
	}
	if last := causes[len(causes)-1]; w.Chain && last.CausedBy != c.Code {
		t.Errorf("%s is caused by %q, want %s", last.Code, last.CausedBy, c.Code)
	}
	var subjects []checks.Subject
	if c.Subject != nil {
		subjects = append(subjects, *c.Subject)
	}
	if subjects = append(subjects, c.Related...); !slices.ContainsFunc(subjects, w.blames) {
		t.Errorf("%s blames %+v, want %q", c.Code, subjects, w.Culprits)
	}
	rest := c.NextSteps
	for i, part := range w.Steps {
		at := slices.IndexFunc(rest, func(s checks.NextStep) bool { return strings.Contains(s.Command, part) })
		if at < 0 || i == 0 && at > 0 {
			t.Errorf("%s advises %+v, want %q", c.Code, c.NextSteps, w.Steps)
			break
		}
		rest = rest[at:]
	}
	matches(t, "causes", said(causes), w.Lines)
}

func (w Want) blames(s checks.Subject) bool {
	names := []string{s.ID, s.Name, s.Pod}
	for _, p := range s.Processes {
		names = append(names, strconv.Itoa(p.PID))
	}
	return !slices.ContainsFunc(w.Culprits, func(name string) bool { return !slices.Contains(names, name) })
}

// said returns all lines of causes.
func said(causes []checks.Cause) (lines []string) {
	for _, c := range causes {
		lines = append(lines, fmt.Sprintf("%s %.2f %s", c.Severity, c.Confidence, c.Summary))
		lines = slices.Concat(lines, c.Effect, c.Evidence.For, c.Evidence.Missing)
	}
	return lines
}

func matches(t *testing.T, what string, lines, patterns []string) {
	t.Helper()
	for _, p := range patterns {
		if !slices.ContainsFunc(lines, regexp.MustCompile(p).MatchString) {
			t.Errorf("%s: nothing matches %q:\n%s", what, p, strings.Join(lines, "\n"))
		}
	}
}

// checkStacks checks a report with goroutine dumps. It must not advise the dump that was taken.
func (w Want) checkStacks(t *testing.T, p Place, o Outcome) {
	t.Helper()
	r := o.Report(t)
	causes := w.causes(r)
	matches(t, "stacks", append(said(causes), r.Notes...), w.Stacks)
	for _, c := range causes {
		for _, s := range c.NextSteps {
			if strings.Contains(s.Command, "stacks --capture") {
				t.Errorf("%s advises %q", c.Code, s.Command)
			}
		}
	}
	if w.NoStacks != "" && strings.Contains(o.Stdout, w.NoStacks) {
		t.Errorf("stacks show %q:\n%s", w.NoStacks, o.Stdout)
	}
}

// recovers waits until kdiag names neither the causes of a fault any more nor a critical one.
func (p Place) recovers(t *testing.T, w Want) {
	Eventually(t, "the node is well again", func() bool {
		r := p.Ask(t, p.question("node")...).Report(t)
		return r.Status != checks.Unknown && !slices.ContainsFunc(p.own(r), func(c checks.Cause) bool {
			return c.Severity == checks.Critical || slices.Contains(w.Codes, c.Code)
		})
	})
}

// record writes the facts of a fault, as kdiag bundle collects them, into the folder that KDIAG_TRUTH names, with the
// first of its causes and the other critical roots. Package judge makes docs/truth.md of them.
func (p Place) record(t *testing.T, w Want, causes []checks.Cause) {
	t.Helper()
	dir := os.Getenv("KDIAG_TRUTH")
	if dir == "" || w.Unknown || w.Only != "" { // with Only, other commands may not be started
		return
	}
	o := p.Ask(t, append([]string{"bundle", "-", "--no-stacks"}, p.Args...)...)
	_, files := OpenBundle(t, o.Stdout)
	roots := []string{}
	for i, c := range causes {
		if i == 0 || c.CausedBy == "" && c.Severity == checks.Critical {
			roots = append(roots, c.Code)
		}
	}
	document, err := json.Marshal(map[string]any{
		"fault": t.Name(), "want": roots, "culprits": w.Culprits,
		"facts": json.RawMessage(strings.TrimSpace(files[bundle.FactsName])),
	})
	Must(t, err)
	name := strings.ReplaceAll(strings.TrimPrefix(t.Name(), "TestEndToEnd"), "/", "-") + ".json"
	Must(t, os.WriteFile(filepath.Join(dir, name), document, 0o644))
}
