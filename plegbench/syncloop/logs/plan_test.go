package logs

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMakePlan(t *testing.T) {
	const a, b, c, d = "0.log.20260901-120000", "0.log.20260901-120010", "0.log.20260901-120020", "0.log.20260901-120030"
	for _, tt := range []struct {
		name  string
		files []string
		most  int
		want  plan
	}{
		{"first rotation", nil, 5, plan{}},
		{"second", []string{a}, 5, plan{compress: []string{a}}},
		{"full", []string{c, a + ".gz", b + ".gz"}, 5, plan{compress: []string{c}}},
		{"one too many, in any order", []string{d, b + ".gz", c + ".gz", a + ".gz"}, 5, plan{remove: []string{a + ".gz"}, compress: []string{d}}},
		{"fewer wanted than before", []string{a + ".gz", b + ".gz", c + ".gz", d}, 3, plan{remove: []string{a + ".gz", b + ".gz", c + ".gz"}, compress: []string{d}}},
		{"two", []string{a}, 2, plan{remove: []string{a}}},
		{"cut off while it wrote", []string{a, a + ".tmp"}, 5, plan{remove: []string{a + ".tmp"}, compress: []string{a}}},
		{"cut off before it removed", []string{a, a + ".gz", b}, 5, plan{remove: []string{a}, compress: []string{b}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, makePlan(tt.files, tt.most), cmp.AllowUnexported(plan{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// FuzzMakePlan: whatever is in the folder, nothing is named twice or made up, and room is made.
func FuzzMakePlan(f *testing.F) {
	f.Add("0.log.1\n0.log.1.gz\n0.log.2.tmp", 5)
	f.Add("a\nb\nc\nd\ne\nf", 2)
	f.Add("x.gz\nx.gz.gz\n.tmp", 3)
	f.Fuzz(func(t *testing.T, text string, most int) {
		names := slices.Compact(slices.Sorted(strings.SplitSeq(text, "\n")))
		p := makePlan(names, most)
		touched := slices.Sorted(slices.Values(slices.Concat(p.remove, p.compress)))
		for i, name := range touched {
			if _, there := slices.BinarySearch(names, name); !there || i > 0 && touched[i-1] == name {
				t.Errorf("%q is touched twice, or not there", name)
			}
		}
		if left := len(names) - len(p.remove); left > max(0, most-2) {
			t.Errorf("of %d files %d are left; %d may be with the two new ones", len(names), left, most)
		}
	})
}
