package kubelet

import (
	_ "embed"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// kubeletMetrics has the form of what a kubelet 1.36 says, with values that tell the families apart.
//
//go:embed testdata/metrics.txt
var kubeletMetrics string

func TestParseMetrics(t *testing.T) {
	got, err := parseMetrics(strings.NewReader(kubeletMetrics))
	if err != nil {
		t.Fatal(err)
	}
	want := &Metrics{
		PLEGLastSeen: time.Date(2026, 11, 20, 12, 0, 0, 5e8, time.UTC), ProcessStart: time.Date(2026, 11, 20, 11, 0, 0, 25e7, time.UTC),
		Relists: 400, RelistSeconds: 812.5, RelistP99: 7.5, RunningPods: 12, EventedConnErrors: 3,
		RuntimeErrors: map[string]float64{"container_status": 7, "list_podsandbox": 2},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateApproxTime(time.Millisecond)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestParseMetricsOdd(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"not a kubelet's", "go_goroutines 7\n", "none is a kubelet's"},
		{"empty", "", "none is a kubelet's"},
		{"malformed", "kubelet_running_pods twelve\n", "expected float"},
		{"a line without end", "other{a=\"" + strings.Repeat("x", maxMetricsLine), "token too long"},
		{"too much of it", strings.Repeat("kubelet_running_pods{a=\""+strings.Repeat("x", 60000)+"\"} 1\n", 20), "more than 1048576 bytes"},
	} {
		if _, err := parseMetrics(strings.NewReader(tc.text)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", tc.name, err, tc.want)
		}
	}
}

func TestQuantile(t *testing.T) {
	histogram := func(lines ...string) string {
		return "# TYPE kubelet_pleg_relist_duration_seconds histogram\n" + strings.Join(lines, "\n") + "\n"
	}
	bucket := "kubelet_pleg_relist_duration_seconds_bucket"
	for _, tc := range []struct {
		name, text string
		want       float64
	}{
		{"above the last bucket", histogram(bucket+`{le="10"} 1`, bucket+`{le="+Inf"} 100`, "kubelet_pleg_relist_duration_seconds_count 100"), math.Inf(1)},
		{"in the first", histogram(bucket+`{le="2"} 100`, bucket+`{le="+Inf"} 100`, "kubelet_pleg_relist_duration_seconds_count 100"), 1.98},
		{"no samples", histogram(bucket+`{le="2"} 0`, bucket+`{le="+Inf"} 0`, "kubelet_pleg_relist_duration_seconds_count 0"), 0},
	} {
		m, err := parseMetrics(strings.NewReader(tc.text))
		if err != nil || m.RelistP99 != tc.want {
			t.Errorf("%s: %v, error %v", tc.name, m, err)
		}
	}
}

func TestParsePods(t *testing.T) {
	for _, tc := range []struct {
		text string
		want *Pods
	}{
		{
			`{"kind":"PodList","metadata":{"a":[{}]},"items":[{"status":{"phase":"Running"}},{"status":{"phase":"Failed"}},{"status":{"phase":"x"}},{}]}`,
			&Pods{4, map[string]int{"Running": 1, "Failed": 1, "Unknown": 2}},
		},
		{`{"items":null}`, &Pods{0, map[string]int{}}},
		{`{"items":[]}`, &Pods{0, map[string]int{}}},
		{`{"items":[{"status":{"phase":"Running"}}`, nil},
		{`{"items":7}`, nil},
		{`[]`, nil},
		{``, nil},
	} {
		got, err := parsePods(strings.NewReader(tc.text))
		if diff := cmp.Diff(tc.want, got); diff != "" || (err == nil) != (tc.want != nil) {
			t.Errorf("%s: error %v\n%s", tc.text, err, diff)
		}
	}
}

func FuzzMetrics(f *testing.F) {
	f.Add(kubeletMetrics)
	f.Add("kubelet_pleg_last_seen_seconds 1e300\nprocess_start_time_seconds NaN\n")
	f.Add("# TYPE kubelet_pleg_relist_duration_seconds histogram\nkubelet_pleg_relist_duration_seconds_bucket{le=\"NaN\"} 1\nkubelet_pleg_relist_duration_seconds_count 1\n")
	f.Add("kubelet_runtime_operations_errors_total{operation_type=\"\\n\"} -1\n")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := parseMetrics(strings.NewReader(text))
		if err != nil {
			return
		}
		for operation := range m.RuntimeErrors {
			if operation != oneLine(operation) {
				t.Errorf("%q is not fit to be shown", operation)
			}
		}
	})
}

func FuzzPods(f *testing.F) {
	f.Add(`{"items":[{"status":{"phase":"Running"}}]}`)
	f.Add(`{"items":null}`)
	f.Fuzz(func(t *testing.T, text string) {
		pods, err := parsePods(strings.NewReader(text))
		if err != nil {
			return
		}
		sum := 0
		for _, n := range pods.ByPhase {
			sum += n
		}
		if sum != pods.Total {
			t.Errorf("%+v does not add up", pods)
		}
	})
}
