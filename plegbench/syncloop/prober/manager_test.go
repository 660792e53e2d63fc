package prober

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/exec"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
)

var errBroken = errors.New("runtime is broken")

// exit is the error of a command that exited with a code.
func exit(code int) error {
	return exec.CodeExitError{Err: fmt.Errorf("exited with %d", code), Code: code}
}

// A stage is a Manager with the status and the exec that a test gives it.
type stage struct {
	*Manager
	cancel   context.CancelFunc
	recorder *record.FakeRecorder
	metrics  *metrics.Metrics

	mu     sync.Mutex
	status *v1.PodStatus
	answer error // of the next commands
	calls  []time.Time
}

// perform runs a test in a bubble, with the pod's probes already under way, and ends the Manager after it.
func perform(t *testing.T, p *v1.Pod, st *v1.PodStatus, play func(t *testing.T, s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		if st != nil {
			st.ContainerStatuses[0].State.Running.StartedAt = metav1.Now() // by the bubble's clock
		}
		s := newStage(t, st)
		s.AddPod(p)
		play(t, s)
	})
}

func newStage(t *testing.T, st *v1.PodStatus) *stage {
	t.Helper()
	s := &stage{status: st, recorder: record.NewFakeRecorder(1000), metrics: metrics.New(prometheus.NewRegistry(), prometheus.NewRegistry())}
	s.Manager = New(Config{
		Liveness: NewResults(), Readiness: NewResults(), Startup: NewResults(),
		Exec: s.exec, Recorder: s.recorder, Metrics: s.metrics,
		PodStatus: func(types.UID) (v1.PodStatus, bool) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.status == nil {
				return v1.PodStatus{}, false
			}
			return *s.status.DeepCopy(), true
		},
		Log: logr.Discard(),
	})
	ctx, cancel := context.WithCancel(t.Context())
	s.cancel = cancel
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := s.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v", err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return s
}

func (s *stage) exec(context.Context, container.ID, []string, time.Duration) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, time.Now())
	return []byte("said"), s.answer
}

// pass lets time pass until nothing moves.
func (s *stage) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (s *stage) set(answer error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

func (s *stage) change(f func(*v1.PodStatus)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.status)
}

func (s *stage) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls)
}

// events are those since the last time.
func (s *stage) events() []string {
	var out []string
	for len(s.recorder.Events) > 0 {
		out = append(out, <-s.recorder.Events)
	}
	return out
}

// drained are the updates that wait.
func drained(r *Results) []string {
	var out []string
	for len(r.Updates()) > 0 {
		u := <-r.Updates()
		out = append(out, u.ContainerID.ID+" "+map[Result]string{Unknown: "Unknown", Success: "Success", Failure: "Failure"}[u.Result])
	}
	return out
}

func execProbe(f func(*v1.Probe)) *v1.Probe {
	p := &v1.Probe{
		ProbeHandler:   v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"check"}}},
		TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3, // the API's defaults
	}
	if f != nil {
		f(p)
	}
	return p
}

func newPod(f func(*v1.Container)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u1"},
		Spec:       v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways, Containers: []v1.Container{{Name: "app"}}},
	}
	f(&p.Spec.Containers[0])
	return p
}

// live is the status of a pod whose container app runs since now, as instance id.
func live(id string, started bool) *v1.PodStatus {
	return &v1.PodStatus{Phase: v1.PodRunning, PodIP: "127.0.0.1", ContainerStatuses: []v1.ContainerStatus{{
		Name: "app", ContainerID: "containerd://" + id, Started: &started,
		State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.Now()}},
	}}}
}

const period = 10 * time.Second // the default

func TestLiveness(t *testing.T) {
	p := newPod(func(c *v1.Container) { c.LivenessProbe = execProbe(nil) })
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, live("a", true))
		s.AddPod(p)
		s.AddPod(p) // is there already
		s.pass(period)
		if diff := cmp.Diff([]string{"a Success"}, drained(s.Liveness)); diff != "" {
			t.Error(diff)
		}
		s.set(exit(1))
		s.pass(2 * period)
		if got := drained(s.Liveness); got != nil {
			t.Errorf("below the threshold of 3 came %v", got)
		}
		s.pass(period)
		if diff := cmp.Diff([]string{"a Failure"}, drained(s.Liveness)); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{
			"Warning Unhealthy Liveness probe failed: said", "Warning Unhealthy Liveness probe failed: said", "Warning Unhealthy Liveness probe failed: said",
		}, s.events()); diff != "" {
			t.Error(diff)
		}
		before := s.count()
		s.pass(10 * period)
		if s.count() != before {
			t.Error("an instance that will be restarted was probed again")
		}
		s.change(func(st *v1.PodStatus) { st.ContainerStatuses[0].ContainerID = "containerd://b" })
		s.set(nil)
		s.pass(period)
		if diff := cmp.Diff([]string{"b Success"}, drained(s.Liveness)); diff != "" {
			t.Error(diff)
		}
		if _, ok := s.Liveness.Get(container.ID{Type: "containerd", ID: "a"}); ok {
			t.Error("the old instance has a result still")
		}
	})
}

func TestReadiness(t *testing.T) {
	p := newPod(func(c *v1.Container) {
		c.ReadinessProbe = execProbe(func(p *v1.Probe) { p.SuccessThreshold, p.FailureThreshold, p.PeriodSeconds = 2, 1, 5 })
	})
	perform(t, p, nil, func(t *testing.T, s *stage) {
		s.pass(5 * time.Second)
		if s.count() > 0 {
			t.Error("a pod without a status was probed")
		}
		s.mu.Lock()
		s.status = live("a", true)
		s.mu.Unlock()
		s.pass(5 * time.Second)
		if diff := cmp.Diff([]string{"a Failure"}, drained(s.Readiness)); diff != "" {
			t.Error(diff) // until it has succeeded twice
		}
		s.pass(5 * time.Second)
		if diff := cmp.Diff([]string{"a Success"}, drained(s.Readiness)); diff != "" {
			t.Error(diff)
		}
		s.set(exit(1))
		s.pass(5 * time.Second)
		if diff := cmp.Diff([]string{"a Failure"}, drained(s.Readiness)); diff != "" {
			t.Error(diff)
		}
		before := s.count()
		s.pass(50 * time.Second)
		if got := s.count() - before; got != 10 {
			t.Errorf("%d probes in ten periods after a failure", got)
		}
	})
}

func TestStartup(t *testing.T) {
	p := newPod(func(c *v1.Container) {
		c.StartupProbe = execProbe(nil)
		c.LivenessProbe = execProbe(nil)
	})
	perform(t, p, live("a", false), func(t *testing.T, s *stage) {
		s.set(exit(1))
		s.pass(2 * period)
		if diff := cmp.Diff([][]string{{"a Unknown"}, {"a Success"}}, [][]string{drained(s.Startup), drained(s.Liveness)}); diff != "" {
			t.Error(diff)
		}
		for _, e := range s.events() {
			if !strings.HasPrefix(e, "Warning Unhealthy Startup") {
				t.Errorf("before the start came %q", e)
			}
		}
		s.set(nil)
		s.pass(period)
		if diff := cmp.Diff([]string{"a Success"}, drained(s.Startup)); diff != "" {
			t.Error(diff)
		}
		before := s.count()
		s.pass(5 * period)
		if s.count() != before {
			t.Error("started, and probed for its start again")
		}
		s.change(func(st *v1.PodStatus) { *st.ContainerStatuses[0].Started = true })
		s.pass(5 * period)
		if got := s.count() - before; got != 5 {
			t.Errorf("%d liveness probes in five periods after the start", got)
		}
	})
}

func TestInitialDelay(t *testing.T) {
	p := newPod(func(c *v1.Container) {
		c.LivenessProbe = execProbe(func(p *v1.Probe) { p.InitialDelaySeconds, p.PeriodSeconds = 60, 1 })
	})
	perform(t, p, live("a", true), func(t *testing.T, s *stage) {
		begin := time.Now()
		s.pass(2 * time.Minute)
		if s.count() == 0 {
			t.Fatal("no probe at all")
		}
		if first := s.calls[0].Sub(begin); first < time.Minute-time.Second || first > time.Minute+2*time.Second {
			t.Errorf("first probe after %v", first)
		}
	})
}

func TestErrorsAreNoResult(t *testing.T) {
	p := newPod(func(c *v1.Container) { c.ReadinessProbe = execProbe(nil) })
	perform(t, p, live("a", true), func(t *testing.T, s *stage) {
		s.pass(period)
		drained(s.Readiness)
		s.set(errBroken)
		before := s.count()
		s.pass(period)
		if got := s.count() - before; got != mostTries {
			t.Errorf("%d tries", got)
		}
		if diff := cmp.Diff([]string{"Warning Unhealthy Readiness probe errored and resulted in unknown state: runtime is broken"}, s.events()); diff != "" {
			t.Error(diff)
		}
		s.pass(10 * period)
		if got := drained(s.Readiness); got != nil {
			t.Errorf("errors made %v", got)
		}
	})
}

func TestContainerEnds(t *testing.T) {
	for _, tt := range []struct {
		name   string
		policy v1.RestartPolicy
		code   int32
		stays  bool
	}{
		{"always", v1.RestartPolicyAlways, 0, true},
		{"never", v1.RestartPolicyNever, 1, false},
		{"on failure, failed", v1.RestartPolicyOnFailure, 1, true},
		{"on failure, succeeded", v1.RestartPolicyOnFailure, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPod(func(c *v1.Container) { c.ReadinessProbe = execProbe(nil) })
			p.Spec.RestartPolicy = tt.policy
			perform(t, p, live("a", true), func(t *testing.T, s *stage) {
				s.pass(period)
				s.change(func(st *v1.PodStatus) {
					st.ContainerStatuses[0].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: tt.code}}
				})
				s.pass(period)
				if diff := cmp.Diff([]string{"a Failure", "a Success", "a Failure"}, drained(s.Readiness)); diff != "" {
					t.Error(diff)
				}
				if got := s.probes("u1", "app", readiness); got != tt.stays {
					t.Errorf("the worker is there: %v", got)
				}
			})
		})
	}
}

func TestPodEnds(t *testing.T) {
	probes := func(c *v1.Container) {
		c.LivenessProbe, c.ReadinessProbe, c.StartupProbe = execProbe(nil), execProbe(nil), execProbe(nil)
	}
	left := func(s *stage) []string {
		var out []string
		for _, k := range []kind{liveness, readiness, startup} {
			if s.probes("u1", "app", k) {
				out = append(out, k.String())
			}
		}
		return out
	}
	for _, tt := range []struct {
		name string
		end  func(s *stage, p *v1.Pod)
		want []string
	}{
		{"goes on", func(*stage, *v1.Pod) {}, []string{"Liveness", "Readiness", "Startup"}},
		{"terminating", func(s *stage, p *v1.Pod) { s.StopLivenessAndStartup(p) }, []string{"Readiness"}},
		{"removed", func(s *stage, p *v1.Pod) { s.RemovePod(p) }, nil},
		{"another removed", func(s *stage, _ *v1.Pod) { s.RemovePod(&v1.Pod{}) }, []string{"Liveness", "Readiness", "Startup"}},
		{"not desired", func(s *stage, _ *v1.Pod) { s.CleanupPods(nil) }, nil},
		{"desired", func(s *stage, _ *v1.Pod) { s.CleanupPods(map[types.UID]bool{"u1": true}) }, []string{"Liveness", "Readiness", "Startup"}},
		{"failed", func(s *stage, _ *v1.Pod) { s.change(func(st *v1.PodStatus) { st.Phase = v1.PodFailed }) }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPod(probes)
			perform(t, p, live("a", true), func(t *testing.T, s *stage) {
				s.pass(2 * period)
				tt.end(s, p)
				s.pass(period)
				if diff := cmp.Diff(tt.want, left(s)); diff != "" {
					t.Error(diff)
				}
				_, ok := s.Readiness.Get(container.ID{Type: "containerd", ID: "a"})
				if n := series(s.metrics.ProbesTotal); tt.want == nil && (ok || n != 0) {
					t.Errorf("left behind: result %v, %d counters", ok, n)
				}
			})
		})
	}
}

func TestDeletedPod(t *testing.T) {
	p := newPod(func(c *v1.Container) {
		c.LivenessProbe, c.StartupProbe, c.ReadinessProbe = execProbe(nil), execProbe(nil), execProbe(nil)
	})
	p.DeletionTimestamp = new(metav1.Now())
	perform(t, p, live("a", false), func(t *testing.T, s *stage) {
		s.pass(period)
		if diff := cmp.Diff([]string{"a Unknown", "a Success"}, drained(s.Startup)); diff != "" {
			t.Error(diff)
		}
		if s.probes("u1", "app", liveness) || !s.probes("u1", "app", readiness) {
			t.Error("wrong workers are left")
		}
	})
}

// When the syncLoop takes no updates, the workers stand still; when it takes them again, they go on.
func TestBackPressure(t *testing.T) {
	p := newPod(func(c *v1.Container) {
		c.ReadinessProbe = execProbe(func(p *v1.Probe) { p.FailureThreshold, p.PeriodSeconds = 1, 1 })
	})
	perform(t, p, live("a", true), func(t *testing.T, s *stage) {
		for i := range 60 {
			s.set([]error{nil, exit(1)}[i%2])
			s.pass(time.Second)
		}
		if got := s.count(); got != updatesCap {
			t.Errorf("%d probes with nobody to tell", got) // the first update was not a probe's, and one probe is stuck
		}
		if got := len(drained(s.Readiness)); got < updatesCap {
			t.Errorf("%d updates", got)
		}
		before := s.count()
		s.pass(5 * time.Second)
		if s.count() <= before {
			t.Error("it stands still for good")
		}
	})
}

// series counts the series that a collector has.
func series(c prometheus.Collector) int {
	ch := make(chan prometheus.Metric, 100)
	c.Collect(ch)
	return len(ch)
}
