package judge

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/plegbench"
)

// TestOverloadedNow wants the summary to say whether it answers why the node is NotReady now.
func TestOverloadedNow(t *testing.T) {
	with := func(now, age, churn, cold float64) tweak {
		return figures(func(s *plegbench.Summary) {
			s.ProjectedSeconds, s.ProjectedAgeSeconds, s.ChurnSeconds, s.ColdSeconds = &now, &age, &churn, &cold
		})
	}
	unhealthy := said(incident(2*time.Minute, 4*time.Second))
	for _, tt := range []struct {
		name   string
		tweaks []tweak
		want   string
	}{
		{
			"cold",
			[]tweak{with(0.299, 1.5, 1, 240)},
			"one relist of the kubelet takes 299ms now, 1s in a rollout, 4m after its restart; the threshold is 3m",
		},
		{
			"churn",
			[]tweak{with(0.299, 1.5, 90, 30)},
			"one relist of the kubelet takes 299ms now, 1m30s in a rollout, 30s after its restart; the threshold is 3m",
		},
		{
			"cold, and PLEG is unhealthy",
			[]tweak{with(0.299, 1.5, 1, 240), unhealthy},
			"one relist of the kubelet takes 299ms now, 1s in a rollout, 4m after its restart; the threshold is 3m",
		},
		{"near", []tweak{with(90, 91, 90, 240)}, "one relist of the kubelet takes 1m30s now, 1m30s in a rollout, 4m after its restart; " +
			"the threshold is 3m"},
		{
			"over",
			[]tweak{with(200, 201, 200, 240)},
			"one relist of the kubelet takes 3m20s now, 3m20s in a rollout, 4m after its restart; " +
				"the threshold is 3m; PLEG is last seen active up to 3m21s ago",
		},
		{
			"age",
			[]tweak{with(50, 200, 50, 50)},
			"one relist of the kubelet takes 50s now, 50s in a rollout, 50s after its restart; the threshold is " +
				"3m; PLEG is last seen active up to 3m20s ago",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, only(t, node(tt.tweaks...), causes.RelistOverloaded).Summary); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestOverloadedOnce has a few slow calls among many quick ones. The median times the number would be another figure
// than the projection.
func TestOverloadedOnce(t *testing.T) {
	f := node(pods(300, 3), swept, func(f *facts.Input) {
		for i := range f.Measurement.Sweep.Inspections {
			took := time.Millisecond
			if i%4 == 0 {
				took = 300 * time.Millisecond
			}
			f.Measurement.Sweep.Inspections[i].Call.Elapsed = took
		}
	})
	c := only(t, f, causes.RelistOverloaded)
	figure := units.Duration(causes.Optional(f.Summary.ColdSeconds))
	if !strings.Contains(c.Summary, figure+" after its restart") {
		t.Errorf("%q, want %s", c.Summary, figure)
	}
	if !mentions(c.Evidence.For, "1,200 objects, inspected one after the other, take 76ms each") {
		t.Errorf("%q", c.Evidence.For)
	}
}
