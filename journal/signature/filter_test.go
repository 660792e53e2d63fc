package signature

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// agree compares a matcher's search of b with one for each literal.
func agree(t *testing.T, m *Matcher, b []byte) {
	t.Helper()
	first, want, got := -1, map[string]bool{}, map[string]bool{}
	for _, l := range m.filter.literals {
		if i := bytes.Index(b, []byte(l)); i >= 0 {
			if want[l] = true; first < 0 || i < first {
				first = i
			}
		}
	}
	m.filter.each(b, m.filter.possible(b, 0), func(literal, start int) {
		l := m.filter.literals[literal]
		got[l] = bytes.HasPrefix(b[start:], []byte(l))
	})
	if diff := cmp.Diff(want, got); diff != "" || m.Next(b) != first {
		t.Fatalf("%q: the first at %d, want %d; literals: %s", b, m.Next(b), first, diff)
	}
}

// FuzzNext has a seed for each literal, behind ordinary text that ends at any alignment and before another literal.
func FuzzNext(f *testing.F) {
	m := NewMatcher()
	f.Add([]byte("I0313 16:02:43.934473    1450 kubelet.go:1778] skipping pod - [PLEG is not healthy: pleg"))
	f.Add([]byte("SyncLoop (PLEGSyncLoop (ADDSyncLoop ADD"))
	for i, l := range m.filter.literals {
		other := m.filter.literals[(i*31+7)%len(m.filter.literals)]
		f.Add([]byte(ordinary[i*9:i*10] + l + other[i%3:]))
	}
	f.Fuzz(func(t *testing.T, b []byte) { agree(t, m, b) })
}

func BenchmarkNext(b *testing.B) {
	m := NewMatcher()
	var text []byte // what matches nothing
	for len(text) < 1<<20 {
		for line := range strings.Lines(ordinary) {
			if m.Next([]byte(line)) < 0 {
				text = append(text, line...)
			}
		}
	}
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if m.Next(text) >= 0 {
			b.Fatal("found something")
		}
	}
}
