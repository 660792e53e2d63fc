package reproduce

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kdiag/kdiag/crictl/fake"
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
		if _, err := fake.NewRules(faults, latency, time.Now(), nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
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
		if got := judge(c.want, c.message, c.notReady); (got == "") != c.ok {
			t.Errorf("%+v: judged %q", c, got)
		}
	}
}

// TestWhy names why a pod does not run: in the runtime's words, or that its image does not run by itself.
func TestWhy(t *testing.T) {
	waiting := v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "refused"}}
	ended := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 2}}
	of := func(now, last v1.ContainerState) v1.PodStatus {
		c := v1.ContainerStatus{Image: "x:1", State: now, LastTerminationState: last}
		return v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{c}}
	}
	for want, status := range map[string]v1.PodStatus{
		"":                             {},
		": OutOfpods, full":            {Reason: "OutOfpods", Message: "full"},
		": ErrImagePull, refused":      of(waiting, v1.ContainerState{}),
		": x:1 ended with exit code 2": of(ended, v1.ContainerState{}),
		": ErrImagePull, refused: x:1 ended with exit code 2": of(waiting, ended),
	} {
		if got := why(&v1.Pod{Status: status}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
