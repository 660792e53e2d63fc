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
	for _, tt := range []struct {
		name    string
		probes  func(*v1.Container)
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
