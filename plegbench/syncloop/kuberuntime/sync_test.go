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
			looptest.Equal(t, "calls", "RunPodSandbox web 0, PodSandboxStatus web 0"+tt.calls, strings.Join(r.cri.took(), ", "))
			looptest.Equal(t, "first event", tt.event, r.recorded()[0])
		})
	}
	r := newHarness(t, fake.Fault{RPC: "CreateContainer", Error: full, Object: fake.Object{Container: "init"}})
	p := with(testPod("main"), looptest.WithInit("s", "init"))
	r.sync(t, p)
	failsWith(t, `failed to "StartContainer" for "init" with CreateContainerError: "disk full"`, r.sync(t, p))
	looptest.Equal(t, "calls after an init container that fails", []string{"CreateContainer init"}, r.cri.took())
}

func TestSyncCrashLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newHarness(t)
		p := testPod("main")
		crash := func() {
			time.Sleep(time.Second)
			looptest.Must(t, r.cri.StopContainer(t.Context(), r.now(t, p).Find("main").ID.ID, 0))
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
			looptest.Must(t, r.sync(t, p).Err)
		}
		const event = "Warning BackOff Back-off restarting failed container main in pod web_shop(uid-1)"
		if events := r.recorded(); !slices.Contains(events, event) {
			t.Errorf("events %q", events)
		}
		// One that ran long enough begins anew.
		time.Sleep(11 * time.Minute)
		crash()
		looptest.Must(t, r.sync(t, p).Err)
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
	looptest.Equal(t, "events", []string{
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
			looptest.Equal(t, "calls", want, strings.Join(calls, " "))
		})
	}
}
