package render

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/crictl/gc"
	"github.com/kdiag/kdiag/plegbench"
)

// hostile puts a string and a number into every place of a report that a runtime or a host may fill.
func hostile(s string, v float64, n int) (*checks.Report, *checks.RuntimeProbe, *checks.RelistBenchmark) {
	h := checks.Header{APIVersion: checks.APIVersion, Kind: "Report", Host: s, KdiagVersion: s}
	rt := checks.Runtime{Endpoint: s, EndpointSource: s, EndpointReason: s, Name: s, Version: s, APIVersion: s}
	process := checks.Process{PID: n, Name: s, Role: s, State: s, Wchan: s, Age: s}
	subject := checks.Subject{
		Kind: "Container", ID: s, Name: s, Namespace: s, Pod: s, PodUID: s, Processes: []checks.Process{process},
	}
	cause := checks.Cause{
		Code: s, Severity: checks.Severity(s), Confidence: v, Summary: s, Subject: &subject,
		Evidence:  checks.Evidence{For: []string{s}, Against: []string{s}, Missing: []string{s}},
		Related:   []checks.Subject{subject, {Kind: s, ID: s}},
		NextSteps: []checks.NextStep{{Why: s, Command: s, Touches: s}},
	}
	consequence := cause
	consequence.CausedBy = s
	causes := []checks.Cause{cause, consequence}
	le := v
	sum := &plegbench.Summary{
		ThresholdSeconds: v, ProjectedSeconds: &v, ChurnSeconds: &v, ColdSeconds: &v, ProjectedAgeSeconds: &v,
		List: &plegbench.ListSummary{Samples: n, P50Seconds: &v, P99Seconds: &v, MaxSeconds: &v, Errors: n},
		Sweep: &plegbench.SweepSummary{
			Inspected: n, Total: n + 1, Hung: n, P50Seconds: &v, SlowestID: s, Reach: s,
			Histogram: []plegbench.Bucket{{LeSeconds: &le, Count: n}, {Count: n}},
		},
		ResponseRPC: s, ResponseBytes: &n, ResponseLimitBytes: n, BytesPerContainer: &v, ContainersAtLimit: &n,
		Sandboxes: &plegbench.SandboxCounts{Ready: n}, Containers: &plegbench.ContainerCounts{Exited: n, Unknown: n},
	}
	results := []checks.Result{{ID: s, Status: checks.Status(s), Summary: s, DurationSeconds: &v}}
	verdict := checks.Unhealthy
	report := &checks.Report{
		Header: h, Runtime: rt, Status: verdict, Causes: causes, Relist: sum, Checks: results, Problems: []string{s, s},
	}
	probe := &checks.RuntimeProbe{
		Header: h, Runtime: rt, Status: verdict, Causes: causes[1:], Problems: []string{s},
		Connect:    checks.ConnectInfo{State: s, Seconds: v, Error: s, Peer: &process},
		Conditions: []checks.Condition{{Type: s, Reason: s, Message: s}},
		RPCs:       []checks.RPC{{Name: s, Seconds: v, Code: s, Error: s, Bytes: &n, Items: &n}},
	}
	bench := &checks.RelistBenchmark{
		Header: h, Runtime: rt, Status: checks.Verdict(s), Causes: causes[:0], Relist: sum, Problems: []string{s},
		RPCs:     []plegbench.RPCSummary{{Name: s, Count: n, P50Seconds: &v}},
		Samples:  []checks.RelistSample{{Seconds: v}, {At: time.Unix(int64(n%1e9), 0).UTC(), Seconds: v, Error: s}},
		Forecast: plegbench.Forecast{BytesPerContainer: &v, ContainersAtLimit: &n, SecondsToLimit: &v},
	}
	return report, probe, bench
}

func hostileCensus(r *checks.Report, v float64, n int) *ExitedCensus {
	s := r.Host
	c := &gc.Census{
		Total: n, Sandboxes: n,
		ByPod:       []gc.PodCount{{Namespace: s, Pod: s, Container: s, Count: n, LastReason: s, LastExitCode: new(int32)}},
		ByNamespace: []gc.NamespaceCount{{Namespace: s, Count: n}}, ByReason: []gc.ReasonCount{{Reason: s, Count: n}},
		ByAge: []gc.AgeCount{{UpToSeconds: v, Count: n}},
		Bytes: int64(n), ListBytes: int64(n), LimitBytes: 16 << 20,
		Growth: &gc.Growth{Seconds: v, Containers: n, SecondsToLimit: &v},
	}
	return &ExitedCensus{
		Header: r.Header, Runtime: r.Runtime, Status: checks.Unhealthy, Census: c, Missing: []string{s},
		Problems: []string{s}, Next: s,
	}
}

func hostileGC(r *checks.Report, n int) *GCReport {
	s := r.Host
	g := &GCReport{Header: r.Header, Runtime: r.Runtime, Notes: []string{s}, Missing: []string{s}}
	g.DryRun, g.Stopped, g.Left = n%2 == 0, s, n
	g.Plan.Remove = []gc.Candidate{{Namespace: s, Pod: s, Container: s}}
	g.Plan.KeptBy, g.Plan.Newest = []gc.Kept{{Why: s, Count: n}}, n
	g.Skipped, g.Failed = []gc.Skipped{{ID: s, Why: s}}, []gc.Failed{{ID: s, Error: s}}
	return g
}

// FuzzHostile checks that, whatever a runtime says, text fits and nothing that a terminal acts on is printed, brief is
// one line of at most 80 columns, and JSON loses nothing.
func FuzzHostile(f *testing.F) {
	f.Add("payments/ledger-db-0", 0.5, 20000, 80)
	f.Add("\x1b]0;title\x07\x9b31m\u009b\u202e\u2066", 1e300, -1, 40)
	f.Add(strings.Repeat("a", 300)+"\n"+strings.Repeat("検", 60), 0.0, 0, 61)
	f.Add("\xff\xfe\u00a0\u2028\U000e0041\ufe0f👩‍👩‍👧 e\u0301\u0301\u0301\u0301", 179.99, 7, 80)
	f.Add(" ", 1.0, 1, 80)
	f.Add("a: b\n- c\t# d\r\n---\n\u0085é 5 s", -3.0, math.MaxInt>>23, 100)
	f.Fuzz(func(t *testing.T, s string, v float64, n, width int) {
		if v != v || v > 1e308 || v < -1e308 || n > math.MaxInt>>13 || n < math.MinInt>>13 || width > 300 {
			return
		}
		report, probe, bench := hostile(s, v, n)
		printers := map[string]func(io.Writer, Options) error{
			"report": func(w io.Writer, o Options) error { return Report(w, report, o) },
			"probe":  func(w io.Writer, o Options) error { return RuntimeProbe(w, probe, o) },
			"bench":  func(w io.Writer, o Options) error { return RelistBenchmark(w, bench, bench, o) },
			"cause": func(w io.Writer, o Options) error {
				d := checks.Definition{Code: s, Title: s, Means: s, Fix: []string{s}, Sources: []string{s}}
				return Definition(w, d, o)
			},
			"census": func(w io.Writer, o Options) error { return Exited(w, hostileCensus(report, v, n), o) },
			"gc":     func(w io.Writer, o Options) error { return GC(w, hostileGC(report, n), o) },
			"canary": func(w io.Writer, o Options) error {
				return Canary(w, &checks.CanaryReport{
					Header: report.Header, Runtime: report.Runtime, Status: checks.Unhealthy, Summary: s, Image: s,
					Attempts: 1, Steps: []checks.CanaryStep{{Name: s, Seconds: v, Error: s}}, Left: []string{s},
					SandboxID: s, Problems: []string{s},
				}, o)
			},
		}
		for name, print := range printers {
			t.Run(name, func(t *testing.T) { checkPrinted(t, s, print, width) })
		}
		if utf8.ValidString(s) {
			checkReplay(t, report)
		}
	})
}

func checkPrinted(t *testing.T, command string, print func(io.Writer, Options) error, width int) {
	t.Helper()
	do := func(o Options) string {
		var b strings.Builder
		if err := print(&b, o); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	for _, ascii := range []bool{false, true} {
		o := Options{Width: max(width, 0), ASCII: ascii}
		checkWidth(t, do(o), o, command)
		checkHarmless(t, do(o), ascii)
	}
	checkBrief(t, do(Options{Format: Brief}))
	checkHarmless(t, do(Options{Format: JSON}), false)
	doc := do(Options{Format: YAML})
	checkHarmless(t, doc, false)
	var tree any
	if err := yaml.Unmarshal([]byte(doc), &tree); err != nil {
		t.Errorf("the YAML cannot be read: %v\n%s", err, doc)
	}
}

// checkWidth is the part of checkText that holds for any string.
func checkWidth(t *testing.T, got string, o Options, command string) {
	t.Helper()
	command = strings.TrimRight(cleaner{ascii: o.ASCII}.clean(strings.TrimSpace(command)), " ")
	for line := range strings.Lines(got) {
		line = strings.TrimSuffix(line, "\n")
		if n := columns(line); n > widthOf(o) && strings.TrimLeft(line, " ") != command {
			t.Errorf("%d columns, more than %d: %.100q", n, widthOf(o), line)
		}
	}
}

func checkReplay(t *testing.T, report *checks.Report) {
	t.Helper()
	first, err := encodeJSON(report)
	if err != nil {
		t.Fatal(err)
	}
	var again checks.Report
	if err := json.Unmarshal(first, &again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(*report, again); diff != "" {
		t.Errorf("the report after encoding and decoding (-want +got):\n%s", diff)
	}
	second, err := encodeJSON(&again)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second) {
		t.Error("encoding the decoded report gives other bytes")
	}
}

// TestLongStrings prints what is absurdly long: a report must not take longer than the measurement.
func TestLongStrings(t *testing.T) {
	for _, s := range []string{strings.Repeat("a", 100_000), strings.Repeat("検", 20_000)} {
		report, _, _ := hostile(s, 1, 1)
		for _, f := range []Format{Text, Brief, YAML} {
			var b strings.Builder
			if err := Report(&b, report, Options{Format: f}); err != nil {
				t.Fatal(err)
			}
			if f == Brief {
				checkBrief(t, b.String())
			}
		}
	}
}
