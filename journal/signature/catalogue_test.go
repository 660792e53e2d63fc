package signature

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/internal/testkit"
)

// TestCatalogue checks each entry, and that its example matches it.
func TestCatalogue(t *testing.T) {
	page := testkit.Read(t, "../../docs/causes.md")
	markers := []Marker{"", Start, Stop, Restart, Error, Warning, Recovery}
	seen := map[string]bool{}
	m := NewMatcher()
	for _, s := range Catalogue() {
		if seen[s.Code] {
			t.Errorf("%s: twice", s.Code)
		}
		seen[s.Code] = true
		if !slices.Contains(markers, s.Marker) {
			t.Errorf("%s: marker %q", s.Code, s.Marker)
		}
		if !strings.HasSuffix(s.Means, ".") || strings.HasSuffix(s.Title, ".") || s.Title == "" || len(s.Title) > 60 ||
			len(s.Versions) < 4 || len(s.Sources) == 0 || len(s.Literals) == 0 {
			t.Errorf("a field is missing, or out of form: %+v", s)
		}
		for _, c := range s.Implies {
			if !strings.Contains(page, "\n## "+c+"\n") {
				t.Errorf("%s implies %s, which is not in docs/causes.md", s.Code, c)
			}
		}
		for _, l := range s.Literals {
			if len(l) < window {
				t.Errorf("%s: %q is shorter than %d bytes and would not be found", s.Code, l, window)
			}
		}
		if got := codes(m.Match([]byte(s.Example), nil)); !slices.Contains(got, s.Code) {
			t.Errorf("%s: its example matches %v", s.Code, got)
		}
	}
	if n := len(literalsOf(entries())); n > maxLiterals || len(seen) > maxEntries {
		t.Errorf("%d signatures, %d literals; room for %d and %d", len(seen), n, maxEntries, maxLiterals)
	}
}

// sampleOf builds the shortest record that a form describes with one of its texts.
func sampleOf(f form, text string) string {
	var b strings.Builder
	if len(f.Verbs) > 0 {
		b.WriteString(f.Verbs[0])
	}
	if f.OurUnit && len(f.Verbs) == 0 {
		b.WriteString("kubelet.service: ")
	}
	if len(f.RPCs) > 0 {
		b.WriteString(f.RPCs[0] + " ")
	}
	b.WriteString(text)
	for _, s := range f.And {
		b.WriteString(" " + s)
	}
	if len(f.Or) > 0 {
		b.WriteString(" " + f.Or[0])
	}
	return b.String()
}

func codes(matches []Match) []string {
	out := []string{}
	for _, m := range matches {
		out = append(out, m.Signature.Code)
	}
	return out
}

// TestEveryForm tries each text of each form of each signature, and each condition that rules it out.
func TestEveryForm(t *testing.T) {
	for _, e := range entries() {
		var others []string
		for _, s := range Catalogue() {
			if s.Code != e.Code {
				others = append(others, s.Code)
			}
		}
		m := NewMatcher(others...)
		for _, f := range e.Forms {
			for _, text := range f.Texts {
				sample := sampleOf(f, text)
				for _, record := range []string{sample, "Mar 05 10:11:12 n some[1]: " + sample, "x\n" + sample + "\n"} {
					if got := codes(m.Match([]byte(record), nil)); !cmp.Equal(got, []string{e.Code}) {
						t.Errorf("%s: %q matches %v", e.Code, record, got)
					}
				}
				var wrong []string
				for _, not := range f.Not {
					wrong = append(wrong, sample+" "+not)
				}
				if len(f.RPCs) > 0 {
					wrong = append(wrong, "GetContainerEvents "+text)
				}
				if f.OurUnit && len(f.Verbs) == 0 {
					wrong = append(wrong, strings.ReplaceAll(sample, "kubelet.service", "foo.service"))
				}
				for _, record := range wrong {
					if got := m.Match([]byte(record), nil); len(got) > 0 && !otherForm(e, f, record) {
						t.Errorf("%s: %q is ruled out, yet matches", e.Code, record)
					}
				}
			}
		}
	}
}

// otherForm reports whether the record contains a text of another form of the entry.
func otherForm(e entry, not form, record string) bool {
	return slices.ContainsFunc(e.Forms, func(f form) bool {
		return !cmp.Equal(f, not) &&
			slices.ContainsFunc(f.Texts, func(s string) bool { return strings.Contains(record, s) })
	})
}
