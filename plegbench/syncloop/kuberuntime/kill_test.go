package kuberuntime

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
)

func seconds(n int64) *int64 { return &n }

// TestKillPod checks what a container's end gets of the grace period, and the events of a hook.
func TestKillPod(t *testing.T) {
	exec := &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"stop"}}}
	failed := []string{"Warning FailedPreStopHook PreStopHook failed"}
	for _, tt := range []struct {
		name            string
		grace, deletion *int64
		noOwn           bool // the pod has no grace period
		hook            *v1.LifecycleHandler
		takes           time.Duration // by the hook
		code            int32
		want            time.Duration // grace of StopContainer
		events          []string
	}{
		{name: "none is set", noOwn: true, want: 2},
		{name: "of the deletion", deletion: seconds(5), want: 5},
		{name: "an override of 0", grace: seconds(0), hook: exec, want: 2},
		{name: "hook in time", hook: exec, takes: 10, want: 20},
		{name: "hook takes too long", hook: exec, takes: 3600, want: 2},
		{name: "hook fails", hook: exec, takes: 1, code: 1, want: 29, events: failed},
		{name: "hook sleeps too long", hook: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 60}}, want: 2},
	} {
		looptest.Bubble(t, tt.name, func(t *testing.T) {
			delay := fake.Duration(tt.takes*time.Second + 1)
			r, p := newHarness(t, fake.Fault{RPC: "ExecSync", Delay: delay}), testPod("main")
			p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: tt.hook}
			live := r.running(t, p)
			if p.DeletionGracePeriodSeconds = tt.deletion; tt.noOwn {
				p.Spec.TerminationGracePeriodSeconds = nil
			}
			r.cri.exitCode = tt.code
			looptest.Must(t, r.KillPod(t.Context(), p, live, tt.grace).Err)
			looptest.Equal(t, "grace", map[string]time.Duration{"main": tt.want * time.Second}, r.cri.stops)
			killing := "Normal Killing Stopping container main"
			looptest.Equal(t, "events", append([]string{killing}, tt.events...), r.recorded())
		})
	}
}

// TestKillPodOrder checks that the regular containers end together and then the sidecars, the last first, within one
// grace period.
func TestKillPodOrder(t *testing.T) {
	type times map[string]time.Duration // in seconds
	for _, tt := range []struct {
		grace       *int64
		takes, want times // want is the grace of StopContainer
	}{
		{nil, times{"a": 3, "b": 5, "s2": 4, "s1": 1}, times{"a": 30, "b": 30, "s2": 25, "s1": 21}},
		{seconds(10), times{"a": 10}, times{"a": 10, "b": 10, "s2": 2, "s1": 2}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var faults []fake.Fault
			for name, s := range tt.takes {
				of := fake.Object{Container: name}
				faults = append(faults, fake.Fault{RPC: "StopContainer", Object: of, Delay: fake.Duration(s * time.Second)})
			}
			r := newHarness(t, faults...)
			p := with(testPod("a", "b"), looptest.WithInit("s1", "s2"))
			live := r.running(t, p)
			start := time.Now()
			looptest.Must(t, r.KillPod(t.Context(), p, live, tt.grace).Err)
			calls := r.cri.took()
			slices.Sort(calls[:2]) // both at once
			looptest.Equal(t, "calls", []string{
				"StopContainer a", "StopContainer b", "StopContainer s2", "StopContainer s1", "StopPodSandbox web 0",
			}, calls)
			looptest.Equal(t, "duration", 10*time.Second, time.Since(start))
			for name, s := range tt.want {
				looptest.Equal(t, "grace of "+name, s*time.Second, r.cri.stops[name])
			}
		})
	}
}

func TestKillPodFailures(t *testing.T) {
	r := newHarness(t,
		fake.Fault{RPC: "StopContainer", Object: fake.Object{Container: "a"}, Error: "Unknown: stuck", First: 1},
		fake.Fault{RPC: "StopContainer", Object: fake.Object{Container: "b"}, Error: "NotFound: gone"},
		fake.Fault{RPC: "StopPodSandbox", Error: "Unknown: no CNI", First: 1},
		fake.Fault{RPC: "StopPodSandbox", Error: "NotFound: gone"})
	p := testPod("a", "b")
	live := r.running(t, p)
	failsWith(t, `[failed to "KillContainer" for "a" with KillContainerError: "rpc error: code = Unknown desc = stuck", `+
		`failed to "KillPodSandbox" for "uid-1" with KillPodSandboxError: "rpc error: code = Unknown desc = no CNI"]`,
		r.KillPod(t.Context(), p, live, nil))
	// Without the pod's object, as for one that only the runtime has.
	looptest.Must(t, r.KillPod(t.Context(), nil, live, seconds(4)).Err) // what is gone already is no error
	looptest.Equal(t, "grace", map[string]time.Duration{"a": 4 * time.Second}, r.cri.stops)
}
