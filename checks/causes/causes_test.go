package causes

import (
	"slices"
	"strings"
	"testing"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/internal/testkit"
)

// TestRemedies looks at each cause: it has an action without a condition, which is the last, and a reason for each.
func TestRemedies(t *testing.T) {
	for _, d := range All() {
		all := remedies[d.Code]
		for i, r := range all {
			last := i == len(all)-1
			if (len(r.when) == 0) != last || !slices.Contains(checks.Actions(), r.Action) || r.Why == "" {
				t.Errorf("%s: %+v", d.Code, r.Remedy)
			}
		}
		if len(all) == 0 {
			t.Errorf("%s has no action", d.Code)
		}
	}
	testkit.Equal(t, "causes that have actions", len(All()), len(remedies))
}

func TestPages(t *testing.T) {
	var areas []string // in the order of the list, each in one piece
	for _, doc := range Docs() {
		if len(areas) == 0 || areas[len(areas)-1] != doc.Area {
			areas = append(areas, doc.Area)
		}
	}
	if want := []string{"Runtime", "Pods and containers", "Kubelet", "Host"}; !slices.Equal(areas, want) {
		t.Errorf("the areas of the pages are %q, want %q", areas, want)
	}
	for _, d := range All() {
		if doc, ok := Doc(d.Code); !ok || doc.Title == "" || doc.Means == "" || len(doc.Confirm) == 0 ||
			len(doc.Fix) == 0 || doc.Mistaken == "" || len(doc.Sources) == 0 {
			t.Errorf("the page of %s is not whole: %+v", d.Code, doc)
		}
	}
}

// isCause reports whether a code is that of a cause, as it is written there.
func isCause(code string) bool {
	return slices.ContainsFunc(All(), func(d Definition) bool { return d.Code == code })
}

// TestRelations checks that every code in the relations is that of a cause, that no cause explains another by two of
// them, of which the judge would take the first, and that they hold no cycle: the judge follows them from root to
// root.
func TestRelations(t *testing.T) {
	for _, d := range All() {
		for _, r := range d.Hidden {
			if !isCause(r.Code) {
				t.Errorf("%s hides %s, and is no cause", r.Code, d.Code)
			}
		}
	}
	explained := map[[2]string]bool{}
	for _, r := range relations {
		for _, root := range r.roots {
			for _, code := range r.explains {
				pair := [2]string{root, code}
				if !isCause(root) || !isCause(code) || explained[pair] {
					t.Errorf("%s explains %s: both must be causes, and that only once", root, code)
				}
				explained[pair] = true
			}
		}
	}
	done := map[string]bool{}
	var follow func(d Definition, path []string)
	follow = func(d Definition, path []string) {
		if slices.Contains(path, d.Code) {
			t.Fatalf("a cycle: %s", strings.Join(append(path, d.Code), " < "))
		}
		if done[d.Code] {
			return
		}
		for _, r := range d.Roots() {
			next, _ := Lookup(r.Code)
			follow(next, append(path, d.Code))
		}
		done[d.Code] = true
	}
	for _, d := range All() {
		follow(d, nil)
	}
}
