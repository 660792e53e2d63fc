package reproduce

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/crictl/fake"
)

// TestScenarios wants each name of the embedded runtime played, with all its texts, and steps in
// order.
func TestScenarios(t *testing.T) {
	for _, name := range Names() {
		s, ok := Find(name)
		if !ok {
			t.Errorf("%s: there is no such incident", name)
			continue
		}
		if s.Summary == "" || s.Why == "" || s.Hold <= 0 {
			t.Errorf("%s: summary %q, why %q, hold %s; want all", name, s.Summary, s.Why, s.Hold)
		}
		if wrong := len(s.Faults)+len(s.Latency)+len(s.Conditions) > 0 || s.Down || len(s.Steps) > 0 && s.Steps[0].Do == Flood; wrong != (s.Cause != "") {
			t.Errorf("%s: cause %q, but something goes wrong: %t", name, s.Cause, wrong)
		}
		if !slices.IsSortedFunc(s.Steps, func(a, b Step) int { return int(a.At - b.At) }) {
			t.Errorf("%s: steps out of order: %v", name, s.Steps)
		}
		faults, latency := faster(s.Faults, s.Latency, 1)
		if _, err := fake.NewRules(faults, latency, time.Now(), nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, ok := Find("no-such"); ok {
		t.Error("found a scenario that is none")
	}
}

func TestFaster(t *testing.T) {
	s := Scenario{
		Faults:  []fake.Fault{{RPC: "*", Delay: fake.Duration(time.Minute), From: fake.Duration(30 * time.Second)}},
		Latency: []fake.Latency{{RPC: "List*", Base: fake.Duration(2 * time.Minute), PerItem: fake.Duration(6 * time.Second)}},
	}
	faults, latency := faster(s.Faults, s.Latency, 60)
	if diff := cmp.Diff([]fake.Fault{{RPC: "*", Delay: fake.Duration(time.Second), From: fake.Duration(500 * time.Millisecond)}}, faults); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]fake.Latency{{RPC: "List*", Base: fake.Duration(2 * time.Second), PerItem: fake.Duration(100 * time.Millisecond)}}, latency); diff != "" {
		t.Error(diff)
	}
	if s.Faults[0].Delay != fake.Duration(time.Minute) || s.Latency[0].Base != fake.Duration(2*time.Minute) {
		t.Error("the scenario itself has changed")
	}
}

func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		want, message string
		notReady, ok  bool
	}{
		"stays ready":   {ok: true},
		"should not":    {message: "x", notReady: true},
		"should":        {want: "is down"},
		"as wanted":     {want: "is down", message: "container runtime is down", notReady: true, ok: true},
		"another cause": {want: "is down", message: "PLEG is not healthy", notReady: true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := judge(c.want, c.message, c.notReady); (got == "") != c.ok {
				t.Errorf("judged %q", got)
			}
		})
	}
}
