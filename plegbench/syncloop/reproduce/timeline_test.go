package reproduce

import (
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2/textlogger"

	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/plegbench/syncloop"
	"github.com/kdiag/kdiag/plegbench/syncloop/pleg"
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

// whats are the events so far, in short.
func (t *timeline) whats() (out []string) {
	for _, e := range t.events {
		out = append(out, string(e.What)+": "+e.Detail)
	}
	return out
}

func newTimeline(speed float64) *timeline {
	return &timeline{speed: speed, node: "node", log: io.Discard, seen: map[string]bool{}}
}

// TestTimeline has a text that only counts up once, and again when the fault has changed.
func TestTimeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line := newTimeline(60)
		log := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(line)))
		skip := func(text string) { log.Error(errors.New(text), "Skipping pod synchronization") }
		skip("PLEG is not healthy: pleg was last seen active 3m1s ago; threshold is 3m0s")
		skip("PLEG is not healthy: pleg was last seen active 3m6.123s ago; threshold is 3m0s")
		line.notified(syncloop.Event{What: "ready", Detail: "good"})
		line.notified(syncloop.Event{What: "resume", Detail: "5s"})
		line.setFault(true, true, "it breaks")
		time.Sleep(2 * time.Second)
		line.notified(syncloop.Event{What: "not-ready", Detail: "container runtime is down"})
		skip("PLEG is not healthy: pleg was last seen active 3m1s ago; threshold is 3m0s")
		log.Error(errors.New("no"), "Another line")
		log.Error(errors.New("rpc error: desc = \"quoted\""), "GenericPLEG: Unable to retrieve pods")
		want := []string{
			"skip: PLEG is not healthy: pleg was last seen active 3m1s ago; threshold is 3m0s",
			"ready: good", "resume: synchronizes pods again after 5s", "fault: it breaks",
			"not-ready: container runtime is down",
			"skip: PLEG is not healthy: pleg was last seen active 3m1s ago; threshold is 3m0s",
			`relist-failed: rpc error: desc = "quoted"`,
		}
		if diff := cmp.Diff(want, line.whats()); diff != "" {
			t.Error(diff)
		}
		all := line.events
		if all[0].Seconds != nil || all[3].KubeletSeconds == nil || *all[4].Seconds != 2 ||
			*all[4].KubeletSeconds != 120 {
			t.Errorf("times of the events: %+v", all)
		}
		if all[2].Fault || !all[2].NodeReady || !all[4].Fault || all[4].NodeReady {
			t.Errorf("states of the events: %+v", all)
		}
		if message, ok := line.sawNotReady(); !ok || message != "container runtime is down" {
			t.Errorf("NotReady %t %q", ok, message)
		}
	})
}

func podWith(name, id string, running bool) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-node"}, Spec: v1.PodSpec{Containers: make([]v1.Container, 1)},
	}
	c := v1.ContainerStatus{ContainerID: "containerd://" + id, Ready: running}
	if running {
		c.State.Running = &v1.ContainerStateRunning{}
	}
	p.Status.ContainerStatuses = []v1.ContainerStatus{c}
	return p
}

// TestUnnoticed goes through a death that PLEG does not notice for a while.
func TestUnnoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line := newTimeline(10)
		line.ready = true
		line.expect(PodDied, "app-0", "a", "its container is killed")
		line.expect(PodDied, "app-1", "b", "its container is killed")
		log := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(line), textlogger.Verbosity(2)))
		began := time.Now()
		pods := []*v1.Pod{podWith("app-0", "a", true), podWith("app-1", "b", true)}
		look := func(after time.Duration, since time.Time) {
			time.Sleep(after)
			line.look(syncloop.Snapshot{
				PLEG: pleg.Snapshot{InProgressSince: since, Duration: 3100 * time.Millisecond}, Pods: pods,
			})
		}
		look(900*time.Millisecond, began)
		look(200*time.Millisecond, began)
		look(2*time.Second, began)
		look(time.Second, time.Time{})
		for _, e := range []pleg.Event{
			{Type: pleg.ContainerStarted, Data: "a"}, {Type: pleg.ContainerDied, Data: "a"}, {
				Type: pleg.ContainerDied, Data: "a",
			},
		} {
			log.V(2).Info("SyncLoop (PLEG): event for pod", "pod", "ns/app-0", "event", e)
		}
		if err := line.settled(pods, 2); err == nil {
			t.Error("settled before the pods run again")
		}
		pods[0] = podWith("app-0", "c", false)
		look(time.Millisecond, time.Time{})
		pods[0] = podWith("app-0", "c", true)
		look(time.Millisecond, time.Time{})
		want := []string{
			"pod-died: app-0: its container is killed", "pod-died: app-1: its container is killed",
			"events-stop: app-0 died 11s ago, and PLEG has not reported it",
			"relist-stuck: a relist has not ended for 31s", "relist-ended: the relist ended after 31s",
			"pod-noticed: app-0: PLEG reports its death after 41s",
			"pod-running: app-0 runs again 41s after its container died",
		}
		if diff := cmp.Diff(want, line.whats()); diff != "" {
			t.Error(diff)
		}
		if err := line.settled(pods, 2); err == nil || err.Error() != "app-1 has not started" {
			t.Errorf("what is missing: %v", err)
		}
	})
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
