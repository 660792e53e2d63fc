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

// A page is the front matter of NAME.md. The text below it explains what happens in the kubelet and the runtime.
type page struct {
	Code        string   `json:"code"`
	Title       string   `json:"title"`
	Order       int      `json:"order"` // its place in the list of causes
	Confirm     []string `json:"confirm"`
	Fix         []string `json:"fix"`
	MistakenFor string   `json:"mistakenFor"`
	Sources     []string `json:"sources"`
}

// Docs returns the documentation of every cause, in the order of All. It panics if a page is missing or cannot be read,
// which a test excludes: the pages are part of the program.
func Docs() []checks.Definition {
	files, err := pages.ReadDir(".")
	if err != nil {
		panic(err)
	}
	byCode := map[string]checks.Definition{}
	for _, file := range files {
		text, err := pages.ReadFile(file.Name())
		if err != nil {
			panic(err)
		}
		doc, err := parsePage(string(text))
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
			if slices.ContainsFunc(other.Roots, func(r Root) bool { return r.Code == d.Code }) {
				doc.RootOf = append(doc.RootOf, other.Code)
			}
		}
		docs = append(docs, doc)
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
		Code: p.Code, Title: p.Title, Means: strings.TrimSpace(means), Confirm: p.Confirm, Fix: p.Fix,
		Mistaken: p.MistakenFor, Sources: p.Sources,
	}, nil
}
