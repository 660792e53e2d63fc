package kubelet

import (
	_ "embed"
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
		PLEGLastSeen: time.Date(2026, 11, 20, 12, 0, 0, 5e8, time.UTC), Relists: 400, RelistSeconds: 812.5,
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateApproxTime(time.Millisecond)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestParseMetricsOdd(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"not a kubelet's", "go_goroutines 7\n", "none is a kubelet's"},
		{"empty", "", "none is a kubelet's"},
		{"malformed", "kubelet_pleg_last_seen_seconds twelve\n", "malformed line"},
		{"a line without end", "other{a=\"" + strings.Repeat("x", maxMetricsLine), "token too long"},
	} {
		if _, err := parseMetrics(strings.NewReader(tc.text)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", tc.name, err, tc.want)
		}
	}
}

func FuzzMetrics(f *testing.F) {
	f.Add(kubeletMetrics)
	f.Add("kubelet_pleg_last_seen_seconds 1e300\nkubelet_pleg_relist_duration_seconds_count NaN\n")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := parseMetrics(strings.NewReader(text))
		if (err == nil) != (m != nil) || err != nil && err.Error() == "" {
			t.Errorf("%+v, error %v", m, err)
		}
	})
}
