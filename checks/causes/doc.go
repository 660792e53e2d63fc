package causes

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kdiag/kdiag/checks"
)

//go:embed *.md
var pages embed.FS

// A page is the front matter of NAME.md. The text below it says what happens in the kubelet and the runtime.
type page struct {
	Code        string   `json:"code"`
	Title       string   `json:"title"`
	Order       int      `json:"order"` // its place in the list of causes
	Confirm     []string `json:"confirm"`
	Fix         []string `json:"fix"`
	MistakenFor string   `json:"mistakenFor"`
	Sources     []string `json:"sources"`
}

// Docs returns the documentation of every cause, in the order of All.
func Docs() []checks.Definition {
	var docs []checks.Definition
	for _, d := range All() {
		doc, _ := Doc(d.Code)
		docs = append(docs, doc)
	}
	return docs
}

// Doc returns the documentation of a cause, by its code as Lookup takes it. It panics where a page cannot be read, which a
// test excludes: the pages are part of the program.
func Doc(code string) (checks.Definition, bool) {
	d, ok := Lookup(code)
	if !ok {
		return checks.Definition{}, false
	}
	names, err := pages.ReadDir(".")
	if err != nil {
		panic(err)
	}
	for _, name := range names {
		text, err := pages.ReadFile(name.Name())
		if err != nil {
			panic(err)
		}
		if !strings.HasPrefix(string(text), "---\ncode: "+d.Code+"\n") {
			continue
		}
		doc, err := parsePage(string(text))
		if err != nil {
			panic(fmt.Errorf("reading %s: %w", name.Name(), err))
		}
		for _, other := range All() {
			if slices.ContainsFunc(other.Roots, func(r Root) bool { return r.Code == d.Code }) {
				doc.RootOf = append(doc.RootOf, other.Code)
			}
		}
		return doc, true
	}
	panic("the cause " + d.Code + " has no page")
}

// parsePage reads a page: YAML between two lines of dashes, then the text.
func parsePage(text string) (checks.Definition, error) {
	front, means, ok := strings.Cut(strings.TrimPrefix(text, "---\n"), "\n---\n")
	if !ok {
		return checks.Definition{}, fmt.Errorf("no front matter between lines of ---")
	}
	var p page
	if err := yaml.UnmarshalStrict([]byte(front), &p); err != nil {
		return checks.Definition{}, err
	}
	return checks.Definition{
		Code: p.Code, Title: p.Title, Means: strings.TrimSpace(means), Confirm: p.Confirm, Fix: p.Fix, Mistaken: p.MistakenFor, Sources: p.Sources,
	}, nil
}
