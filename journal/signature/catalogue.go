package signature

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

// catalogueFiles hold the signatures, one file for each lane.
//
//go:embed catalogue/*.yaml
var catalogueFiles embed.FS

// An entry is a signature with the rules by which records match it.
type entry struct {
	Signature `yaml:",inline"`
	Texts     []string // literals of which each suffices
	Forms     []form   // literals with conditions
	Reads     []string // names of readers

	reads uint // bit i is set if the i-th reader is to be called
}

// A form is one wording. A record matches it if it contains one of Texts and meets all other conditions.
type form struct {
	Texts   []string
	And     []string // all of these too
	Or      []string // at least one of these too, if there are any
	Not     []string // none of these
	RPCs    []string // the CRI call that the record names is one of these, if there are any
	OurUnit bool     `yaml:"ourUnit"` // the systemd unit that the record names is a kubelet or a runtime
	// Verbs are what systemd writes before the name or description of a unit, such as "Started ". With Verbs, Texts are
	// the names of all kubelets and runtimes.
	Verbs []string
}

// Catalogue returns all signatures, sorted by lane and code. They are shared: do not change them.
func Catalogue() []Signature {
	var out []Signature
	for _, e := range entries() {
		out = append(out, e.Signature)
	}
	return out
}

// entries returns the catalogue with its rules, sorted by lane and code.
var entries = sync.OnceValue(func() []entry {
	var all []entry
	for _, lane := range []Lane{Kernel, Kubelet, Node, Runtime} {
		list, err := parseCatalogue(lane)
		if err != nil {
			panic(fmt.Sprintf("catalogue of the %s lane: %v", lane, err)) // the files are part of the program
		}
		all = append(all, list...)
	}
	return all
})

// parseCatalogue reads the entries of one lane.
func parseCatalogue(lane Lane) ([]entry, error) {
	b, err := catalogueFiles.ReadFile("catalogue/" + string(lane) + ".yaml")
	if err != nil {
		return nil, err
	}
	var file struct {
		Lists      map[string][]string // for anchors
		Signatures []entry
	}
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	if err := dec.Decode(&file); err != nil {
		return nil, err
	}
	for i := range file.Signatures {
		e := &file.Signatures[i]
		e.Lane = lane
		if len(e.Texts) > 0 {
			e.Forms = append(e.Forms, form{Texts: e.Texts})
		}
		for j := range e.Forms {
			f := &e.Forms[j]
			if len(f.Verbs) > 0 {
				f.Texts, f.OurUnit = longUnitNames(), true
			}
			e.Literals = append(e.Literals, f.Texts...)
		}
		slices.Sort(e.Literals)
		e.Literals = slices.Compact(e.Literals)
		for _, name := range e.Reads {
			n := slices.IndexFunc(readers, func(r reader) bool { return r.name == name })
			if n < 0 {
				return nil, fmt.Errorf("%s reads %q, which is no reader", e.Code, name)
			}
			e.reads |= 1 << n
		}
	}
	slices.SortFunc(file.Signatures, func(a, b entry) int { return strings.Compare(a.Code, b.Code) })
	return file.Signatures, nil
}

// literalsOf returns the literals of all entries, each once. Equal catalogues have equal lists.
func literalsOf(all []entry) []string {
	var out []string
	for _, e := range all {
		out = append(out, e.Literals...)
	}
	slices.SortFunc(out, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)) })
	return slices.Compact(out)
}
