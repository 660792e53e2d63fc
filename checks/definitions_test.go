package checks

import (
	"regexp"
	"strings"
	"testing"
)

func TestDefinitionsAreComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range Definitions() {
		if seen[d.Code] {
			t.Errorf("%s is defined twice", d.Code)
		}
		seen[d.Code] = true
		for field, text := range map[string]string{"Title": d.Title, "Means": d.Means, "Mistaken": d.Mistaken} {
			if strings.TrimSpace(text) == "" {
				t.Errorf("%s has no %s", d.Code, field)
			}
		}
		for field, list := range map[string][]string{"Confirm": d.Confirm, "Fix": d.Fix, "Sources": d.Sources} {
			if len(list) < 2 {
				t.Errorf("%s has too little under %s", d.Code, field)
			}
		}
		if d.recognise == nil {
			t.Errorf("%s recognises nothing", d.Code)
		}
	}
	if len(seen) != 38 {
		t.Errorf("%d definitions, want 38", len(seen))
	}
}

func TestRootsExistWithoutCycle(t *testing.T) {
	var walk func(code string, path []string)
	walk = func(code string, path []string) {
		for _, p := range path {
			if p == code {
				t.Fatalf("cycle: %v", append(path, code))
			}
		}
		d, ok := Lookup(code)
		if !ok {
			t.Fatalf("%v leads to %q, which is not defined", path, code)
		}
		for _, next := range d.RootOf {
			walk(next, append(path, code))
		}
	}
	for _, d := range Definitions() {
		walk(d.Code, nil)
	}
}

func TestLookup(t *testing.T) {
	for _, name := range []string{"InspectHang", "inspecthang", "INSPECTHANG", "inspect-hang", " InspectHang "} {
		if d, ok := Lookup(name); !ok || d.Code != codeInspectHang {
			t.Errorf("Lookup(%q) = %q, %t", name, d.Code, ok)
		}
	}
	for _, name := range []string{"", "Inspect", "Inspect Hang"} {
		if d, ok := Lookup(name); ok {
			t.Errorf("Lookup(%q) = %q", name, d.Code)
		}
	}
}

func TestChecksAreComplete(t *testing.T) {
	id := regexp.MustCompile(`^[a-z]+\.[a-z]+$`)
	seen := map[string]bool{}
	for _, c := range Checks() {
		if seen[c.ID] || !id.MatchString(c.ID) || c.Title == "" || c.Text == "" || c.read == nil {
			t.Errorf("check %q is not complete, or there twice", c.ID)
		}
		seen[c.ID] = true
	}
	if len(seen) != 46 {
		t.Errorf("%d checks, want 46", len(seen))
	}
}
