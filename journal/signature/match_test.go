package signature

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/internal/testkit"
)

// testLines returns the lines of a file of testdata that are not comments.
func testLines(t testing.TB, name string) []string {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(testkit.Read(t, "testdata/"+name), "\n"), "\n")
	return slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "#") })
}

// TestLines checks testdata/lines.txt: each record bare and behind prefixes of transports.
func TestLines(t *testing.T) {
	m := NewMatcher()
	for _, line := range testLines(t, "lines.txt") {
		wanted, record, _ := strings.Cut(line, "\t")
		want := append([]string{}, strings.Fields(strings.TrimPrefix(wanted, "-"))...)
		slices.Sort(want)
		for _, prefix := range []string{"", "2026-03-05T10:11:12.123456789Z stderr F ", "Mar 05 10:11:12 n some[1]: "} {
			if prefix != "" && (strings.HasPrefix(record, "kdiag") || strings.Contains(record, "kdiag[")) {
				continue // quoted in another program's line it counts
			}
			got := codes(m.Match([]byte(prefix+record), nil))
			slices.Sort(got)
			testkit.Equal(t, prefix+record, want, got)
		}
	}
}

// facts words the facts of a match.
func facts(m Match) string {
	var out []string
	v := reflect.ValueOf(m)
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Name
		switch {
		case f.IsZero() || name == "Signature":
		case f.Kind() == reflect.String || f.Kind() == reflect.Slice:
			out = append(out, fmt.Sprintf("%s=%q", name, f.Interface()))
		default:
			out = append(out, fmt.Sprintf("%s=%v", name, f.Interface()))
		}
	}
	if len(out) == 0 {
		return "-"
	}
	return strings.Join(out, " ")
}

// TestFacts checks testdata/facts.txt.
func TestFacts(t *testing.T) {
	lines := testLines(t, "facts.txt")
	for i := 0; i+1 < len(lines); i += 2 {
		got := "no match"
		if hits := NewMatcher().Match([]byte(lines[i]), nil); len(hits) > 0 {
			got = facts(hits[0])
		}
		testkit.Equal(t, lines[i], strings.TrimPrefix(lines[i+1], "\t"), got)
	}
}

// TestHugeRecords would not come to an end if the work grew with the square of a record.
func TestHugeRecords(t *testing.T) {
	m := NewMatcher()
	for _, word := range []string{
		"kubelet.service ", "Started kubelet.service", "from runtime service failed ", "Exec ", "failed\" error=",
		"(", "a_b(",
		`\"`, `err="`, "pod=", "0a0a0a0a0a0a ", "/", "/a ", ", ", "container runtime is down ", "PLEG is not healthy, ",
		"last seen active 3", "code = 4 desc = ", " blocked for more than ", "nfs: server ", "ut of memory: Kill",
		"no space left on device",
	} {
		record := "PLEG is not healthy: Main process exited, code=1 no space left on device " +
			strings.Repeat(word, 2<<20/len(word))
		if hits := m.Match([]byte(record), nil); !slices.Contains(codes(hits), PLEGNotHealthy) {
			t.Errorf("a record full of %q lost its signature", word)
		}
	}
}

func FuzzMatch(f *testing.F) {
	for _, line := range testLines(f, "lines.txt") {
		_, record, _ := strings.Cut(line, "\t")
		f.Add([]byte(record))
	}
	m := NewMatcher()
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		hits := m.Match(b, nil)
		if !bytes.Equal(b, before) {
			t.Fatal("the record was changed")
		}
		read := m.Match(before, nil)
		clear(before)
		if diff := cmp.Diff(hits, read); diff != "" {
			t.Fatalf("the facts changed with the record:\n%s", diff)
		}
		if len(hits) > 0 && m.Next(b) < 0 {
			t.Fatalf("%v, but the filter would not have shown the record", codes(hits))
		}
		seen := map[string]bool{}
		for _, h := range hits {
			if seen[h.Signature.Code] {
				t.Fatalf("%s twice", h.Signature.Code)
			}
			seen[h.Signature.Code] = true
			if h.Age < 0 || h.Threshold < 0 || h.PID < 0 || h.Seconds < 0 || h.Size < 0 || h.Limit < 0 ||
				h.HasAge && h.Never || len(h.Reasons) > maxReasons || len(h.ErrorText) > maxError ||
				len(h.Pod) > maxName || len(h.Unit) > maxName || len(h.Path) > maxName {
				t.Fatalf("negative, contradictory or unbounded: %+v", h)
			}
		}
		if bytes.Contains(b, []byte("PLEG is not healthy")) != seen[PLEGNotHealthy] && !own(string(b)) {
			t.Fatalf("%q: %v", b, codes(hits))
		}
	})
}
