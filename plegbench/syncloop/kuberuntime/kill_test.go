package kuberuntime

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/exec"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// running starts a pod's containers, sidecars too, and returns it as the lists have it.
func (r *rig) running(t *testing.T, p *v1.Pod) *container.Pod {
	t.Helper()
	for range 10 {
		if res := r.SyncPod(t.Context(), p, r.now(t, p)); res.Err != nil {
			t.Fatal(res.Err)
		} else if !res.Changed() {
			break
		}
	}
	r.happened()
	return r.now(t, p).RunningPod(r.RuntimeName)
}

func seconds(n int64) *int64 { return &n }

func TestGrace(t *testing.T) {
	probe := &v1.Probe{TerminationGracePeriodSeconds: seconds(7)}
	for _, tt := range []struct {
		name                    string
		override, deletion, own *int64
		probe                   *v1.Probe
		want                    int64
	}{
		{"nothing said", nil, nil, nil, nil, 2},
		{"the pod's", nil, nil, seconds(30), nil, 30},
		{"of the deletion", nil, seconds(5), seconds(30), probe, 5},
		{"of the probe", nil, nil, seconds(30), probe, 7},
		{"the probe has none", nil, nil, seconds(30), &v1.Probe{}, 30},
		{"an override", seconds(9), seconds(5), seconds(30), probe, 9},
		{"an override of 0", seconds(0), nil, seconds(30), nil, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, p := newRig(t), testPod("main")
			id := r.running(t, p).Containers[0].ID
			p.DeletionGracePeriodSeconds, p.Spec.TerminationGracePeriodSeconds = tt.deletion, tt.own
			if err := r.killContainer(t.Context(), p, Kill{ID: id, Name: "main", Probe: tt.probe}, tt.override, 0); err != nil {
				t.Fatal(err)
			}
			same(t, "grace", time.Duration(tt.want)*time.Second, r.cri.stops["main"])
		})
	}
}

func TestKillPodOrder(t *testing.T) {
	type times map[string]time.Duration
	for name, tt := range map[string]struct {
		grace *int64
		takes times
		want  times // grace of StopContainer
		took  time.Duration
	}{
		"5 s for the regular ones, 4 and 1 for the sidecars": {
			nil, times{"a": 3, "b": 5, "s2": 4, "s1": 1}, times{"a": 30, "b": 30, "s2": 25, "s1": 21}, 10,
		},
		"no time is left": {seconds(10), times{"a": 3600}, times{"a": 10, "b": 10, "s2": 2, "s1": 2}, 10},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				p := withInit(testPod("a", "b"), "s1", "s2")
				live := r.running(t, p)
				for name, s := range tt.takes {
					r.cri.takes[name] = s * time.Second
				}
				start := time.Now()
				if res := r.KillPod(t.Context(), p, live, tt.grace); res.Err != nil {
					t.Fatal(res.Err)
				}
				calls := r.cri.took()
				slices.Sort(calls[:2]) // both at once
				same(t, "calls", []string{"StopContainer a", "StopContainer b", "StopContainer s2", "StopContainer s1", "StopPodSandbox sb1"}, calls)
				if took := time.Since(start); took != tt.took*time.Second {
					t.Errorf("took %v", took)
				}
				for name, s := range tt.want {
					if got := r.cri.stops[name]; got != s*time.Second {
						t.Errorf("%s: grace %v, want %v", name, got, s*time.Second)
					}
				}
			})
		})
	}
}

func TestKillPodFailures(t *testing.T) {
	r := newRig(t)
	p := testPod("a", "b")
	live := r.running(t, p)
	r.cri.fail["StopContainer a"] = errors.New("stuck")
	r.cri.fail["StopContainer b"] = status.Error(codes.NotFound, "gone")
	r.cri.fail["StopPodSandbox"] = errors.New("no CNI")
	failsWith(t, `[failed to "KillContainer" for "a" with KillContainerError: "stuck", `+
		`failed to "KillPodSandbox" for "uid-1" with KillPodSandboxError: "no CNI"]`, r.KillPod(t.Context(), p, live, nil))
	delete(r.cri.fail, "StopContainer a")
	r.cri.fail["StopPodSandbox"] = status.Error(codes.NotFound, "gone")
	if res := r.KillPod(t.Context(), p, live, nil); res.Err != nil {
		t.Errorf("what is gone is no error: %v", res.Err)
	}
}

func TestKillUnknownPod(t *testing.T) {
	r := newRig(t)
	live := r.running(t, testPod("main"))
	if res := r.KillPod(t.Context(), nil, live, seconds(4)); res.Err != nil {
		t.Fatal(res.Err)
	}
	same(t, "grace", map[string]time.Duration{"main": 4 * time.Second}, r.cri.stops)
	same(t, "events", []string{"Normal Killing Stopping container main"}, r.happened())
}

func TestPreStop(t *testing.T) {
	exec := &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"stop"}}}
	for _, tt := range []struct {
		name   string
		hook   *v1.LifecycleHandler
		takes  time.Duration
		code   int32
		grace  *int64
		want   time.Duration // grace of StopContainer
		events []string
	}{
		{"in time", exec, 10 * time.Second, 0, nil, 20 * time.Second, nil},
		{"too long", exec, time.Hour, 0, nil, 2 * time.Second, nil},
		{"fails", exec, time.Second, 1, nil, 29 * time.Second, []string{"Warning FailedPreStopHook PreStopHook failed"}},
		{"no time for it", exec, time.Second, 0, seconds(0), 2 * time.Second, nil},
		{
			"invalid", &v1.LifecycleHandler{TCPSocket: &v1.TCPSocketAction{}}, 0, 0, nil, 30 * time.Second,
			[]string{"Warning FailedPreStopHook PreStopHook failed"},
		},
		{"sleeps too long", &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 60}}, 0, 0, nil, 2 * time.Second, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				p := testPod("main")
				p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: tt.hook}
				live := r.running(t, p)
				r.cri.takes["exec main"], r.cri.exitCode = tt.takes, tt.code
				if res := r.KillPod(t.Context(), p, live, tt.grace); res.Err != nil {
					t.Fatal(res.Err)
				}
				same(t, "grace", map[string]time.Duration{"main": tt.want}, r.cri.stops)
				same(t, "events", append([]string{"Normal Killing Stopping container main"}, tt.events...), r.happened())
			})
		})
	}
}

func TestExec(t *testing.T) {
	r := newRig(t)
	live := r.running(t, testPod("main"))
	r.cri.exitCode = 3
	out, err := r.Exec(t.Context(), live.Containers[0].ID, []string{"a", "b"}, time.Second)
	var exit exec.ExitError
	if !errors.As(err, &exit) || exit.ExitStatus() != 3 || string(out) != "outerr" {
		t.Errorf("%q, %v", out, err)
	}
	same(t, "calls", []string{"ExecSync main [a b] 1s"}, r.cri.took())
	r.cri.takes["exec main"] = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Exec(ctx, live.Containers[0].ID, nil, 0); status.Code(err) != codes.Canceled {
		t.Errorf("a cancelled call: %v", err)
	}
}
