package syncloopcmd

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kdiag/kdiag/plegbench/syncloop"
	"github.com/kdiag/kdiag/plegbench/syncloop/pleg"
	"github.com/kdiag/kdiag/plegbench/syncloop/podworkers"
)

// hung is a node with pods whose runtime has not answered for four minutes.
func hung(pods int) view {
	now := time.Date(2026, 3, 1, 12, 30, 45, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	const why = "[container runtime is down, PLEG is not healthy: pleg was last seen active 4m2s ago; threshold is 3m0s]"
	v := view{now: now, Snapshot: syncloop.Snapshot{
		At: ago(100 * time.Millisecond), Node: "lab-1", Runtime: "containerd v2.1.4",
		Sources: []syncloop.SourceState{{Name: "file", Seen: true}, {Name: "api"}},
		Loop:    syncloop.LoopState{Turns: 1234, LastTurn: ago(time.Minute), SkippingSince: ago(time.Minute), Why: why, Updates: 2},
		PLEG: pleg.Snapshot{
			LastRelist: ago(242 * time.Second), InProgressSince: ago(4 * time.Minute), Duration: 2 * time.Millisecond, Relists: 1200, Failures: 3,
		},
		Conditions: []v1.NodeCondition{
			{Type: v1.NodeMemoryPressure, Status: v1.ConditionFalse},
			{Type: v1.NodeReady, Status: v1.ConditionFalse, Reason: "KubeletNotReady", Message: why, LastTransitionTime: metav1.NewTime(ago(time.Minute))},
		},
	}}
	for i := range pods {
		uid, name := types.UID(fmt.Sprint("uid-", i)), fmt.Sprintf("web-%02d", i)
		waiting := v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}}
		v.Pods = append(v.Pods, &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: uid},
			Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "app"}}},
			Status:     v1.PodStatus{Phase: v1.PodPending, ContainerStatuses: []v1.ContainerStatus{{Name: "app", RestartCount: 2, State: waiting}}},
		})
		if i > 0 {
			v.Workers = append(v.Workers, podworkers.WorkerState{
				UID: uid, Name: "default/" + name, Step: "sync", Started: true, WaitingInCache: true, Since: ago(time.Duration(i) * time.Second),
			})
		}
	}
	v.Workers = append(v.Workers, podworkers.WorkerState{UID: "x", Name: "default/old", Step: "terminating", Stopping: true, Busy: true, Since: ago(239 * time.Second)})
	v.log = []string{"I0301 12:30:40.000001    4242 loop.go:161] \"SyncLoop ADD\"", "E0301 12:30:42.000001    4242 loop.go:161] \"Error\" \x1b[31m"}
	return v
}

func TestView(t *testing.T) {
	v := hung(2)
	want := `kdiag syncloop  12:30:45 UTC  lab-1  containerd v2.1.4

SOURCES  file: 0 pods  api: not read yet
LOOP     last turn ago: 1m0s, 1234 turns, 2 updates waiting
         skipping for 1m0s: [container runtime is down, PLEG is not healthy: pleg was last seen active 4m2s ago; threshold is 3m0
PLEG     last good relist ago: 4m2s, the last took 2ms; in progress for 4m0s
         1200 relists, 3 failed, 0 pods to inspect again; 0 pods, 0 containers, 0 of others; events: 0 waiting, 0 lost
NODE
         Ready False for 1m0s, KubeletNotReady: [container runtime is down, PLEG is not healthy: pleg was last seen active 4m2s a
PODS     1 to 3 of 3; 2 at work or waiting, default/old for 3m59s
POD                                  PHASE     READY RESTARTS  WORKER
default/old                          gone       0/0         0  terminating, stops containers, 3m59s
default/web-00                       Pending    0/1         2  no worker  ContainerCreating
default/web-01                       Pending    0/1         2  sync, waits for PLEG, 1s  ContainerCreating
LOG
I0301 12:30:40.000001    4242 loop.go:161] "SyncLoop ADD"
E0301 12:30:42.000001    4242 loop.go:161] "Error"  [31m

q quits, p pauses, up and down scroll the pods
`
	var got strings.Builder
	for _, line := range v.lines(130, 19, false) {
		got.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Error(diff)
	}
	if colored := strings.Join(v.lines(130, 19, true), "\n"); !strings.Contains(colored, "\x1b[31m         Ready False") {
		t.Errorf("no colour in %q", colored)
	}
	for i := range 30 {
		v = hung(30)
		v.scroll = i
		if all := strings.Join(v.lines(130, 24, false), "\n"); !strings.Contains(all, "30 at work or waiting, default/old for 3m59s") {
			t.Errorf("scrolled by %d, the slowest worker is out of sight:\n%s", i, all)
		}
	}
}

// TestViewFits wants no line in the last column and none below the screen, in whatever size.
func TestViewFits(t *testing.T) {
	for name, v := range map[string]view{"hung": hung(30), "empty": {}} {
		for width := 1; width < 200; width += 7 {
			for height := 1; height < 60; height += 3 {
				lines := v.lines(width, height, false)
				if len(lines) != height || !strings.HasPrefix("q quits, p pauses", lines[height-1][:min(len(lines[height-1]), 17)]) {
					t.Fatalf("%s, %dx%d: %d lines, the last is %q", name, width, height, len(lines), lines[len(lines)-1])
				}
				for _, line := range lines {
					if n := utf8.RuneCountInString(line); n >= width {
						t.Fatalf("%s, %dx%d: a line of %d columns: %q", name, width, height, n, line)
					}
				}
			}
		}
	}
}
