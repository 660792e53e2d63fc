package render

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/lipgloss"
	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kdiag/kdiag/plegbench/syncloop"
	"github.com/kdiag/kdiag/plegbench/syncloop/pleg"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
	"github.com/kdiag/kdiag/plegbench/syncloop/podworkers"
)

// loopNow is the moment of the pictures.
func loopNow() time.Time { return time.Date(2026, 3, 1, 12, 30, 45, 0, time.UTC) }

func loopAgo(d time.Duration) time.Time { return loopNow().Add(-d) }

func loopPod(n int, phase v1.PodPhase, ready bool, restarts int32, waiting string) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: fmt.Sprintf("web-%02d", n), UID: types.UID(fmt.Sprint("uid-", n)),
			Annotations: map[string]string{pod.ConfigSourceAnnotation: "file"},
		},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "app"}}},
		Status: v1.PodStatus{
			Phase: phase, PodIP: fmt.Sprint("10.0.0.", n),
			ContainerStatuses: []v1.ContainerStatus{{Name: "app", Ready: ready, RestartCount: restarts}},
		},
	}
	if waiting != "" {
		p.Status.ContainerStatuses[0].State.Waiting = &v1.ContainerStateWaiting{Reason: waiting}
	}
	return p
}

func loopWorker(n int, s podworkers.WorkerState, since time.Duration) podworkers.WorkerState {
	s.UID, s.Name, s.Started, s.Since = types.UID(fmt.Sprint("uid-", n)), fmt.Sprintf("default/web-%02d", n), true, loopAgo(since)
	return s
}

func loopCondition(kind v1.NodeConditionType, status v1.ConditionStatus, reason, message string) v1.NodeCondition {
	return v1.NodeCondition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(loopAgo(4 * time.Minute))}
}

// loopHealthy is a node with three pods at rest.
func loopHealthy() LoopView {
	idle := podworkers.WorkerState{Step: "sync"}
	return LoopView{
		Now: loopNow(),
		Snapshot: syncloop.Snapshot{
			At: loopAgo(100 * time.Millisecond), Node: "lab-1", Runtime: "containerd v2.1.4",
			Sources: []syncloop.SourceState{{Name: "file", Seen: true}, {Name: "api", Seen: false}},
			Loop:    syncloop.LoopState{Turns: 1234, LastTurn: loopAgo(400 * time.Millisecond)},
			PLEG: pleg.Snapshot{
				LastRelist: loopAgo(600 * time.Millisecond), Duration: 2 * time.Millisecond, Relists: 1200, Pods: 3, Containers: 3,
			},
			Workers: []podworkers.WorkerState{
				loopWorker(1, idle, 12*time.Second), loopWorker(2, idle, 3*time.Second), loopWorker(3, idle, 75*time.Second),
			},
			Pods: []*v1.Pod{
				loopPod(1, v1.PodRunning, true, 0, ""), loopPod(2, v1.PodRunning, false, 14, "CrashLoopBackOff"), loopPod(3, v1.PodSucceeded, false, 0, ""),
			},
			Foreign: 5,
			Conditions: []v1.NodeCondition{
				loopCondition(v1.NodeMemoryPressure, v1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
				loopCondition(v1.NodeDiskPressure, v1.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
				loopCondition(v1.NodeReady, v1.ConditionTrue, "KubeletReady", "kubelet is posting ready status"),
			},
		},
		Relists: []float64{0.002, 0.003, 0.002, 0.012, 0.002},
		Log: []string{
			`I0301 12:30:40.000001    4242 loop.go:161] "SyncLoop ADD" source="file" pods=["default/web-01"]`,
			`W0301 12:30:41.000001    4242 loop.go:161] "Something odd" err="one"`,
			`E0301 12:30:42.000001    4242 loop.go:161] "Error syncing pod, skipping" err="failed to \"StartContainer\" for \"app\" with CrashLoopBackOff"`,
			"no header at all \x1b[31mred",
		},
	}
}

// loopHung is a node with 30 pods whose runtime has not answered for four minutes.
func loopHung() LoopView {
	v := loopHealthy()
	why := "[container runtime is down, PLEG is not healthy: pleg was last seen active 4m2.000000001s ago; threshold is 3m0s]"
	v.Loop = syncloop.LoopState{Turns: 1234, LastTurn: loopAgo(time.Minute), SkippingSince: loopAgo(time.Minute), Why: why, Updates: 2}
	v.PLEG.LastRelist, v.PLEG.InProgressSince = loopAgo(242*time.Second), loopAgo(240*time.Second)
	v.PLEG.Failures, v.PLEG.Uninspected, v.PLEG.Discarded = 3, 2, 1
	v.Relists = append(v.Relists, -1, 120)
	v.Conditions[2] = loopCondition(v1.NodeReady, v1.ConditionFalse, "KubeletNotReady", why)
	v.Conditions[1] = loopCondition(v1.NodeDiskPressure, v1.ConditionTrue, "KubeletHasDiskPressure", "kubelet has disk pressure")
	for n := 4; n <= 30; n++ {
		v.Pods = append(v.Pods, loopPod(n, v1.PodPending, false, 0, "ContainerCreating"))
		v.Workers = append(v.Workers, loopWorker(n, podworkers.WorkerState{Step: "sync", WaitingInCache: true, Busy: true}, time.Duration(n)*time.Second))
	}
	v.Workers = v.Workers[1:] // the first pod has none
	v.Workers = append(v.Workers, loopWorker(0, podworkers.WorkerState{Step: "terminating", Stopping: true, Busy: true}, 239*time.Second))
	return v
}

func loopLines(v LoopView, width, height int, o Options) (string, int) {
	lines, scroll := v.Lines(width, height, o)
	return strings.Join(lines, "\n") + "\n", scroll
}

func TestLoopViewGoldens(t *testing.T) {
	sizes := []struct{ width, height int }{{80, 24}, {120, 40}, {60, 20}}
	for name, v := range map[string]LoopView{"healthy": loopHealthy(), "hung": loopHung()} {
		for _, s := range sizes {
			got, _ := loopLines(v, s.width, s.height, Options{Color: true})
			golden(t, fmt.Sprintf("loop-%s.%dx%d.txt", name, s.width, s.height), got)
		}
		got, _ := loopLines(v, 80, 24, Options{})
		golden(t, fmt.Sprintf("loop-%s.plain.txt", name), got)
		got, _ = loopLines(v, 80, 24, Options{ASCII: true})
		golden(t, fmt.Sprintf("loop-%s.ascii.txt", name), got)
	}
}

// TestLoopViewFits wants no line in the last column and none below the screen, in whatever size.
func TestLoopViewFits(t *testing.T) {
	paused := loopHung()
	paused.Paused, paused.Scroll = 90*time.Second, 7
	for name, v := range map[string]LoopView{"healthy": loopHealthy(), "hung": loopHung(), "paused": paused, "empty": {Now: loopNow()}} {
		for width := 1; width < 200; width += 7 {
			for height := 1; height < 60; height += 3 {
				lines, _ := v.Lines(width, height, Options{Color: true})
				if len(lines) > height {
					t.Fatalf("%s, %dx%d: %d lines", name, width, height, len(lines))
				}
				for _, line := range lines {
					if n := lipgloss.Width(line); n >= width && width > 1 {
						t.Fatalf("%s, %dx%d: a line of %d columns: %q", name, width, height, n, line)
					}
				}
				if enough := width >= loopMinWidth && height >= loopMinHeight; enough && !strings.Contains(lines[len(lines)-1], "q quits") {
					t.Fatalf("%s, %dx%d: the last line is %q", name, width, height, lines[len(lines)-1])
				}
			}
		}
	}
}

func TestLoopViewTooSmall(t *testing.T) {
	got, scroll := loopLines(LoopView{Scroll: 3}, 40, 10, Options{})
	if diff := cmp.Diff("40x10 is too small\nneeds 60x16\nq quits\n", got); diff != "" || scroll != 3 {
		t.Errorf("scroll %d, (-want +got):\n%s", scroll, diff)
	}
}

// TestLoopViewTells wants what hangs on the screen, with its seconds, wherever the pods are scrolled to.
func TestLoopViewTells(t *testing.T) {
	change := func(f func(*LoopView)) LoopView {
		v := loopHung()
		f(&v)
		return v
	}
	worker := func(s podworkers.WorkerState) LoopView {
		return change(func(v *LoopView) {
			s.UID, s.Name, s.Since = "uid-1", "default/web-01", loopAgo(20*time.Second)
			v.Workers = []podworkers.WorkerState{s}
		})
	}
	tests := []struct {
		name string
		view LoopView
		want string
	}{
		{"skipping, and why", loopHung(), "skipping for 1m00s: [container runtime is down, PLEG is not healthy"},
		{"relist", loopHung(), "one under way for 4m00s"},
		{"waiting workers out of sight", change(func(v *LoopView) { v.Scroll = 99 }), "28 at work or waiting, at most 3m59s: default/web-00"},
		{"source", loopHung(), "api not seen yet"},
		{"pressure", loopHung(), "DiskPressure True for 4m00s, KubeletHasDiskPressure"},
		{"old snapshot", change(func(v *LoopView) { v.At = loopAgo(9 * time.Second) }), "no answer of the syncLoop for 9.0 s"},
		{"paused", change(func(v *LoopView) { v.Paused = 9 * time.Second }), "paused for 9.0 s"},
		{"no turn", change(func(v *LoopView) { v.Loop = syncloop.LoopState{} }), "no turn yet"},
		{"no relist", change(func(v *LoopView) { v.PLEG = pleg.Snapshot{} }), "no good relist yet"},
		{"no conditions", change(func(v *LoopView) { v.Conditions = nil }), "no conditions yet"},
		{"no sources", change(func(v *LoopView) { v.Sources = nil }), "SOURCES  none"},
		{"no worker", loopHung(), "no worker"},
		{"worker without its pod", loopHung(), "3m59s   terminating, stops containers"},
		{"waits for its turn", worker(podworkers.WorkerState{Step: "sync"}), "20.0 s  sync, waits for its turn"},
		{"waits for PLEG", worker(podworkers.WorkerState{Step: "sync", Started: true, WaitingInCache: true, Busy: true}), "20.0 s  sync, waits for PLEG"},
		{"at work", worker(podworkers.WorkerState{Step: "sync", Started: true, Busy: true}), "20.0 s  sync, at work"},
		{"idle", worker(podworkers.WorkerState{Step: "sync", Started: true}), "20.0 s  sync, idle"},
		{"finished", worker(podworkers.WorkerState{Step: "finished"}), "20.0 s  finished, idle"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got, _ := loopLines(test.view, 120, 40, Options{}); !strings.Contains(got, test.want) {
				t.Errorf("there is no %q in\n%s", test.want, got)
			}
		})
	}
}

func TestLoopViewScroll(t *testing.T) {
	firstPod := func(lines []string) string {
		i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "POD ") })
		name, _, _ := strings.Cut(lines[i+1], " ")
		return name
	}
	tests := []struct {
		scroll, want int
		first        string
	}{
		{0, 0, "default/web-00"},
		{-3, 0, "default/web-00"},
		{5, 5, "default/web-05"},
		{99, 27, "default/web-27"}, // 31 rows, of which 4 fit
	}
	for _, test := range tests {
		v := loopHung()
		v.Scroll = test.scroll
		lines, got := v.Lines(90, 24, Options{})
		if first := firstPod(lines); got != test.want || first != test.first {
			t.Errorf("scroll %d: got %d, first pod %s; want %d, %s\n%s", test.scroll, got, first, test.want, test.first, strings.Join(lines, "\n"))
		}
	}
}

func TestLoopViewPlain(t *testing.T) {
	color, _ := loopLines(loopHung(), 80, 24, Options{Color: true})
	bare, _ := loopLines(loopHung(), 80, 24, Options{})
	if strings.Contains(bare, "\x1b") {
		t.Errorf("escape codes without colour:\n%q", bare)
	}
	var stripped strings.Builder
	for i, part := range strings.Split(color, "\x1b[") {
		if i > 0 {
			_, part, _ = strings.Cut(part, "m")
		}
		stripped.WriteString(part)
	}
	if diff := cmp.Diff(bare, stripped.String()); diff != "" {
		t.Errorf("colour changes more than colour (-plain +color):\n%s", diff)
	}
}
