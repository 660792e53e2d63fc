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

// updates are those that wait, of all kinds.
func (s *stage) updates() string {
	var out []string
	names := map[Result]string{Unknown: "Unknown", Success: "Success", Failure: "Failure"}
	for k, r := range []*Results{s.Liveness, s.Readiness, s.Startup} {
		for len(r.Updates()) > 0 {
			u := <-r.Updates()
			out = append(out, fmt.Sprint(kind(k), " ", u.ContainerID.ID, " ", names[u.Result]))
		}
	}
	return strings.Join(out, ", ")
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

// A step is what happens to a pod with probes of one container, app.
type step struct {
	answer  error               // of the commands from now on
	change  func(*v1.PodStatus) // if not nil
	wait    time.Duration
	updates string
	probes  int // in this time
}

func TestProbes(t *testing.T) {
	instance := func(id string) func(*v1.PodStatus) {
		return func(st *v1.PodStatus) { st.ContainerStatuses[0].ContainerID = "containerd://" + id }
	}
	ended := func(st *v1.PodStatus) {
		st.ContainerStatuses[0].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 1}}
	}
	ill := exit(1)
	for name, tt := range map[string]struct {
		pod     func(*v1.Pod, *v1.Container)
		started bool
		steps   []step
		workers string // that are left
	}{
		"liveness": {
			func(_ *v1.Pod, c *v1.Container) { c.LivenessProbe = execProbe(nil) }, true,
			[]step{
				{nil, nil, period, "Liveness a Success", 1},
				{ill, nil, 2 * period, "", 2},
				{ill, nil, period, "Liveness a Failure", 1},
				{ill, nil, 10 * period, "", 0}, // it will be restarted
				{nil, instance("b"), period, "Liveness b Success", 1},
			},
			"Liveness",
		},
		"readiness": {
			func(_ *v1.Pod, c *v1.Container) {
				c.ReadinessProbe = execProbe(func(p *v1.Probe) { p.SuccessThreshold, p.FailureThreshold, p.PeriodSeconds = 2, 1, 5 })
			}, true,
			[]step{
				{nil, nil, 5 * time.Second, "Readiness a Failure", 1}, // until it has succeeded twice
				{nil, nil, 5 * time.Second, "Readiness a Success", 1},
				{ill, nil, 5 * time.Second, "Readiness a Failure", 1},
				{ill, nil, 50 * time.Second, "", 10},
			},
			"Readiness",
		},
		"startup": {
			func(_ *v1.Pod, c *v1.Container) { c.StartupProbe, c.LivenessProbe = execProbe(nil), execProbe(nil) }, false,
			[]step{
				{ill, nil, 2 * period, "Liveness a Success, Startup a Unknown", 2},
				{nil, nil, period, "Startup a Success", 1},
				{nil, nil, 5 * period, "", 0},
				{nil, func(st *v1.PodStatus) { *st.ContainerStatuses[0].Started = true }, 5 * period, "", 5},
			},
			"Liveness Startup",
		},
		"initial delay": {
			func(_ *v1.Pod, c *v1.Container) {
				c.LivenessProbe = execProbe(func(p *v1.Probe) { p.InitialDelaySeconds, p.PeriodSeconds, p.FailureThreshold = 60, 1, 1 })
			}, true,
			[]step{{ill, nil, 59 * time.Second, "Liveness a Success", 0}, {ill, nil, 3 * time.Second, "Liveness a Failure", 1}},
			"Liveness",
		},
		"errors are no result": {
			func(_ *v1.Pod, c *v1.Container) { c.ReadinessProbe = execProbe(nil) }, true,
			[]step{{nil, nil, period, "Readiness a Failure, Readiness a Success", 1}, {errBroken, nil, 10 * period, "", 10 * mostTries}},
			"Readiness",
		},
		"the container ends and is restarted": {
			func(_ *v1.Pod, c *v1.Container) { c.ReadinessProbe = execProbe(nil) }, true,
			[]step{{nil, nil, period, "Readiness a Failure, Readiness a Success", 1}, {nil, ended, period, "Readiness a Failure", 0}},
			"Readiness",
		},
		"the container ends for good": {
			func(p *v1.Pod, c *v1.Container) {
				p.Spec.RestartPolicy, c.ReadinessProbe = v1.RestartPolicyNever, execProbe(nil)
			}, true,
			[]step{{nil, nil, period, "Readiness a Failure, Readiness a Success", 1}, {nil, ended, period, "Readiness a Failure", 0}},
			"",
		},
		"a deleted pod": {
			func(p *v1.Pod, c *v1.Container) {
				c.LivenessProbe, c.StartupProbe, c.ReadinessProbe = execProbe(nil), execProbe(nil), execProbe(nil)
				p.DeletionTimestamp = new(metav1.Now())
			}, false,
			[]step{{nil, nil, period, "Liveness a Success, Readiness a Failure, Startup a Unknown, Startup a Success", 0}},
			"Readiness",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(func(*v1.Container) {})
			tt.pod(p, &p.Spec.Containers[0])
			perform(t, p, live("a", tt.started), func(t *testing.T, s *stage) {
				s.AddPod(p) // is there already
				for i, step := range tt.steps {
					before := s.count()
					s.set(step.answer)
					if step.change != nil {
						s.change(step.change)
					}
					s.pass(step.wait)
					if got := s.updates(); got != step.updates {
						t.Errorf("step %d: updates %q, want %q", i, got, step.updates)
					}
					if got := s.count() - before; got != step.probes {
						t.Errorf("step %d: %d probes, want %d", i, got, step.probes)
					}
				}
				if got := s.workersLeft(); got != tt.workers {
					t.Errorf("workers %q, want %q", got, tt.workers)
				}
			})
		})
	}
}

// workersLeft are the kinds of probes of app that go on.
func (s *stage) workersLeft() string {
	var out []string
	for _, k := range []kind{liveness, readiness, startup} {
		if s.probes("u1", "app", k) {
			out = append(out, k.String())
		}
	}
	return strings.Join(out, " ")
}

func TestEvents(t *testing.T) {
	p := newPod(func(c *v1.Container) { c.ReadinessProbe = execProbe(nil) })
	perform(t, p, live("a", true), func(t *testing.T, s *stage) {
		s.set(exit(1))
		s.pass(period)
		s.set(errBroken)
		s.pass(period)
		if diff := cmp.Diff([]string{
			"Warning Unhealthy Readiness probe failed: said",
			"Warning Unhealthy Readiness probe errored and resulted in unknown state: runtime is broken",
		}, s.events()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestPodEnds(t *testing.T) {
	probes := func(c *v1.Container) {
		c.LivenessProbe, c.ReadinessProbe, c.StartupProbe = execProbe(nil), execProbe(nil), execProbe(nil)
	}
	for _, tt := range []struct {
		name string
		end  func(s *stage, p *v1.Pod)
		want string
	}{
		{"goes on", func(*stage, *v1.Pod) {}, "Liveness Readiness Startup"},
		{"terminating", func(s *stage, p *v1.Pod) { s.StopLivenessAndStartup(p) }, "Readiness"},
		{"removed", func(s *stage, p *v1.Pod) { s.RemovePod(p) }, ""},
		{"another removed", func(s *stage, _ *v1.Pod) { s.RemovePod(&v1.Pod{}) }, "Liveness Readiness Startup"},
		{"not desired", func(s *stage, _ *v1.Pod) { s.CleanupPods(nil) }, ""},
		{"desired", func(s *stage, _ *v1.Pod) { s.CleanupPods(map[types.UID]bool{"u1": true}) }, "Liveness Readiness Startup"},
		{"failed", func(s *stage, _ *v1.Pod) { s.change(func(st *v1.PodStatus) { st.Phase = v1.PodFailed }) }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPod(probes)
			perform(t, p, live("a", true), func(t *testing.T, s *stage) {
				s.pass(2 * period)
				tt.end(s, p)
				s.pass(period)
				if got := s.workersLeft(); got != tt.want {
					t.Errorf("workers %q", got)
				}
				_, ok := s.Readiness.Get(container.ID{Type: "containerd", ID: "a"})
				if n := series(s.metrics.ProbesTotal); tt.want == "" && (ok || n != 0) {
					t.Errorf("left behind: result %v, %d counters", ok, n)
				}
			})
		})
	}
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
		if got := strings.Count(s.updates(), "Readiness"); got < updatesCap {
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

func TestUpdatePodStatus(t *testing.T) {
	id := container.ID{Type: "containerd", ID: "a"}
	ready := func(c *v1.Container) { c.ReadinessProbe = execProbe(nil) }
	start := func(c *v1.Container) { c.StartupProbe = execProbe(nil) }
	for name, tt := range map[string]struct {
		probes         func(*v1.Container)
		status         func(*v1.ContainerStatus)
		result         Result
		started, ready bool
	}{
		"no probes":                  {func(*v1.Container) {}, nil, Unknown, true, true},
		"not running":                {func(*v1.Container) {}, func(c *v1.ContainerStatus) { c.State = v1.ContainerState{} }, Unknown, false, false},
		"readiness unknown":          {ready, nil, Unknown, true, false},
		"readiness good":             {ready, nil, Success, true, true},
		"readiness bad":              {ready, nil, Failure, true, false},
		"startup unknown":            {start, nil, Unknown, false, false},
		"startup good":               {start, nil, Success, true, true},
		"startup bad":                {start, nil, Failure, false, false},
		"found running, was started": {start, func(c *v1.ContainerStatus) { c.Started = new(true) }, Unknown, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, st, s := newPod(tt.probes), live("a", false), newStage(t, nil)
				s.AddPod(p)
				if c := &p.Spec.Containers[0]; tt.result != Unknown && c.ReadinessProbe != nil {
					s.Readiness.Set(s.ctx, id, "u1", tt.result)
				} else if tt.result != Unknown {
					s.Startup.Set(s.ctx, id, "u1", tt.result)
				}
				if tt.status != nil {
					tt.status(&st.ContainerStatuses[0])
				}
				s.UpdatePodStatus(p, st)
				if c := st.ContainerStatuses[0]; *c.Started != tt.started || c.Ready != tt.ready {
					t.Errorf("started %v, ready %v", *c.Started, c.Ready)
				}
			})
		})
	}
}

func TestUpdateInitContainers(t *testing.T) {
	p := newPod(func(*v1.Container) {})
	p.Spec.InitContainers = []v1.Container{
		{Name: "done"}, {Name: "runs"}, {Name: "failed"}, {Name: "side", RestartPolicy: new(v1.ContainerRestartPolicyAlways)},
	}
	running := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	ended := func(code int32) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code}}
	}
	st := v1.PodStatus{InitContainerStatuses: []v1.ContainerStatus{
		{Name: "done", State: ended(0)},
		{Name: "runs", State: running},
		{Name: "failed", State: ended(1)},
		{Name: "side", State: running},
	}}
	synctest.Test(t, func(t *testing.T) {
		newStage(t, nil).UpdatePodStatus(p, &st)
	})
	var got []string
	for _, c := range st.InitContainerStatuses {
		got = append(got, fmt.Sprintf("%s %v %v", c.Name, c.Started != nil && *c.Started, c.Ready))
	}
	if diff := cmp.Diff([]string{"done false true", "runs true false", "failed false false", "side true true"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestSidecar(t *testing.T) {
	p := newPod(func(*v1.Container) {})
	p.Spec.InitContainers = []v1.Container{
		{Name: "init", LivenessProbe: execProbe(nil)},
		{Name: "side", RestartPolicy: new(v1.ContainerRestartPolicyAlways), StartupProbe: execProbe(nil), LivenessProbe: execProbe(nil)},
	}
	synctest.Test(t, func(t *testing.T) {
		st := live("x", true)
		st.InitContainerStatuses = []v1.ContainerStatus{{Name: "side", ContainerID: "containerd://s", Started: new(true), State: v1.ContainerState{
			Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Now().Add(-time.Hour))},
		}}}
		s := newStage(t, st)
		s.AddPod(p)
		if s.probes("u1", "init", liveness) {
			t.Error("an ordinary init container is probed")
		}
		s.pass(2 * period)
		s.set(exit(1))
		s.pass(3 * period)
		if e := s.events(); len(e) == 0 {
			t.Error("no event")
		}
		s.StopLivenessAndStartup(p)
		s.pass(period)
		if !s.probes("u1", "side", liveness) {
			t.Error("a sidecar's probes ended before it did")
		}
	})
}
