package signature

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
)

// naiveNext is what Next must agree with.
func naiveNext(literals []string, b []byte) int {
	first := -1
	for _, l := range literals {
		if i := bytes.Index(b, []byte(l)); i >= 0 && (first < 0 || i < first) {
			first = i
		}
	}
	return first
}

// naiveEach returns the literals that each must yield.
func naiveEach(literals []string, b []byte) map[int]bool {
	out := map[int]bool{}
	for i, l := range literals {
		if bytes.Contains(b, []byte(l)) {
			out[i] = true
		}
	}
	return out
}

func agree(t *testing.T, m *Matcher, b []byte) {
	t.Helper()
	if got, want := m.Next(b), naiveNext(m.filter.literals, b); got != want {
		t.Fatalf("Next(%q) = %d, want %d", b, got, want)
	}
	want := naiveEach(m.filter.literals, b)
	got := map[int]bool{}
	m.filter.each(b, func(literal, start int) {
		if !bytes.HasPrefix(b[start:], []byte(m.filter.literals[literal])) {
			t.Fatalf("literal %q is not at %d of %q", m.filter.literals[literal], start, b)
		}
		got[literal] = true
	})
	if len(got) != len(want) {
		t.Fatalf("%d literals in %q, want %d", len(got), b, len(want))
	}
	for l := range want {
		if !got[l] {
			t.Fatalf("literal %q in %q was missed", m.filter.literals[l], b)
		}
	}
}

// TestNextEveryLiteral tries each literal at each alignment, at the very beginning and the very end, and cut by one
// byte.
func TestNextEveryLiteral(t *testing.T) {
	m := NewMatcher()
	for _, l := range m.filter.literals {
		for pad := range 2 * stride {
			for _, tail := range []string{"", ".", strings.Repeat(".", pad)} {
				agree(t, m, []byte(strings.Repeat("-", pad)+l+tail))
			}
			agree(t, m, []byte(strings.Repeat("-", pad)+l[1:]))
			agree(t, m, []byte(strings.Repeat("-", pad)+l[:len(l)-1]))
		}
		agree(t, m, []byte(strings.Repeat("-", 200)+l))
	}
}

// TestNextRandom puts literals, cut ones too, between ordinary text.
func TestNextRandom(t *testing.T) {
	m := NewMatcher()
	r := rand.New(rand.NewPCG(3, 1))
	for range 3000 {
		var b []byte
		for range r.IntN(6) {
			switch r.IntN(3) {
			case 0:
				i := r.IntN(len(ordinary) - 100)
				b = append(b, ordinary[i:i+r.IntN(100)]...)
			case 1:
				b = append(b, m.filter.literals[r.IntN(len(m.filter.literals))]...)
			default:
				l := m.filter.literals[r.IntN(len(m.filter.literals))]
				b = append(b, l[r.IntN(len(l)):]...)
			}
		}
		agree(t, m, b)
	}
}

func FuzzNext(f *testing.F) {
	m := NewMatcher()
	f.Add(
		[]byte(
			"I0313 16:02:43.934473    1450 kubelet.go:1778] skipping pod synchronization - [PLEG is not healthy: pleg",
		),
	)
	f.Add([]byte("SyncLoop (PLEGSyncLoop (ADDSyncLoop ADD"))
	for _, l := range m.filter.literals[:20] {
		f.Add([]byte("abc" + l))
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

func BenchmarkMatch(b *testing.B) {
	m := NewMatcher()
	for name, line := range map[string]string{
		"skip": `"Skipping pod synchronization" err="[container runtime is down, PLEG is not healthy: ` +
			`pleg was last seen active 3m8.949760177s ago; threshold is 3m0s]"`,
		"list": `"ListContainers with filter from runtime service failed" ` +
			`err="rpc error: code = DeadlineExceeded desc = context deadline exceeded" filter=""`,
	} {
		b.Run(name, func(b *testing.B) {
			msg := []byte(line)
			var dst []Match
			b.ReportAllocs()
			for b.Loop() {
				dst = m.Match(msg, dst[:0])
			}
		})
	}
}
