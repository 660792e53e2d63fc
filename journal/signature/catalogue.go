package signature

import (
	"cmp"
	"slices"
)

// Catalogue returns all signatures, sorted by lane and code.
func Catalogue() []Signature {
	entries := entries()
	out := make([]Signature, len(entries))
	for i, e := range entries {
		out[i] = e.Signature
	}
	return out
}

// entries returns the catalogue with its rules, sorted by lane and code.
func entries() []entry {
	all := slices.Concat(
		plegEntries(), callEntries(), objectCallEntries(), objectWorkEntries(), serviceEntries(), collectionEntries(), loopEntries(), nodeStatusEntries(), collectEntries(),
		startEntries(), apiEntries(), runtimeEntries(), runtimeObjectEntries(), shimEntries(), cniEntries(),
		kernelEntries(), storageEntries(), machineEntries(), unitEntries(), limitEntries(), hostEntries(),
	)
	for i := range all {
		all[i].Literals = literalsOf(all[i].forms)
	}
	slices.SortFunc(all, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.Lane, b.Lane), cmp.Compare(a.Code, b.Code))
	})
	return all
}

func literalsOf(forms []form) []string {
	var out []string
	for _, f := range forms {
		if !slices.Contains(out, f.has) {
			out = append(out, f.has)
		}
	}
	return out
}
