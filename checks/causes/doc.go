package causes

import (
	"embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kdiag/kdiag/checks"
)

//go:embed *.md
var pages embed.FS

// Docs returns the documentation of every cause, in the order of All. It panics if a page is missing or cannot be read,
// which a test excludes: the pages are part of the program.
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
	text, err := pages.ReadFile(name)
	front, means, ok := strings.Cut(strings.TrimPrefix(string(text), "---\n"), "\n---\n")
	if err == nil && !ok {
		err = errors.New("no front matter between lines of ---")
	}
	var page struct {
		checks.Definition
		Order int `json:"order"` // its place in list.go
	}
	if err == nil {
		err = yaml.UnmarshalStrict([]byte(front), &page)
	}
	page.Means = strings.TrimSpace(means)
	return page.Definition, err
}
