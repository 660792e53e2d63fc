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

// TestHugeRecords would not come to an end if the work grew with the square of a record.
func TestHugeRecords(t *testing.T) {
	m := NewMatcher()
	for _, word := range []string{
		"kubelet.service ", "Started kubelet.service", "from runtime service failed ", "Exec ", "failed\" error=", "(", "a_b(", `\"`, `err="`, "pod=", "0a0a0a0a0a0a ", "/", "/a ", ", ", "container runtime is down ",
		"PLEG is not healthy, ", "last seen active 3", "code = 4 desc = ", " blocked for more than ", "nfs: server ", "ut of memory: Kill", "no space left on device",
	} {
		record := "PLEG is not healthy: Main process exited, code=1 no space left on device " + strings.Repeat(
			word,
			2<<20/len(word),
		)
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
			if h.Age < 0 || h.Threshold < 0 || h.PID < 0 || h.Seconds < 0 || h.Size < 0 || h.Limit < 0 ||
				h.HasAge && h.Never {
				t.Fatalf("%+v", h)
			}
			if len(h.Reasons) > maxReasons || len(h.ErrorText) > maxError || len(h.Pod) > maxName ||
				len(h.Unit) > maxName ||
				len(h.Path) > maxName {
				t.Fatalf("unbounded: %+v", h)
			}
		}
		if bytes.Contains(b, []byte("PLEG is not healthy")) != seen[PLEGNotHealthy] && !own(string(b)) {
			t.Fatalf("%q: %v", b, codes(hits))
		}
	})
}

func TestCertificateOwner(t *testing.T) {
	for _, tt := range []struct {
		record string
		want   Party
		no     bool // not about an expired certificate of the way to the API server
	}{
		{record: `"Failed to watch" err="Get \"https://10.0.0.1:6443/api/v1/nodes\": remote error: tls: expired certificate"`, want: KubeletParty},
		{record: `"part of the existing bootstrap client certificate in /etc/kubernetes/kubelet.conf is expired: 2026-11-19 00:00:00 +0000 UTC"`, want: KubeletParty},
		{record: `Get "https://10.0.0.1:6443/api/v1/nodes/n1": tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time`, want: APIServer},
		{record: `Get "https://api.example.org/apis/coordination.k8s.io/v1": x509: certificate has expired or is not yet valid`, want: APIServer},
		{record: `Failed to pull image: Get "https://registry.example.org/v2/": x509: certificate has expired or is not yet valid`},
		{record: `http: TLS handshake error from 10.0.0.7:4711: remote error: tls: expired certificate`, no: true},
		{record: `"Loaded the existing bootstrap client certificate"`, no: true},
	} {
		found := false
		for _, h := range NewMatcher().Match([]byte(tt.record), nil) {
			if h.Signature.Code != CertificateExpired {
				continue
			}
			found = true
			if h.Owner != tt.want {
				t.Errorf("%s\nis of %q, want %q", tt.record, h.Owner, tt.want)
			}
		}
		if found == tt.no {
			t.Errorf("%s\nfound: %v", tt.record, found)
		}
	}
}
