package agent

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/journal"
)

var must, equal = testkit.Must, testkit.Equal

// lookedAt is when the looks of the tests were made.
var lookedAt = time.Date(2025, 3, 14, 3, 9, 26, 500e6, time.UTC)

// look gives the metrics a recorded node.
func look(t *testing.T, m *Metrics, folder string, tweaks ...func(*facts.Input)) *facts.Input {
	t.Helper()
	var in facts.Input
	must(t, json.Unmarshal([]byte(testkit.Read(t, folder+"/facts.json")), &in))
	for _, tweak := range tweaks {
		tweak(&in)
	}
	m.Record(judge.NewReport(checks.Header{GeneratedAt: lookedAt}, &in), &in, 120*time.Millisecond)
	return &in
}

// Recorded nodes.
const (
	healthy = "../judge/testdata/host_healthy"
	sick    = "../causes/testdata/inspect_hang"
)

// scrape returns what the handler serves, in a format that the client accepts.
func scrape(t *testing.T, m *Metrics, accept string) string {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.Header.Set("Accept", accept)
	r.Header.Set("Accept-Encoding", "gzip, zstd")
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, r)
	if enc := w.Header().Get("Content-Encoding"); w.Code != http.StatusOK || enc != "" {
		t.Fatalf("%d, encoding %q: %s", w.Code, enc, w.Body)
	}
	return w.Body.String()
}

// TestExposition compares what a healthy and a sick node show with goldens, which have no zeros, no buckets and no
// figures of this process. Their names, types and labels are fixed: others alert on them.
func TestExposition(t *testing.T) {
	for name, folder := range map[string]string{"healthy": healthy, "sick": sick} {
		m := NewMetrics("v1.2.3", false)
		in := look(t, m, folder)
		for _, c := range in.Measurement.Probes {
			m.Call(c)
		}
		for _, i := range in.Measurement.Sweep.Inspections {
			m.Call(i.Call)
		}
		m.Captured("InspectHang")
		var got strings.Builder
		for line := range strings.Lines(scrape(t, m, "text/plain")) {
			if !regexp.MustCompile(`^(# (HELP|TYPE) )?(kdiag|go|process)_`).MatchString(line) {
				t.Errorf("%s is of neither kdiag, the process nor the Go runtime", line)
			}
			if strings.Contains(line, "kdiag_") && !regexp.MustCompile(`_bucket| 0\n$`).MatchString(line) {
				got.WriteString(regexp.MustCompile(`go[0-9.]+[^"]*`).ReplaceAllString(line, "GO"))
			}
		}
		testkit.Golden(t, "testdata/"+name+".prom", got.String())
	}
}

// TestBeforeTheFirstLook wants all that is fixed to be there, and nothing that was not measured.
func TestBeforeTheFirstLook(t *testing.T) {
	text := scrape(t, NewMetrics("v1.2.3", false), "application/openmetrics-text")
	want := []string{
		`check_status{check="host.pressure"} 3.0`, `journal_records_total{signature="PLEGNotHealthy"} 0.0`,
		`rpc_hung_total{method="ContainerStatus"} 0.0`, `runs_total{result="unknown"} 0.0`,
		`status{status="healthy"} 0.0`, `status{status="unknown"} 1.0`,
	}
	for _, d := range causes.All() {
		want = append(want, `cause{code="`+d.Code+`",severity="critical"} 0.0`,
			`cause{code="`+d.Code+`",severity="warning"} 0.0`, `captures_total{cause="`+d.Code+`"} 0.0`)
	}
	for _, sample := range want {
		if !strings.Contains(text, "\nkdiag_"+sample+"\n") {
			t.Errorf("no kdiag_%s", sample)
		}
	}
	made := regexp.MustCompile(`(?m)^kdiag_(relist|pleg_|containers|sandboxes|list_|run_|last_).*`)
	equal(t, "though nothing was measured", "", made.FindString(text))
}

// TestCompact counts the series of compact metrics: fewer than 60, also where all causes are active at once.
func TestCompact(t *testing.T) {
	every := &checks.Report{}
	for _, d := range causes.All() {
		every.Causes = append(every.Causes, checks.Cause{Code: d.Code, Severity: checks.Critical, Confidence: 0.8})
	}
	m := NewMetrics("v1.2.3", true)
	look(t, m, sick)
	m.Captured("InspectHang")
	m.Record(every, &facts.Input{}, 0)
	text := scrape(t, m, "text/plain")
	series := regexp.MustCompile(`(?m)^[a-z].*`).FindAllString(text, -1)
	const one = "\nkdiag_cause{code=\"DiskFull\",severity=\"critical\"} 0.8\n"
	if others := len(series) - strings.Count(text, "\nkdiag_cause{"); len(series) >= 60 || others != 14 ||
		!strings.Contains(text, one) {
		t.Errorf("%d series, %d beside causes:\n%s", len(series), others, text)
	}
}

// values returns the samples whose name or labels begin so, without zeros.
func values(t *testing.T, m *Metrics, prefix string) string {
	t.Helper()
	var out []string
	for line := range strings.Lines(scrape(t, m, "text/plain")) {
		if sample, ok := strings.CutPrefix(line, prefix); ok && !strings.HasSuffix(line, " 0\n") {
			out = append(out, strings.TrimSpace(sample))
		}
	}
	return strings.Join(out, " ")
}

// TestRecords reads the last twenty minutes each half minute, of records in different rhythms, and wants each record to
// be counted once.
func TestRecords(t *testing.T) {
	for name, c := range map[string]struct {
		every, until time.Duration
		more         int64   // records at the same time
		inexact      float64 // what may be counted too many or too few
	}{
		"every five seconds":    {every: 5 * time.Second, until: 2 * time.Hour},
		"rare bursts":           {every: 25 * time.Minute, until: 2 * time.Hour, more: 9},
		"an hour, then no more": {every: 7 * time.Second, until: time.Hour, inexact: 2},
	} {
		m := NewMetrics("v1.2.3", false)
		m.countRecords(&journal.Report{Signatures: []journal.Count{{Code: "DiskFull", Count: 3}}}) // from before
		for passed := 30 * time.Second; passed <= 2*time.Hour; passed += 30 * time.Second {
			s := journal.Count{Code: "PLEGNotHealthy"}
			for d := c.every; d <= min(passed, c.until); d += c.every {
				if last := lookedAt.Add(d); d > passed-20*time.Minute {
					if s.Count, s.Last = s.Count+1+c.more, &last; s.First == nil {
						s.First = &last
					}
				}
			}
			m.countRecords(&journal.Report{Signatures: []journal.Count{s}[:min(s.Count, 1)]})
			m.countRecords(nil) // could not be read
		}
		got, want := 0.0, float64(int64(c.until/c.every)*(1+c.more))
		_, _ = fmt.Sscanf(values(t, m, "kdiag_journal_records_total"), `{signature="PLEGNotHealthy"} %g`, &got)
		if got < want-c.inexact || got > want+c.inexact {
			t.Errorf("%s: counted %g of %g records", name, got, want)
		}
	}
}
