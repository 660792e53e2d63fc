package prober

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

func TestUpdatePodStatus(t *testing.T) {
	id := container.ID{Type: "containerd", ID: "a"}
	readyPod := func(p *v1.Pod) {
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
	}
	old := func(st *v1.PodStatus) {
		st.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(time.Now().Add(-time.Hour))
	}
	for _, tt := range []struct {
		name    string
		probes  func(*v1.Container)
		pod     func(*v1.Pod)
		status  func(*v1.PodStatus)
		results func(s *stage)
		started bool
		ready   bool
	}{
		{name: "no probes", started: true, ready: true},
		{name: "not running", status: func(st *v1.PodStatus) { st.ContainerStatuses[0].State = v1.ContainerState{} }},
		{name: "readiness unknown", probes: func(c *v1.Container) { c.ReadinessProbe = execProbe(nil) }, started: true},
		{
			name: "readiness good", probes: func(c *v1.Container) { c.ReadinessProbe = execProbe(nil) }, started: true, ready: true,
			results: func(s *stage) { s.Readiness.Set(s.ctx, id, "u1", Success) },
		},
		{
			name: "readiness bad", probes: func(c *v1.Container) { c.ReadinessProbe = execProbe(nil) }, started: true,
			results: func(s *stage) { s.Readiness.Set(s.ctx, id, "u1", Failure) },
		},
		{name: "startup unknown", probes: func(c *v1.Container) { c.StartupProbe = execProbe(nil) }},
		{
			name: "startup good", probes: func(c *v1.Container) { c.StartupProbe = execProbe(nil) }, started: true, ready: true,
			results: func(s *stage) { s.Startup.Set(s.ctx, id, "u1", Success) },
		},
		{
			name: "startup bad", probes: func(c *v1.Container) { c.StartupProbe = execProbe(nil) },
			results: func(s *stage) { s.Startup.Set(s.ctx, id, "u1", Failure) },
		},
		{
			name: "found running, was ready", probes: func(c *v1.Container) { c.ReadinessProbe = execProbe(nil) },
			pod: readyPod, status: old, started: true, ready: true,
		},
		{name: "found running, was not ready", probes: func(c *v1.Container) { c.ReadinessProbe = execProbe(nil) }, status: old, started: true},
		{name: "found running without a probe", status: old, started: true, ready: true},
		{
			name: "found running, was started", probes: func(c *v1.Container) { c.StartupProbe = execProbe(nil) },
			status: func(st *v1.PodStatus) { st.ContainerStatuses[0].Started = new(true) }, started: true, ready: true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPod(func(c *v1.Container) {
					if tt.probes != nil {
						tt.probes(c)
					}
				})
				if tt.pod != nil {
					tt.pod(p)
				}
				s := newStage(t, nil)
				s.AddPod(p)
				if tt.results != nil {
					tt.results(s)
				}
				st := live("a", false)
				if tt.status != nil {
					tt.status(st)
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

// Who asks for the status of a container that is not ready has it probed at once.
func TestManualTrigger(t *testing.T) {
	p := newPod(func(c *v1.Container) { c.ReadinessProbe = execProbe(func(p *v1.Probe) { p.PeriodSeconds = 1000 }) })
	perform(t, p, live("a", true), func(t *testing.T, s *stage) {
		s.set(exit(1))
		s.pass(1000 * time.Second) // the first probe comes at a random moment
		if s.count() != 1 {
			t.Fatalf("%d probes", s.count())
		}
		s.set(nil)
		s.UpdatePodStatus(p, live("a", true))
		synctest.Wait()
		if s.count() != 2 {
			t.Errorf("%d probes", s.count())
		}
		st := live("a", true)
		s.UpdatePodStatus(p, st)
		if !st.ContainerStatuses[0].Ready {
			t.Error("not ready after it")
		}
	})
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
		if s.worker("u1", "init", liveness) != nil {
			t.Error("an ordinary init container is probed")
		}
		s.pass(2 * period)
		if diff := cmp.Diff([]string{"s Success"}, drained(s.Startup)); diff != "" {
			t.Error(diff) // it was found started
		}
		s.set(exit(1))
		s.pass(3 * period)
		if e := s.events(); len(e) == 0 {
			t.Error("no event")
		}
		s.StopLivenessAndStartup(p)
		s.pass(period)
		if s.worker("u1", "side", liveness) == nil {
			t.Error("a sidecar's probes ended before it did")
		}
	})
}
