package syncloop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kdiag/kdiag/plegbench/syncloop/config"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/pleg"
	"github.com/kdiag/kdiag/plegbench/syncloop/prober"
)

// A rig is a loop whose handler writes down what it is asked.
type rig struct {
	loop   *loop
	mu     sync.Mutex
	calls  []string
	lines  []string // of the log, with the seconds since the start
	start  time.Time
	broken error // of the runtime
	clean  time.Duration

	updates                      chan config.PodUpdate
	events                       chan pleg.Event
	liveness, readiness, startup chan prober.Update
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{
		start: time.Now(), updates: make(chan config.PodUpdate, 50), events: make(chan pleg.Event, 1000),
		liveness: make(chan prober.Update, 20), readiness: make(chan prober.Update, 20), startup: make(chan prober.Update, 20),
	}
	log := funcr.New(func(_, args string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.lines = append(r.lines, fmt.Sprintf("%.1f %s", time.Since(r.start).Seconds(), args))
	}, funcr.Options{Verbosity: 5})
	r.loop = &loop{
		handler: r, log: log, periods: DefaultPeriods(),
		updates: r.updates, events: r.events, livenessCh: r.liveness, readinessCh: r.readiness, startupCh: r.startup,
	}
	return r
}

func named(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)}}
}

func (r *rig) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, fmt.Sprintf(format, args...))
}

func (r *rig) took() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.calls
	r.calls = nil
	return out
}

func (r *rig) breakRuntime(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken = err
}

func (r *rig) handled(what string, pods []*v1.Pod) {
	for _, p := range pods {
		r.note("%s %s", what, p.Name)
	}
}

func (r *rig) HandlePodAdditions(pods []*v1.Pod) { r.handled("add", pods) }
func (r *rig) HandlePodUpdates(pods []*v1.Pod)   { r.handled("update", pods) }
func (r *rig) HandlePodRemoves(pods []*v1.Pod)   { r.handled("remove", pods) }
func (r *rig) HandlePodReconcile(pods []*v1.Pod) { r.handled("reconcile", pods) }
func (r *rig) HandlePodSyncs(pods []*v1.Pod)     { r.handled("sync", pods) }
func (r *rig) HandlePodCleanups(ctx context.Context) error {
	sleep(ctx, r.clean)
	return nil
}

func (r *rig) runtimeErrors() error { r.mu.Lock(); defer r.mu.Unlock(); return r.broken }
func (r *rig) podByUID(uid types.UID) (*v1.Pod, bool) {
	return named(string(uid)), strings.HasPrefix(string(uid), "pod")
}
func (r *rig) podsDue() []*v1.Pod         { return nil }
func (r *rig) sourcesReady() bool         { return true }
func (r *rig) sawSource(source string)    { r.note("saw %s", source) }
func (r *rig) notify(what, detail string) { r.note("event %s %s", what, detail) }
func (r *rig) probed(probe string, uid types.UID, _ container.ID, ok bool) {
	r.note("%s %s %v", probe, uid, ok)
}

// begin runs the loop until the test's end.
func (r *rig) begin(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.loop.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the loop ended with %v", err)
		}
	})
}

func TestLoopDispatch(t *testing.T) {
	tests := []struct {
		name string
		send func(r *rig)
		want []string
	}{
		{"add", func(r *rig) {
			r.updates <- config.PodUpdate{Op: config.Add, Source: "file", Pods: []*v1.Pod{named("a"), named("b")}}
		}, []string{"add a", "add b", "saw file"}},
		{"update", func(r *rig) {
			r.updates <- config.PodUpdate{Op: config.Update, Source: "api", Pods: []*v1.Pod{named("a")}}
		}, []string{"update a", "saw api"}},
		{"a deletion is an update", func(r *rig) {
			r.updates <- config.PodUpdate{Op: config.Delete, Source: "api", Pods: []*v1.Pod{named("a")}}
		}, []string{"update a", "saw api"}},
		{"remove", func(r *rig) {
			r.updates <- config.PodUpdate{Op: config.Remove, Source: "api", Pods: []*v1.Pod{named("a")}}
		}, []string{"remove a", "saw api"}},
		{"reconcile", func(r *rig) {
			r.updates <- config.PodUpdate{Op: config.Reconcile, Source: "api", Pods: []*v1.Pod{named("a")}}
		}, []string{"reconcile a", "saw api"}},
		{"started", func(r *rig) { r.events <- pleg.Event{ID: "pod1", Type: pleg.ContainerStarted, Data: "c"} }, []string{"sync pod1"}},
		{"died", func(r *rig) { r.events <- pleg.Event{ID: "pod1", Type: pleg.ContainerDied, Data: "c"} }, []string{"sync pod1"}},
		{"removed", func(r *rig) { r.events <- pleg.Event{ID: "pod1", Type: pleg.ContainerRemoved, Data: "c"} }, nil},
		{"of an unknown pod", func(r *rig) { r.events <- pleg.Event{ID: "x", Type: pleg.ContainerStarted, Data: "c"} }, nil},
		{"liveness failed", func(r *rig) { r.liveness <- prober.Update{PodUID: "pod1", Result: prober.Failure} }, []string{"sync pod1"}},
		{"liveness succeeded", func(r *rig) { r.liveness <- prober.Update{PodUID: "pod1", Result: prober.Success} }, nil},
		{"ready", func(r *rig) { r.readiness <- prober.Update{PodUID: "pod1", Result: prober.Success} }, []string{"readiness pod1 true", "sync pod1"}},
		{"not ready", func(r *rig) { r.readiness <- prober.Update{PodUID: "pod1", Result: prober.Failure} }, []string{"readiness pod1 false", "sync pod1"}},
		{"startup failed", func(r *rig) { r.startup <- prober.Update{PodUID: "pod1", Result: prober.Failure} }, []string{"startup pod1 false", "sync pod1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.begin(t)
				tt.send(r)
				synctest.Wait()
				if diff := cmp.Diff(tt.want, r.took()); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// While the runtime is in trouble the loop drains nothing, logs it with growing pauses, and leaves its monitor as it
// was.
func TestLoopSkips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.breakRuntime(errors.New("container runtime is down"))
		r.begin(t)
		r.updates <- config.PodUpdate{Op: config.Add, Source: "file", Pods: []*v1.Pod{named("a")}}
		r.events <- pleg.Event{ID: "pod1", Type: pleg.ContainerStarted}
		time.Sleep(22 * time.Second)
		synctest.Wait()
		var at []string
		r.mu.Lock()
		for _, line := range r.lines {
			if strings.Contains(line, `"msg"="Skipping pod synchronization" "error"="container runtime is down"`) {
				when, _, _ := strings.Cut(line, " ")
				at = append(at, when)
			}
		}
		r.mu.Unlock()
		if diff := cmp.Diff([]string{"0.0", "0.1", "0.3", "0.7", "1.5", "3.1", "6.3", "11.3", "16.3", "21.3"}, at); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"event skip container runtime is down"}, r.took()); diff != "" {
			t.Error(diff)
		}
		if err := r.loop.healthy(); err != nil {
			t.Errorf("a loop that has never turned counts as healthy, not as %v", err)
		}
		r.breakRuntime(nil)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		got := r.took()
		slices.Sort(got) // which channel goes first is random
		if diff := cmp.Diff([]string{"add a", "event resume 26.3s", "saw file", "sync pod1"}, got); diff != "" {
			t.Error(diff)
		}
		r.breakRuntime(errors.New("again"))
		time.Sleep(4 * time.Minute)
		if err := r.loop.healthy(); err != nil {
			t.Errorf("after four minutes: %v", err)
		}
		time.Sleep(2 * time.Minute)
		if err := r.loop.healthy(); err == nil || err.Error() != "sync Loop took longer than expected" {
			t.Errorf("after six minutes: %v", err)
		}
	})
}

// A housekeeping that hangs holds up everything else, and is logged when it ends.
func TestLoopHousekeeping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.clean = 2 * time.Minute
		r.begin(t)
		time.Sleep(3 * time.Second) // it has begun
		r.updates <- config.PodUpdate{Op: config.Add, Source: "file", Pods: []*v1.Pod{named("a")}}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := r.took(); len(got) > 0 {
			t.Errorf("during housekeeping: %v", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		r.mu.Lock()
		logged := slices.ContainsFunc(r.lines, func(line string) bool {
			return strings.Contains(line, `"Housekeeping took longer than expected" "error"="housekeeping took too long" "expected"="1s" "actual"="2m0s"`)
		})
		r.mu.Unlock()
		if !logged {
			t.Errorf("not logged: %q", r.lines)
		}
	})
}

func TestPeriodsFaster(t *testing.T) {
	p := DefaultPeriods().Faster(60)
	if p.RelistThreshold != 3*time.Second || p.Request != 2*time.Second || p.SkipFirst != leastPeriod {
		t.Errorf("%+v", p)
	}
}

// A shorter CrashLoopBackOff changes neither when it begins anew nor how long a failed pull waits (newCrashLoopBackOff
// in pkg/kubelet/kubelet.go).
func TestPeriodsFor(t *testing.T) {
	k, _, err := LoadKubelet("", nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(DefaultPeriods(), PeriodsFor(k)); diff != "" {
		t.Error(diff)
	}
	k.CrashLoopBackOff.MaxContainerRestartPeriod.Duration = 5 * time.Second
	want := DefaultPeriods()
	want.CrashFirst, want.CrashMost = 5*time.Second, 5*time.Second
	if diff := cmp.Diff(want, PeriodsFor(k)); diff != "" {
		t.Error(diff)
	}
}
