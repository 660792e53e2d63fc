package signature

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLines checks testdata/lines.txt: each record bare and behind prefixes of transports.
func TestLines(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "lines.txt"))
	if err != nil {
		t.Fatal(err)
	}
	m := NewMatcher()
	for n, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		codesOf, record, ok := strings.Cut(line, "\t")
		if !ok {
			t.Fatalf("line %d has no tab", n+1)
		}
		want := []string{}
		if codesOf != "-" {
			want = strings.Fields(codesOf)
		}
		slices.Sort(want)
		for _, prefix := range []string{"", "2026-03-05T10:11:12.123456789Z stderr F ", "Mar 05 10:11:12 node-07 some[1432]: "} {
			if prefix != "" && (strings.HasPrefix(record, "kdiag") || strings.Contains(record, "kdiag[")) {
				continue // quoted in another program's line it counts
			}
			got := codes(m.Match([]byte(prefix+record), nil))
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("line %d with prefix %q (-want +got)\n%s\n%s", n+1, prefix, record, diff)
			}
		}
	}
}

// TestMatchAppends wants hits behind those that are there.
func TestMatchAppends(t *testing.T) {
	m := NewMatcher()
	dst := m.Match([]byte("container runtime is down"), nil)
	dst = m.Match([]byte("nothing"), dst)
	dst = m.Match([]byte("Stop CRI service"), dst)
	if diff := cmp.Diff([]string{RuntimeIsDown, RuntimeStopped}, codes(dst)); diff != "" {
		t.Error(diff)
	}
}

// TestHugeRecords would not come to an end if the work grew with the square of a record.
func TestHugeRecords(t *testing.T) {
	m := NewMatcher()
	for _, word := range []string{
		"kubelet.service ", "Started kubelet.service", "from runtime service failed ", "Exec ", "failed\" error=", "(", "a_b(", `\"`, `err="`, "pod=", "0a0a0a0a0a0a ", "/", "/a ", ", ", "container runtime is down ",
		"PLEG is not healthy, ", "last seen active 3", "code = 4 desc = ", " blocked for more than ", "nfs: server ", "ut of memory: Kill", "no space left on device",
	} {
		record := "PLEG is not healthy: Main process exited, code=1 no space left on device " + strings.Repeat(word, 2<<20/len(word))
		if hits := m.Match([]byte(record), nil); !slices.Contains(codes(hits), PLEGNotHealthy) {
			t.Errorf("a record full of %q lost its signature", word)
		}
	}
}

func FuzzMatch(f *testing.F) {
	text, err := os.ReadFile(filepath.Join("testdata", "lines.txt"))
	if err != nil {
		f.Fatal(err)
	}
	for _, line := range strings.Split(string(text), "\n") {
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
		if len(hits) > 0 && m.Next(b) < 0 {
			t.Fatalf("%v, but the filter would not have shown the record", codes(hits))
		}
		seen := map[string]bool{}
		for _, h := range hits {
			if seen[h.Signature.Code] {
				t.Fatalf("%s twice", h.Signature.Code)
			}
			seen[h.Signature.Code] = true
			if h.Age < 0 || h.Threshold < 0 || h.PID < 0 || h.Seconds < 0 || h.Size < 0 || h.Limit < 0 || h.HasAge && h.Never {
				t.Fatalf("%+v", h)
			}
			if len(h.Reasons) > maxReasons || len(h.ErrorText) > maxError || len(h.Pod) > maxName || len(h.Unit) > maxName || len(h.Path) > maxName {
				t.Fatalf("unbounded: %+v", h)
			}
		}
		if bytes.Contains(b, []byte("PLEG is not healthy")) != seen[PLEGNotHealthy] && !own(string(b)) {
			t.Fatalf("%q: %v", b, codes(hits))
		}
	})
}
