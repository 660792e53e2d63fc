package kubelet

import (
	_ "embed"
	"testing"
	"time"
)

// kubeletMetrics has the form that a kubelet 1.36 writes, with values that tell the families apart.
//
//go:embed testdata/metrics.txt
var kubeletMetrics string

func TestParseMetrics(t *testing.T) {
	got, err := parseMetrics([]byte(kubeletMetrics))
	must(t, err)
	seen := time.Date(2026, 11, 20, 12, 0, 0, 5e8, time.UTC)
	equal(t, &Metrics{PLEGLastSeen: seen, Relists: 400, RelistSeconds: 812.5}, got)
	if _, err := parseMetrics([]byte("\nkubelet_pleg_last_seen_seconds twelve\n")); err == nil {
		t.Error("of a malformed line: no error")
	}
}
