package syncloopcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
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

func now() time.Time { return time.Date(2026, 3, 1, 12, 30, 45, 0, time.UTC) }

// hung is a node with pods whose runtime has not answered for four minutes, and its log.
func hung(pods int) (syncloop.Snapshot, []string) {
	ago := func(d time.Duration) time.Time { return now().Add(-d) }
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
		PLEG: pleg.Snapshot{
			LastRelist: ago(242 * time.Second), InProgressSince: ago(4 * time.Minute), Relists: 1200, Failures: 3,
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
		uid, name := types.UID(fmt.Sprint("uid-", i)), fmt.Sprintf("web-%02d", i)
		s.Pods = append(s.Pods, &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: uid},
			Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "app"}}},
			Status: v1.PodStatus{
				Phase:             v1.PodPending,
				ContainerStatuses: []v1.ContainerStatus{{Name: "app", RestartCount: 2}},
			},
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
	return s, []string{"I0301 12:30:40.000001    4242 loop.go:161] \"SyncLoop ADD\"", "E0301 \"Error\""}
}

func TestDraw(t *testing.T) {
	want := `kdiag syncloop  12:30:45 UTC  lab-1  containerd v2.1.4
LOOP    last turn 1m ago, 1234 turns, 2 updates pending
        skipping for 1m: PLEG is not healthy: pleg was last seen active 4m2s ago; threshol
PLEG    last good relist 4m2s ago, 1200 relists, 3 failed, 0 pods to inspect again
        relist in progress for 4m
        events: 0 pending, 0 dropped
NODE    Ready False for 1m: PLEG is not healthy: pleg was last seen active 4m2s ago; thres
PODS    2, workers: 2, the busy first
default/old                                   gone       terminating, works, 3m59s
default/web-01                                Pending    sync, waits for PLEG, 1s
LOG
I0301 12:30:40.000001    4242 loop.go:161] "SyncLoop ADD"
E0301 "Error"
`
	s, log := hung(2)
	var got strings.Builder
	for _, line := range draw(s, log, now(), 91, 19, false) {
		got.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Error(diff)
	}
	if colored := strings.Join(draw(s, log, now(), 91, 19, true), "\n"); !strings.Contains(colored,
		"\x1b[31mNODE    Ready False") {
		t.Errorf("no colour in %q", colored)
	}
}

// TestDrawFits checks that no line reaches the last column and none is below the screen, in any size.
func TestDrawFits(t *testing.T) {
	full, log := hung(30)
	for name, s := range map[string]syncloop.Snapshot{"hung": full, "empty": {}} {
		for width := 1; width < 200; width += 7 {
			for height := 1; height < 60; height += 3 {
				lines := draw(s, log, now(), width, height, false)
				if len(lines) > height {
					t.Fatalf("%s, %dx%d: %d lines", name, width, height, len(lines))
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

// TestRun checks that the view moves, and that the screen is restored however the work ends.
func TestRun(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct {
		name string
		work func(context.Context) error
		want string
	}{
		{"interrupted", func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Minute) // a runtime that hangs
			return nil
		}, "kdiag: ending"},
		{"failed", func(context.Context) error {
			time.Sleep(2 * time.Second)
			return broken
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, interrupt := context.WithTimeout(t.Context(), 3*time.Second)
				defer interrupt()
				var screen, stderr strings.Builder
				turns := int64(0)
				v := &viewer{
					screen: &screen, log: &logLines{}, err: &stderr,
					size: func() (int, int, error) { return 80, 24, nil },
					snapshot: func() syncloop.Snapshot {
						turns++
						return syncloop.Snapshot{Loop: syncloop.LoopState{Turns: turns}}
					},
				}
				for i := range 2 * keptLines {
					_, _ = fmt.Fprintf(v.log, "line %d\n", i)
				}
				_, _ = io.WriteString(v.log, "last\nwords \x1b[31m\n")
				err := v.run(ctx, tt.work)
				time.Sleep(2 * redrawEvery)
				if tt.name == "failed" && !errors.Is(err, broken) || tt.name != "failed" && err != nil {
					t.Errorf("error %v", err)
				}
				got := screen.String()
				if !strings.HasPrefix(got, enterScreen) || !strings.HasSuffix(got, leaveScreen) ||
					!strings.Contains(got, "3 turns") ||
					!strings.Contains(got, "last\x1b[K\r\nwords \\x1b[31m\x1b[K") {
					t.Errorf("drawn %q", got)
				}
				if !strings.Contains(stderr.String(), tt.want) {
					t.Errorf("stderr %q, want %q", stderr.String(), tt.want)
				}
			})
		})
	}
}
