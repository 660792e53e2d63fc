package render

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/plegbench/syncloop"
	"github.com/kdiag/kdiag/plegbench/syncloop/pleg"
	"github.com/kdiag/kdiag/plegbench/syncloop/podworkers"
	"github.com/kdiag/kdiag/plegbench/syncloop/reproduce"
)

// hung is a node with pods whose runtime has not answered for four minutes, and its log.
func hung(pods int) LoopView {
	now := time.Date(2026, 3, 1, 12, 30, 45, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	const why = "PLEG is not healthy: pleg was last seen active 4m2s ago; threshold is 3m0s"
	s := syncloop.Snapshot{
		Node: "lab-1", Runtime: "containerd v2.1.4",
		Loop: syncloop.LoopState{
			Turns:         1234,
			LastTurn:      ago(time.Minute),
			SkippingSince: ago(time.Minute),
			Why:           why,
			Updates:       2,
		},
		PLEG: pleg.State{
			LastRelist: ago(242 * time.Second), InProgressSince: ago(4 * time.Minute), Relists: 1200, Failures: 3,
			Threshold: 3 * time.Minute,
		},
		Conditions: []v1.NodeCondition{
			{Type: v1.NodeMemoryPressure, Status: v1.ConditionFalse},
			{
				Type:               v1.NodeReady,
				Status:             v1.ConditionFalse,
				Message:            why,
				LastTransitionTime: metav1.NewTime(ago(time.Minute)),
			},
		},
	}
	for i := range pods {
		uid, name := types.UID(fmt.Sprint("uid-", i)), fmt.Sprintf("web-%02d-lab-1", i)
		s.Pods = append(s.Pods, &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{UID: uid}, Status: v1.PodStatus{Phase: v1.PodPending},
		})
		if i > 0 {
			s.Workers = append(s.Workers, podworkers.WorkerState{
				UID: uid, Name: "default/" + name, Step: "sync", WaitingInCache: true,
				Since: ago(time.Duration(i) * time.Second),
			})
		}
	}
	s.Workers = append(s.Workers, podworkers.WorkerState{
		UID: "x", Name: "default/old", Step: "terminating", Busy: true, Since: ago(239 * time.Second),
	})
	return LoopView{Now: now, Snapshot: s, Log: []string{
		"I0301 12:30:40.000001    4242 loop.go:161] \"SyncLoop ADD\"\n", "E0301 \"\x1b[31mError\"\n",
	}}
}

// stories are views of an incident that was recorded at 15x speed, by the step in which it is.
func stories(t *testing.T) map[string]LoopView {
	t.Helper()
	var doc ReproductionReport
	load(t, "testdata/reproduction.json", &doc)
	views := map[string]LoopView{}
	until := func(name string, last reproduce.What) {
		v := hung(6)
		v.Story = &Story{Speed: doc.Speed}
		v.Story.Scenario, _ = reproduce.Find(doc.Scenario)
		for _, e := range doc.Events {
			v.Story.Events = append(v.Story.Events, e)
			if e.What == last {
				break
			}
		}
		shift := v.Now.Sub(v.Story.Events[len(v.Story.Events)-1].At.Add(time.Second)) // drawn a second later
		for i := range v.Story.Events {
			v.Story.Events[i].At = v.Story.Events[i].At.Add(shift)
		}
		if last == reproduce.CleanedUp {
			v.Story.Report = &doc
		}
		views[name] = v
	}
	until("1-start", reproduce.Started)
	until("2-fault", reproduce.PodDied)
	until("2-pause", reproduce.Lifted)
	pause := &views["2-pause"].Story.Scenario
	pause.Times, pause.Pause = 2, fake.Duration(90*time.Second)
	until("3-recovery", reproduce.Lifted)
	until("4-cleanup", reproduce.Recovered)
	until("5-verdict", reproduce.CleanedUp)
	views["4-cleanup"].Story.Endpoint = "unix:///run/containerd/containerd.sock"
	return views
}

func TestDraw(t *testing.T) {
	views := stories(t)
	views["syncloop"] = hung(2)
	for name, v := range views {
		t.Run(name, func(t *testing.T) {
			golden(t, "loop-"+name, strings.Join(v.Draw(80, 24, Options{}), "\n")+"\n")
		})
	}
	colored := strings.Join(hung(2).Draw(91, 19, Options{Color: true}), "\n")
	for _, want := range []string{"\x1b[31mNotReady for 1m: PLEG", "\x1b[33mdefault/old", `[31mE0301 "\x1b[31mError"`} {
		if !strings.Contains(colored, want) {
			t.Errorf("no %q in %q", want, colored)
		}
	}
}

// TestDrawFits checks that no line reaches the last column and none is below the screen, in any size.
func TestDrawFits(t *testing.T) {
	views := stories(t)
	views["hung"], views["empty"] = hung(30), LoopView{}
	for name, v := range views {
		for width := 2; width < 200; width += 13 {
			for height := 1; height < 60; height += 7 {
				lines := v.Draw(width, height, Options{})
				if len(lines) > height {
					t.Fatalf("%s, %dx%d: %d lines", name, width, height, len(lines))
				}
				for _, line := range lines {
					if n := columns(line); n >= width {
						t.Fatalf("%s, %dx%d: a line of %d columns: %q", name, width, height, n, line)
					}
				}
			}
		}
	}
}
