package syncloop

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/kubeletconfig"
	"github.com/kdiag/kdiag/plegbench/syncloop/config"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
	"github.com/kdiag/kdiag/plegbench/syncloop/pleg"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
	"github.com/kdiag/kdiag/plegbench/syncloop/podworkers"
	"github.com/kdiag/kdiag/plegbench/syncloop/prober"
)

// A harness is a loop whose handler records its calls.
type harness struct {
	loop   *loop
	start  time.Time
	mu     sync.Mutex
	calls  []string
	lines  []string // of the log, with the seconds since the start
	broken error    // of the runtime
	clean  time.Duration

	updates                      chan config.PodUpdate
	events                       chan pleg.Event
	liveness, readiness, startup chan prober.Update
}

// spin runs a test in a bubble, with a loop whose runtime has that error, and ends the loop after it.
func spin(t *testing.T, broken error, play func(t *testing.T, r *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		probes := func() chan prober.Update { return make(chan prober.Update, 1) }
		r := &harness{
			start: time.Now(), updates: make(chan config.PodUpdate, 1), events: make(chan pleg.Event, 1),
			liveness: probes(), readiness: probes(), startup: probes(), broken: broken,
		}
		r.loop = &loop{
			handler: r, periods: PeriodsFor(kubelet(t)), updates: r.updates, events: r.events,
			livenessCh: r.liveness, readinessCh: r.readiness, startupCh: r.startup,
			log: funcr.New(func(_, args string) {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.lines = append(r.lines, fmt.Sprintf("%.1f %s", time.Since(r.start).Seconds(), args))
			}, funcr.Options{Verbosity: 5}),
		}
		looptest.Run(t, r.loop.run)
		play(t, r)
	})
}

func (r *harness) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, fmt.Sprintf(format, args...))
}

// took compares the calls since the last time, sorted since the order of the channels is random.
func (r *harness) took(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.calls)
	looptest.Equal(t, "calls", want, r.calls)
	r.calls = nil
}

func (r *harness) breakRuntime(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken = err
}

func (r *harness) handlePods(op config.Op, pods []*v1.Pod) {
	for _, p := range pods {
		r.note("%s %s", op, p.Name)
	}
}

func (r *harness) syncPods(pods ...*v1.Pod) {
	for _, p := range pods {
		r.note("sync %s", p.Name)
	}
}

func (r *harness) cleanUpPods(ctx context.Context) error {
	r.mu.Lock()
	clean := r.clean
	r.mu.Unlock()
	sleep(ctx, clean)
	return nil
}

func (r *harness) runtimeErrors() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.broken
}

func (r *harness) podByUID(uid types.UID) (*v1.Pod, bool) {
	return looptest.Pod(string(uid)), strings.HasPrefix(string(uid), "pod")
}
func (r *harness) podsDue() []*v1.Pod         { return nil }
func (r *harness) sourcesReady() bool         { return true }
func (r *harness) sawSource(source string)    { r.note("saw %s", source) }
func (r *harness) notify(what, detail string) { r.note("event %s %s", what, detail) }
func (r *harness) probed(probe string, uid types.UID, _ container.ID, ok bool) {
	r.note("%s %s %v", probe, uid, ok)
}

func TestLoopDispatch(t *testing.T) {
	spin(t, nil, func(t *testing.T, r *harness) {
		for _, op := range []config.Op{config.Remove, config.Add, config.Update, config.Delete, config.Reconcile} {
			r.updates <- config.PodUpdate{Op: op, Source: "file", Pods: []*v1.Pod{looptest.Pod("a"), looptest.Pod("b")}}
			r.took(t, op.String()+" a", op.String()+" b", "saw file")
		}
		for _, tt := range []struct {
			uid  types.UID
			kind pleg.EventType
			want []string
		}{
			{"pod1", pleg.ContainerStarted, []string{"sync pod1"}},
			{"pod1", pleg.ContainerDied, []string{"sync pod1"}},
			{"pod1", pleg.ContainerRemoved, nil},
			{"unknown", pleg.ContainerStarted, nil},
		} {
			r.events <- pleg.Event{ID: tt.uid, Type: tt.kind, Data: "c"}
			r.took(t, tt.want...)
		}
		for _, tt := range []struct {
			probe  chan prober.Update
			uid    types.UID
			result prober.Result
			want   []string
		}{
			{r.liveness, "pod1", prober.Failure, []string{"sync pod1"}},
			{r.liveness, "pod1", prober.Success, nil},
			{r.liveness, "unknown", prober.Failure, nil},
			{r.readiness, "pod1", prober.Success, []string{"readiness pod1 true", "sync pod1"}},
			{r.readiness, "pod1", prober.Failure, []string{"readiness pod1 false", "sync pod1"}},
			{r.startup, "pod1", prober.Failure, []string{"startup pod1 false", "sync pod1"}},
		} {
			tt.probe <- prober.Update{PodUID: tt.uid, Result: tt.result}
			r.took(t, tt.want...)
		}
	})
}

// While the runtime has errors the loop takes nothing, logs them with growing pauses, and leaves its monitor as it was.
func TestLoopSkips(t *testing.T) {
	spin(t, errors.New("container runtime is down"), func(t *testing.T, r *harness) {
		r.updates <- config.PodUpdate{Op: config.Add, Source: "file", Pods: []*v1.Pod{looptest.Pod("a")}}
		r.events <- pleg.Event{ID: "pod1", Type: pleg.ContainerStarted}
		time.Sleep(22 * time.Second)
		r.took(t, "event skip container runtime is down")
		var at []string
		for _, line := range r.lines {
			when, text, _ := strings.Cut(line, " ")
			if strings.Contains(text, `"Skipping pod synchronization" "error"="container runtime is down"`) {
				at = append(at, when)
			}
		}
		want := []string{"0.0", "0.1", "0.3", "0.7", "1.5", "3.1", "6.3", "11.3", "16.3", "21.3"}
		looptest.Equal(t, "times", want, at)
		if err := r.loop.healthy(); err != nil {
			t.Errorf("before its first turn the loop is not healthy: %v", err)
		}
		r.breakRuntime(nil)
		time.Sleep(5 * time.Second)
		r.took(t, "ADD a", "event resume 26.3s", "saw file", "sync pod1")
		r.breakRuntime(errors.New("again"))
		time.Sleep(4 * time.Minute)
		if err := r.loop.healthy(); err != nil {
			t.Errorf("after four minutes: %v", err)
		}
		time.Sleep(2 * time.Minute)
		if err := r.loop.healthy(); err == nil || err.Error() != "sync Loop took longer than expected" {
			t.Errorf("after six minutes: %v", err)
		}
		if s := r.loop.change(nil); time.Since(s.SkippingSince) < 5*time.Minute || s.Why != "again" || s.Turns < 5 {
			t.Errorf("the state is %+v", s)
		}
	})
}

// A housekeeping that hangs holds up everything else, and is logged when it ends.
func TestLoopHousekeeping(t *testing.T) {
	spin(t, nil, func(t *testing.T, r *harness) {
		r.mu.Lock()
		r.clean = 2 * time.Minute
		r.mu.Unlock()
		time.Sleep(3 * time.Second) // it has begun
		r.updates <- config.PodUpdate{Op: config.Add, Source: "file", Pods: []*v1.Pod{looptest.Pod("a")}}
		time.Sleep(time.Minute)
		r.took(t)
		time.Sleep(time.Minute)
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		const want = `"Housekeeping took longer than expected" "error"="housekeeping took too long" ` +
			`"expected"="1s" "actual"="2m0s"`
		if !strings.Contains(strings.Join(r.lines, "\n"), want) {
			t.Errorf("not logged: %q", r.lines)
		}
	})
}

// kubelet is the configuration of a kubelet that has none.
func kubelet(t *testing.T) *kubeletconfig.Config {
	t.Helper()
	k, _, err := LoadKubelet("", nil)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// A shorter CrashLoopBackOff changes neither when it begins anew nor how long a failed pull waits (newCrashLoopBackOff
// in pkg/kubelet/kubelet.go).
func TestPeriods(t *testing.T) {
	k := kubelet(t)
	p := PeriodsFor(k)
	const second, minute = time.Second, time.Minute
	got := []time.Duration{
		p.Request, p.Resync, p.FileCheck, p.HTTPCheck, p.NodeStatus, p.NodeReport, p.CrashFirst, p.CrashMost,
	}
	want := []time.Duration{
		2 * minute, minute, 20 * second, 20 * second, 10 * second, 5 * minute, 10 * second, 5 * minute,
	}
	looptest.Equal(t, "times", want, got)
	k.CrashLoopBackOff.MaxContainerRestartPeriod.Duration = 5 * second
	p.CrashFirst, p.CrashMost = 5*second, 5*second
	looptest.Equal(t, "times", p, PeriodsFor(k))
	p = p.Faster(60)
	if p.RelistThreshold != 3*second || p.Request != 2*second || p.SkipFirst != leastPeriod {
		t.Errorf("%+v", p)
	}
}

// TestStaticPodComesBack takes a static pod away and puts it back unchanged while it terminates: it runs again, once.
func TestStaticPodComesBack(t *testing.T) {
	slowStop := fake.Scenario{Latency: []fake.Latency{{RPC: "StopContainer", Base: second(10)}}}
	onFake(t, slowStop, nil, func(t *testing.T, s *SyncLoop, send func(...*v1.Pod)) {
		p := looptest.Pod("web", looptest.Annotated(pod.ConfigSourceAnnotation, pod.FileSource))
		for _, pods := range [][]*v1.Pod{{p}, nil, {p}} {
			send(pods...)
			time.Sleep(5 * time.Second)
		}
		time.Sleep(time.Minute)
		running, err := s.runtime.GetPods(t.Context(), false)
		if err != nil || len(running) != 1 || len(running[0].Containers) != 1 {
			t.Errorf("running: %+v, %v", running, err)
		}
		var m dto.Metric
		if err := s.metrics.RestartedPods.WithLabelValues("true").Write(&m); err != nil || m.GetCounter().GetValue() != 1 {
			t.Errorf("restarted: %v, %v", &m, err)
		}
	})
}

// TestSafeServer checks what local users, whom the server does not authenticate, are not told unless one asks for it.
func TestSafeServer(t *testing.T) {
	k := kubelet(t)
	if k.EnableDebuggingHandlers {
		t.Error("the debugging handlers are on")
	}
	if k, _, err := LoadKubelet("", map[string][]string{"enable-debugging-handlers": {"true"}}); err != nil ||
		!k.EnableDebuggingHandlers {
		t.Errorf("the debugging handlers cannot be switched on: %v", err)
	}
	k.StaticPodURLHeader = map[string][]string{"Authorization": {"Bearer secret"}}
	looptest.Equal(t, "header", map[string][]string{"Authorization": {"<masked>"}}, configz(k).StaticPodURLHeader)
	looptest.Equal(t, "header in use", []string{"Bearer secret"}, k.StaticPodURLHeader["Authorization"])
}

// TestMirrorStatus changes the status of a mirror, as each report of the node does: its static pod is not synced again.
func TestMirrorStatus(t *testing.T) {
	onFake(t, fake.Scenario{}, nil, func(t *testing.T, s *SyncLoop, send func(...*v1.Pod)) {
		send(looptest.Pod("web", looptest.Annotated(pod.ConfigSourceAnnotation, pod.FileSource)))
		mirror := looptest.Pod("web", looptest.Annotated(pod.ConfigMirrorAnnotation, "hash"))
		mirror.UID = "mirror"
		s.mux.Apply(t.Context(), pod.APIServerSource, []*v1.Pod{mirror.DeepCopy()})
		time.Sleep(10 * time.Second)
		before := syncs(t, s)
		mirror.Status.Phase = v1.PodRunning
		s.mux.Apply(t.Context(), pod.APIServerSource, []*v1.Pod{mirror})
		time.Sleep(10 * time.Second)
		if after := syncs(t, s); before == 0 || after != before {
			t.Errorf("%d syncs, and %d after a report", before, after)
		}
	})
}

// syncs counts the syncs of all pods.
func syncs(t *testing.T, s *SyncLoop) (n uint64) {
	t.Helper()
	for _, kind := range []podworkers.UpdateType{podworkers.Create, podworkers.Update, podworkers.Sync} {
		var m dto.Metric
		if err := s.metrics.PodWorkerDuration.WithLabelValues(string(kind)).(prometheus.Metric).Write(&m); err != nil {
			t.Fatal(err)
		}
		n += m.GetHistogram().GetSampleCount()
	}
	return n
}

// TestFeatureGates has gates of a command and of a kubelet's file. The file may have gates that only a kubelet knows.
func TestFeatureGates(t *testing.T) {
	const refused, known = "unrecognized feature gate: ", ": here are AllAlpha, EventedPLEG, PLEGOnDemandRelist"
	for _, tt := range []struct{ file, flag, noEffect, want string }{
		{"", "EventedPLEG=true,AllAlpha=false", "", ""},
		{"", "EventedPLEg=true", "", refused + "EventedPLEg" + known},
		{"", "NodeSwap=true", "", refused + "NodeSwap" + known},
		{"NodeSwap: true", "", "featureGates.NodeSwap", ""},
		{"eventedPLEG: true", "", "", refused + "eventedPLEG" + known},
	} {
		file, flags := filepath.Join(t.TempDir(), "kubelet.yaml"), map[string][]string{}
		looptest.Write(t, file, "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"+
			"featureGates: {"+tt.file+"}")
		if tt.flag != "" {
			flags["feature-gates"] = []string{tt.flag}
		}
		_, noEffect, err := LoadKubelet(file, flags)
		got := []string{strings.Join(noEffect, " "), looptest.Text(err)}
		looptest.Equal(t, fmt.Sprint(tt), []string{tt.noEffect, tt.want}, got)
	}
}
