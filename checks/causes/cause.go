// Package causes holds every cause that kdiag knows, three files each: NAME.go recognises it in the facts and advises;
// NAME.md documents it for kdiag explain and docs/causes.md; testdata/NAME holds a recorded case. All causes are one
// table, in list.go; which cause explains which is another one, in relations.go. Package judge relates the causes it
// finds and writes the report.
package causes

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
)

// A Definition is one cause.
type Definition struct {
	Code string
	// Claims are the checks whose line this cause gives when it is found.
	Claims []string
	// Calls are the RPCs that hang while it lasts, AllCalls for any; the oldest of them dates it.
	Calls []string
	// StopsRelists means that no relist of the kubelet succeeds while it lasts, so that the last good one dates it.
	StopsRelists bool
	// SeenLate means that it may last for minutes before kdiag can see it.
	SeenLate bool
	// LateCalls means that a log shows it by late calls, which a kubelet that stands still itself has too.
	LateCalls bool
	// Past means that it is over when it is reported, so that what follows from it keeps its own remedy.
	Past bool
	// Hidden are causes beside which this one is not reported: it is the same observation, seen less well.
	Hidden []Root
	// OnPurpose reports whether a person or a program made this so: then nothing on the node is its root.
	OnPurpose func(*facts.Facts) bool
	// Recognise returns what the facts show of the cause, nil if they do not show it.
	Recognise func(*facts.Facts) *Finding
	// FromLog returns what a log alone shows of the cause around an incident, nil if it shows nothing; nil for a
	// cause that no log shows.
	FromLog func(*Incident) *Finding
}

// AllCalls stands for all RPCs.
var AllCalls = []string{"*"}

// Hangs reports whether an RPC hangs while the cause lasts.
func (d Definition) Hangs(method string) bool {
	return slices.Contains(d.Calls, method) || slices.Equal(d.Calls, AllCalls)
}

// Roots returns the causes that explain this one when both are found, by the table of relations.
func (d Definition) Roots() []Root {
	var roots []Root
	for _, r := range relations {
		if slices.Contains(r.explains, d.Code) {
			for _, code := range r.roots {
				roots = append(roots, Root{Code: code, When: r.when})
			}
		}
	}
	return roots
}

// A Finding is a cause that was recognised in the facts or in a log, before it is related to others.
type Finding struct {
	Code     string // set by the judge
	Severity checks.Severity
	Step     float64 // of the confidence scale; evidence against and missing lowers it
	Summary  string
	Effect   []string // see checks.Cause
	Waiting  string   // what it adds to the effect of its root
	Evidence checks.Evidence
	Subject  *checks.Subject
	Related  []checks.Subject
	// Advise adds the next steps. root is the code of the cause that is to be repaired first, empty if there is none.
	Advise func(s *Steps, root string)
}

// A Root is a cause that explains the one in whose definition it stands.
type Root struct {
	Code     string
	When     func(*facts.Facts) bool // what the facts must show besides; nil for nothing
	Critical bool                    // only when the root itself is critical
}

// Holds reports whether the facts show what the root needs.
func (r Root) Holds(f *facts.Facts) bool { return r.When == nil || r.When(f) }

// newFinding returns a finding about the subjects, the culprit first. Their texts need not be clean.
func newFinding(
	severity checks.Severity, step float64, summary string, e checks.Evidence, subjects ...checks.Subject,
) *Finding {
	if len(e.For) == 0 { // the summary is the observation
		e.For = []string{summary}
	}
	c := &Finding{Severity: severity, Step: step, Summary: summary, Evidence: e}
	for i := range subjects {
		s := &subjects[i]
		for _, text := range []*string{&s.ID, &s.Name, &s.Namespace, &s.Pod, &s.PodUID} {
			*text = facts.Clean(*text)
		}
	}
	if len(subjects) > 0 {
		c.Subject, c.Related = &subjects[0], subjects[1:min(len(subjects), facts.MaxRelated+1)]
	}
	return c
}

// advise sets what adds the next steps, and returns the finding.
func (c *Finding) advise(add func(s *Steps, root string)) *Finding {
	c.Advise = add
	return c
}

// criticalIf is critical where the condition holds, else a warning.
func criticalIf(condition bool) checks.Severity {
	return ifElse(condition, checks.Critical, checks.Warning)
}

// Lookup returns the definition of a code, in any case and with or without dashes: InspectHang, inspecthang and
// inspect-hang are the same.
func Lookup(code string) (Definition, bool) {
	plain := strings.ReplaceAll(strings.TrimSpace(code), "-", "")
	all := All()
	i := slices.IndexFunc(all, func(d Definition) bool { return strings.EqualFold(d.Code, plain) })
	if i < 0 {
		return Definition{}, false
	}
	return all[i], true
}

//go:embed *.md
var pages embed.FS

// Docs returns the documentation of every cause, in the order of All. It panics if a page is missing, cannot be read,
// or is of no cause, which a test excludes: the pages are part of the program.
func Docs() []checks.Definition {
	byCode := map[string]checks.Definition{}
	files, _ := pages.ReadDir(".") // an embedded folder is always there
	for _, file := range files {
		doc, err := readPage(file.Name())
		if err != nil {
			panic(fmt.Errorf("reading %s: %w", file.Name(), err))
		}
		byCode[doc.Code] = doc
	}
	var docs []checks.Definition
	for _, d := range All() {
		doc, ok := byCode[d.Code]
		if !ok {
			panic("the cause " + d.Code + " has no page")
		}
		for _, other := range All() {
			if slices.ContainsFunc(other.Roots(), func(r Root) bool { return r.Code == d.Code }) {
				doc.RootOf = append(doc.RootOf, other.Code)
			}
		}
		for _, r := range remedies[d.Code] {
			doc.Actions = append(doc.Actions, r.Remedy)
		}
		docs = append(docs, doc)
	}
	if len(docs) < len(files) {
		panic("a page is of no cause in list.go")
	}
	return docs
}

// Doc returns the documentation of a cause, by its code as Lookup takes it.
func Doc(code string) (checks.Definition, bool) {
	d, ok := Lookup(code)
	if !ok {
		return checks.Definition{}, false
	}
	docs := Docs()
	return docs[slices.IndexFunc(docs, func(doc checks.Definition) bool { return doc.Code == d.Code })], true
}

// readPage reads NAME.md: YAML between two lines of dashes, then the text on what happens in the kubelet and the
// runtime.
func readPage(name string) (checks.Definition, error) {
	text, _ := pages.ReadFile(name) // as it was listed
	front, means, _ := strings.Cut(strings.TrimPrefix(string(text), "---\n"), "\n---\n")
	var page checks.Definition
	err := yaml.UnmarshalStrict([]byte(front), &page)
	page.Means = strings.TrimSpace(means)
	return page, err
}
