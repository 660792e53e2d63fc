package reproduce

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
)

// TestScenarios finds a scenario for each name of the embedded runtime, with all its texts, and steps in order.
func TestScenarios(t *testing.T) {
	for _, name := range Names() {
		s, ok := Find(name)
		if !ok {
			t.Errorf("%s: there is no such incident", name)
			continue
		}
		if s.Summary == "" || s.Why == "" || s.Look == "" || s.Hold <= 0 {
			t.Errorf("%s: summary %q, why %q, look %q, hold %s; want all", name, s.Summary, s.Why, s.Look, s.Hold)
		}
		flooded := slices.ContainsFunc(s.Steps, func(s Step) bool { return s.Do == Flood })
		wrong := len(s.Faults)+len(s.Latency)+len(s.Conditions) > 0 || s.Down || flooded
		if wrong != (s.Cause != "") {
			t.Errorf("%s: cause %q, but something goes wrong: %t", name, s.Cause, wrong)
		}
		if !slices.IsSortedFunc(s.Steps, func(a, b Step) int { return int(a.At - b.At) }) {
			t.Errorf("%s: steps out of order: %v", name, s.Steps)
		}
		faults, latency := faster(s.Faults, s.Latency, 1)
		_, err := fake.NewRules(faults, latency, time.Now(), nil)
		looptest.Must(t, err)
	}
	if _, ok := Find("no-such"); ok {
		t.Error("found a scenario that is none")
	}
}

func TestJudge(t *testing.T) {
	const down = "container runtime is down"
	for _, c := range []struct {
		want, message string
		notReady, ok  bool
	}{
		{"", "", false, true},
		{"", "x", true, false},
		{"is down", "", false, false},
		{"is down", down, true, true},
		{"is down", "PLEG is not healthy", true, false},
	} {
		looptest.Equal(t, fmt.Sprintf("%+v", c), c.ok, judge(c.want, c.message, c.notReady) == "")
	}
}
