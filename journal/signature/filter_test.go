package signature

import (
	"bytes"
	"math/rand/v2"
	"regexp"
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

func TestNextShort(t *testing.T) {
	m := NewMatcher()
	for n := range 20 {
		if got := m.Next(make([]byte, n)); got != -1 {
			t.Errorf("Next of %d zeros = %d", n, got)
		}
	}
	if got, want := m.Longest(), longest(m.filter.literals); got != want {
		t.Errorf("Longest() = %d, want %d", got, want)
	}
}

func longest(literals []string) int {
	n := 0
	for _, l := range literals {
		n = max(n, len(l))
	}
	return n
}

func FuzzNext(f *testing.F) {
	m := NewMatcher()
	f.Add([]byte("I0313 16:02:43.934473    1450 kubelet.go:1778] skipping pod synchronization - [PLEG is not healthy: pleg"))
	f.Add([]byte("SyncLoop (PLEGSyncLoop (ADDSyncLoop ADD"))
	for _, l := range m.filter.literals[:20] {
		f.Add([]byte("abc" + l))
	}
	f.Fuzz(func(t *testing.T, b []byte) { agree(t, m, b) })
}

// quiet returns about a megabyte of klog and containerd lines that match nothing.
func quiet(m *Matcher) []byte {
	var lines []string
	for _, l := range strings.Split(ordinary, "\n") {
		if m.Next([]byte(l)) < 0 {
			lines = append(lines, l)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	var b []byte
	for len(b) < 1<<20 {
		b = append(b, lines[r.IntN(len(lines))]...)
		// An id, as most lines have: it differs each time.
		for range 4 {
			const hex = "0123456789abcdef"
			for x, i := r.Uint64(), 0; i < 16; x, i = x>>4, i+1 {
				b = append(b, hex[x&15])
			}
		}
		b = append(b, '\n')
	}
	return b
}

func BenchmarkNext(b *testing.B) {
	m := NewMatcher()
	text := quiet(m)
	run := func(name string, search func() bool) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if search() {
					b.Fatal("found something")
				}
			}
		})
	}
	run("matcher", func() bool { return m.Next(text) >= 0 })
	one := []byte("PLEG is not healthy")
	run("index-of-one", func() bool { return bytes.Contains(text, one) })
	run("contains-each", func() bool { return naiveNext(m.filter.literals, text) >= 0 })
	quoted := make([]string, len(m.filter.literals))
	for i, l := range m.filter.literals {
		quoted[i] = regexp.QuoteMeta(l)
	}
	re := regexp.MustCompile(strings.Join(quoted, "|"))
	run("regexp", func() bool { return re.Match(text) })
}

func BenchmarkMatch(b *testing.B) {
	m := NewMatcher()
	for name, line := range map[string]string{
		"skip":     `"Skipping pod synchronization" err="[container runtime is down, PLEG is not healthy: pleg was last seen active 3m8.949760177s ago; threshold is 3m0s]"`,
		"loop":     `"SyncLoop (PLEG): event for pod" pod="payments/nginx-f9fa1b1bf1-a17a4" event={"ID":"736a947a-843f-dda7-b1ee-daffcc3d5506","Type":"ContainerDied","Data":"13cedb3b58d51a050a807a9092f233a4ae634acc24adef7dc51d7956e60b483d"}`,
		"notfound": `"ContainerStatus from runtime service failed" err="rpc error: code = NotFound desc = an error occurred when try to find container \"85ae90d06912432f6422f07a54d90c6b5a9c3c598c364db59cf32be4f58110cb\": not found" containerID="85ae90d06912432f6422f07a54d90c6b5a9c3c598c364db59cf32be4f58110cb"`,
		"backoff":  `"Error syncing pod, skipping" err="failed to \"StartContainer\" for \"api\" with CrashLoopBackOff: \"back-off 5m0s restarting failed container=api pod=api-1_web(df559f01-6684-4a3c-8bd1-d93bed4dda3b)\"" pod="web/api-1" podUID="df559f01-6684-4a3c-8bd1-d93bed4dda3b"`,
		"list":     `"ListContainers with filter from runtime service failed" err="rpc error: code = DeadlineExceeded desc = context deadline exceeded" filter=""`,
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
