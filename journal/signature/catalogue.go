package signature

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// catalogueJSON has the signatures of each lane. make generate writes it from the files in catalogue.
//
//go:embed catalogue.json
var catalogueJSON []byte

// An entry is a signature with the rules by which records match it.
type entry struct {
	Signature
	Texts []string // literals of which each suffices
	Forms []form   // literals with conditions
	Reads []string // names of readers

	reads uint // bit i is set if the i-th reader is to be called
}

// A form is one wording. A record matches it if it contains one of Texts and meets all other conditions.
type form struct {
	Texts   []string
	And     []string // all of these too
	Or      []string // at least one of these too, if there are any
	Not     []string // none of these
	RPCs    []string // the CRI call that the record names is one of these, if there are any
	OurUnit bool     // the systemd unit that the record names is a kubelet or a runtime
	// Verbs are the words that systemd writes before the name or description of a unit, such as "Started ". With Verbs,
	// Texts are the names of all kubelets and runtimes.
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
	all, err := parseCatalogue(catalogueJSON)
	if err != nil {
		panic("catalogue.json: " + err.Error()) // it is part of the program
	}
	return all
})

// parseCatalogue reads the entries of all lanes.
func parseCatalogue(text []byte) ([]entry, error) {
	var lanes map[Lane][]entry
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&lanes); err != nil {
		return nil, err
	}
	var all []entry
	for lane, list := range lanes {
		for _, e := range list {
			e.Lane = lane
			all = append(all, e)
		}
	}
	for i := range all {
		e := &all[i]
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
				return nil, fmt.Errorf("%s reads %q, which is not a reader", e.Code, name)
			}
			e.reads |= 1 << n
		}
	}
	slices.SortFunc(all, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.Lane, b.Lane), strings.Compare(a.Code, b.Code))
	})
	return all, nil
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
