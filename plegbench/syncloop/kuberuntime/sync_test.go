package kuberuntime

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
)

func TestSyncFailures(t *testing.T) {
	const full = "Unknown: disk full"
	const sandbox = `failed to "CreatePodSandbox" for "web_shop(uid-1)" with CreatePodSandboxError: ` +
		`"Failed to create sandbox for pod \"web_shop(uid-1)\": rpc error: code = Unknown desc = disk full"`
	const sandboxEvent = "Warning FailedCreatePodSandBox Failed to create pod sandbox: " +
		"rpc error: code = Unknown desc = disk full"
	both := func(text string) string {
		const start = `failed to "StartContainer" for `
		return "[" + start + `"main" with ` + text + ", " + start + `"side" with ` + text + "]"
	}
	for _, tt := range []struct {
		name, call  string // that fails, and of which container
		image       error
		want, event string
		calls       string // after those of the sandbox
	}{
		{name: "sandbox status", call: "PodSandboxStatus", want: sandbox, event: sandboxEvent},
		{
			name: "create one of two", call: "CreateContainer main", event: "Warning Failed Error: disk full",
			want:  `failed to "StartContainer" for "main" with CreateContainerError: "disk full"`,
			calls: ", CreateContainer main, CreateContainer side, StartContainer side",
		},
		{
			name: "start both", call: "StartContainer", event: "Normal Created Container created",
			want:  both(`RunContainerError: "disk full"`),
			calls: ", CreateContainer main, StartContainer main, CreateContainer side, StartContainer side",
		},
		{
			name: "image", call: "Version", image: errors.New("ErrImagePull"), event: "Warning Failed Error: ErrImagePull",
			want: both(`ErrImagePull: "no such image"`),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rpc, name, _ := strings.Cut(tt.call, " ")
			r := newHarness(t, fake.Fault{RPC: rpc, Error: full, Object: fake.Object{Container: name}})
			p := testPod("main", "side")
			r.imageErr = tt.image
			failsWith(t, tt.want, r.sync(t, p))
			testkit.Equal(t, "calls", "RunPodSandbox web 0, PodSandboxStatus web 0"+tt.calls, strings.Join(r.cri.took(), ", "))
			testkit.Equal(t, "first event", tt.event, r.recorded()[0])
		})
	}
	r := newHarness(t, fake.Fault{RPC: "CreateContainer", Error: full, Object: fake.Object{Container: "init"}})
	p := with(testPod("main"), looptest.WithInit("s", "init"))
	r.sync(t, p)
	failsWith(t, `failed to "StartContainer" for "init" with CreateContainerError: "disk full"`, r.sync(t, p))
	testkit.Equal(t, "calls after an init container that fails", []string{"CreateContainer init"}, r.cri.took())
}

func TestSyncCrashLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newHarness(t)
		p := testPod("main")
		crash := func() {
			time.Sleep(time.Second)
			testkit.Must(t, r.cri.StopContainer(t.Context(), r.now(t, p).Find("main").ID.ID, 0))
		}
		r.sync(t, p)
		for _, wait := range []time.Duration{0, 10, 20, 40, 80, 160, 300, 300} {
			wait *= time.Second
			crash()
			if wait > 0 {
				res := r.sync(t, p)
				if time.Until(res.Until) != wait || !errors.Is(res.Actions[0].Err, ErrCrashLoopBackOff) {
					t.Fatalf("wait %v: %+v", wait, res)
				}
				failsWith(t, `failed to "StartContainer" for "main" with CrashLoopBackOff: "back-off `+wait.String()+
					` restarting failed container=main pod=web_shop(uid-1)"`, res)
			}
			time.Sleep(wait)
			testkit.Must(t, r.sync(t, p).Err)
		}
		const event = "Warning BackOff Back-off restarting failed container main in pod web_shop(uid-1)"
		if events := r.recorded(); !slices.Contains(events, event) {
			t.Errorf("events %q", events)
		}
		// One that ran long enough begins anew.
		time.Sleep(11 * time.Minute)
		crash()
		testkit.Must(t, r.sync(t, p).Err)
	})
}

func TestPostStart(t *testing.T) {
	r := newHarness(t)
	p := testPod("main")
	hook := &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}
	p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: hook}
	r.cri.exitCode = 3
	failsWith(t, `failed to "StartContainer" for "main" with PostStartHookError: "lifecycle hook for Container `+
		`\"main\" in Pod \"web_shop(uid-1)\" failed - error: command 'true' exited with 3: err, message: \"outerr\""`,
		r.sync(t, p))
	testkit.Equal(t, "events", []string{
		"Normal Created Container created", "Normal Started Container started",
		"Warning FailedPostStartHook PostStartHook failed", "Normal Killing FailedPostStartHook",
	}, r.recorded())
}

// TestStartsAtATime checks that a pod keeps its place from its sandbox to its first container, and then leaves it to
// the next, and that without a limit both start at once.
func TestStartsAtATime(t *testing.T) {
	for places, want := range []string{"Run Run Start Start", "Run Start Run Start"} {
		synctest.Test(t, func(t *testing.T) {
			delay := fake.Duration(100 * time.Millisecond) // in which the other could begin
			r := newHarness(t, fake.Fault{RPC: "RunPodSandbox", Delay: delay})
			r.starts = make(startLimiter, places)
			one := testPod("main")
			two := one.DeepCopy()
			two.Name, two.UID = "two", "uid-2"
			oneNow, twoNow := r.now(t, one), r.now(t, two)
			var both sync.WaitGroup
			both.Go(func() { r.SyncPod(t.Context(), one, oneNow) })
			both.Go(func() { r.SyncPod(t.Context(), two, twoNow) })
			both.Wait()
			var calls []string
			for _, call := range r.cri.took() {
				if name, _, _ := strings.Cut(call, " "); name == "RunPodSandbox" || name == "StartContainer" {
					calls = append(calls, strings.TrimSuffix(strings.TrimSuffix(name, "PodSandbox"), "Container"))
				}
			}
			testkit.Equal(t, "calls", want, strings.Join(calls, " "))
		})
	}
}

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
		testkit.Bubble(t, tt.name, func(t *testing.T) {
			delay := fake.Duration(tt.takes*time.Second + 1)
			r, p := newHarness(t, fake.Fault{RPC: "ExecSync", Delay: delay}), testPod("main")
			p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PreStop: tt.hook}
			live := r.running(t, p)
			if p.DeletionGracePeriodSeconds = tt.deletion; tt.noOwn {
				p.Spec.TerminationGracePeriodSeconds = nil
			}
			r.cri.exitCode = tt.code
			testkit.Must(t, r.KillPod(t.Context(), p, live, tt.grace).Err)
			testkit.Equal(t, "grace", map[string]time.Duration{"main": tt.want * time.Second}, r.cri.stops)
			killing := "Normal Killing Stopping container main"
			testkit.Equal(t, "events", append([]string{killing}, tt.events...), r.recorded())
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
			testkit.Must(t, r.KillPod(t.Context(), p, live, tt.grace).Err)
			calls := r.cri.took()
			slices.Sort(calls[:2]) // both at once
			testkit.Equal(t, "calls", []string{
				"StopContainer a", "StopContainer b", "StopContainer s2", "StopContainer s1", "StopPodSandbox web 0",
			}, calls)
			testkit.Equal(t, "duration", 10*time.Second, time.Since(start))
			for name, s := range tt.want {
				testkit.Equal(t, "grace of "+name, s*time.Second, r.cri.stops[name])
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
	testkit.Must(t, r.KillPod(t.Context(), nil, live, seconds(4)).Err) // what is gone already is no error
	testkit.Equal(t, "grace", map[string]time.Duration{"a": 4 * time.Second}, r.cri.stops)
}
