package judge

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/plegbench"
)

// TestBoundaries tries each limit from both sides: just below, and at it.
func TestBoundaries(t *testing.T) {
	exact := func(share float64) tweak {
		return figures(func(s *plegbench.Summary) {
			bytes := int(share * float64(s.ResponseLimitBytes))
			s.ResponseBytes = &bytes
		})
	}
	cold := func(d time.Duration) tweak {
		return figures(func(s *plegbench.Summary) { s.ColdSeconds = new(d.Seconds()) })
	}
	age := func(d time.Duration) tweak {
		return figures(func(s *plegbench.Summary) { s.ProjectedAgeSeconds = new(d.Seconds()) })
	}
	plugin := func(d time.Duration) tweak {
		return ProcessesOf(host.Process{PID: 7, Name: "bridge", Role: host.RoleCNI, State: 'S', Started: now().Add(-d)})
	}
	list := func(d time.Duration) tweak { return takes(d/2, facts.RPCSandboxes, facts.RPCContainers) }
	for _, tt := range []struct {
		name   string
		tweaks []tweak
		want   string
	}{
		{"SlowList below", []tweak{list(998 * time.Millisecond)}, ""},
		{"SlowList at", []tweak{list(time.Second)}, "RuntimeSlow warning"},
		{"VerySlowList below", []tweak{list(9998 * time.Millisecond)}, "RuntimeSlow warning"},
		{"VerySlowList at", []tweak{list(10 * time.Second)}, "RuntimeSlow critical"},
		{"all slow, below half the deadline", []tweak{takes(time.Second, everyRPC()...)}, "RuntimeSlow warning"},
		{"all slow, at half the deadline", []tweak{takes(1250*time.Millisecond, everyRPC()...)}, "RuntimeSlow critical"},
		{"SlowStatus below", []tweak{statusTakes(1999 * time.Millisecond)}, ""},
		{"SlowStatus at", []tweak{statusTakes(2 * time.Second)}, "RuntimeSlow warning"},
		{"ExitedWarning below", []tweak{exited(999, 10, 1000)}, ""},
		{"ExitedWarning at", []tweak{exited(1000, 10, 1000)}, "TooManyExited warning"},
		{"ExitedCritical below", []tweak{exited(9999, 10, 500)}, "TooManyExited warning"},
		{"ExitedCritical at", []tweak{exited(10000, 10, 500)}, "TooManyExited critical"},
		{"DeadSandboxes below", []tweak{figures(func(s *plegbench.Summary) { s.Sandboxes.NotReady = 999 })}, ""},
		{"DeadSandboxes at", []tweak{figures(func(s *plegbench.Summary) { s.Sandboxes.NotReady = 1000 })}, "TooManyExited warning"},
		{"SizeWarning below", []tweak{exact(0.499)}, ""},
		{"SizeWarning at", []tweak{exact(0.5)}, "ListTooLarge warning"},
		{"SizeCritical below", []tweak{exact(0.799)}, "ListTooLarge warning"},
		{"SizeCritical at", []tweak{exact(0.8001)}, "ListTooLarge critical"},
		{"RelistWarning below", []tweak{cold(59900 * time.Millisecond)}, ""},
		{"RelistWarning at", []tweak{cold(time.Minute)}, "RelistOverloaded warning"},
		{"threshold at", []tweak{age(3 * time.Minute)}, ""},
		{"threshold over", []tweak{age(3*time.Minute + time.Second)}, "RelistOverloaded critical"},
		{"CNIPluginTooLong below", []tweak{plugin(59 * time.Second)}, ""},
		{"CNIPluginTooLong at", []tweak{plugin(time.Minute)}, "CNIHung warning"},
		{"no limits at all", []tweak{func(f *facts.Input) { f.Limits = checks.Limits{} }, list(20 * time.Second), exited(20000, 10, 500)}, ""},
		{"a short deadline on a quick runtime", []tweak{func(f *facts.Input) { f.Limits.RPCTimeout = 50 * time.Millisecond }, list(40 * time.Millisecond)}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			for _, c := range Judge(node(tt.tweaks...)) {
				got += c.Code + " " + string(c.Severity)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestLargeEntryBoundary tries the mean entry from which the annotations and not the count are the root.
func TestLargeEntryBoundary(t *testing.T) {
	for _, tt := range []struct {
		mean  float64
		first string
	}{
		{2048, causes.TooManyExited},
		{2049, causes.ListTooLarge},
	} {
		f := node(exited(17000, 100, 1000), figures(func(s *plegbench.Summary) { s.BytesPerContainer = &tt.mean }))
		if got := codes(Judge(f)); got[0] != tt.first {
			t.Errorf("mean %v: %q", tt.mean, got)
		}
	}
}

func TestShortDeadlineIsSaid(t *testing.T) {
	f := node(hangs(everyRPC()...), func(f *facts.Input) { f.Limits.RPCTimeout = 500 * time.Millisecond })
	c := only(t, f, causes.RuntimeHung)
	if !mentions(c.Evidence.Missing, "500ms cannot tell slow from hung", "--rpc-timeout 5s") {
		t.Errorf("missing %q", c.Evidence.Missing)
	}
}

func TestConfidence(t *testing.T) {
	lines := func(n int) []string { return slices.Repeat([]string{"x"}, n) }
	for _, tt := range []struct {
		step             float64
		against, missing int
		want             float64
	}{
		{checks.Certain, 0, 0, 0.95},
		{checks.Certain, 0, 1, 0.9},
		{checks.Strong, 1, 0, 0.65},
		{checks.Strong, 1, 2, 0.55},
		{checks.Fair, 0, 3, 0.45},
		{checks.Fair, 0, 30, 0.45},
		{checks.Weak, 5, 5, 0.1},
	} {
		if got := checks.Confidence(tt.step, checks.Evidence{Against: lines(tt.against), Missing: lines(tt.missing)}); got != tt.want {
			t.Errorf("Confidence(%v, %d against, %d missing) = %v, want %v", tt.step, tt.against, tt.missing, got, tt.want)
		}
	}
}
