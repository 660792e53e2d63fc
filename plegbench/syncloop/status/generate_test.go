package status

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/kuberuntime"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

func noon() time.Time { return time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC) }

// A podOption changes a pod of a test.
type podOption func(*v1.Pod)

// newPod is a pod web with the container app.
func newPod(opts ...podOption) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u1"},
		Spec:       v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways, Containers: []v1.Container{{Name: "app", Image: "app:1"}}},
	}
	for _, o := range opts {
		o(p)
	}
	return p
}

func policy(r v1.RestartPolicy) podOption { return func(p *v1.Pod) { p.Spec.RestartPolicy = r } }

func also(names ...string) podOption {
	return func(p *v1.Pod) {
		for _, n := range names {
			p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: n})
		}
	}
}

func withInit(names ...string) podOption {
	return func(p *v1.Pod) {
		for _, n := range names {
			p.Spec.InitContainers = append(p.Spec.InitContainers, v1.Container{Name: n})
		}
	}
}

func withSidecar(name string) podOption {
	return func(p *v1.Pod) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, v1.Container{Name: name, RestartPolicy: new(v1.ContainerRestartPolicyAlways)})
	}
}

func deleted(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: noon()} }

func static(p *v1.Pod) {
	p.Annotations = map[string]string{pod.ConfigSourceAnnotation: pod.FileSource, pod.ConfigHashAnnotation: "h"}
}

func apiPhase(phase v1.PodPhase) podOption { return func(p *v1.Pod) { p.Status.Phase = phase } }

func running(name string) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}
}

func exited(name string, code int32) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code}}}
}

func waits(name string) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}}
}

func crashed(name string, code int32) v1.ContainerStatus {
	st := waits(name)
	st.LastTerminationState = exited(name, code).State
	return st
}

func started(st v1.ContainerStatus) v1.ContainerStatus {
	st.Started, st.Ready = new(true), true
	return st
}

func TestPhase(t *testing.T) {
	never, onFailure := policy(v1.RestartPolicyNever), policy(v1.RestartPolicyOnFailure)
	onCode42 := func(p *v1.Pod) {
		p.Spec.Containers[0].RestartPolicy = new(v1.ContainerRestartPolicyNever)
		p.Spec.Containers[0].RestartPolicyRules = []v1.ContainerRestartRule{{
			Action:    v1.ContainerRestartRuleActionRestart,
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
		}}
	}
	for _, tt := range []struct {
		name     string
		pod      *v1.Pod
		statuses []v1.ContainerStatus
		terminal bool
		want     v1.PodPhase
	}{
		{name: "no status", pod: newPod(), want: v1.PodPending},
		{name: "running", pod: newPod(), statuses: []v1.ContainerStatus{running("app")}, want: v1.PodRunning},
		{name: "one unknown", pod: newPod(also("b")), statuses: []v1.ContainerStatus{running("app")}, want: v1.PodPending},
		{name: "one waits", pod: newPod(also("b")), statuses: []v1.ContainerStatus{running("app"), waits("b")}, want: v1.PodPending},
		{name: "one crashed", pod: newPod(also("b")), statuses: []v1.ContainerStatus{running("app"), crashed("b", 1)}, want: v1.PodRunning},
		{name: "all crashed", pod: newPod(), statuses: []v1.ContainerStatus{crashed("app", 1)}, want: v1.PodRunning},
		{name: "always, exited", pod: newPod(), statuses: []v1.ContainerStatus{exited("app", 0)}, want: v1.PodRunning},
		{name: "always, exited, terminal", pod: newPod(), statuses: []v1.ContainerStatus{exited("app", 0)}, terminal: true, want: v1.PodSucceeded},
		{name: "always, failed, terminal", pod: newPod(), statuses: []v1.ContainerStatus{exited("app", 3)}, terminal: true, want: v1.PodFailed},
		{name: "terminal while running", pod: newPod(), statuses: []v1.ContainerStatus{running("app")}, terminal: true, want: v1.PodRunning},
		{name: "static, exited, terminal", pod: newPod(static), statuses: []v1.ContainerStatus{exited("app", 0)}, terminal: true, want: v1.PodRunning},
		{name: "never, succeeded", pod: newPod(never), statuses: []v1.ContainerStatus{exited("app", 0)}, want: v1.PodSucceeded},
		{name: "never, failed", pod: newPod(never), statuses: []v1.ContainerStatus{exited("app", 1)}, want: v1.PodFailed},
		{name: "never, one runs", pod: newPod(never, also("b")), statuses: []v1.ContainerStatus{exited("app", 1), running("b")}, want: v1.PodRunning},
		{name: "on failure, failed", pod: newPod(onFailure), statuses: []v1.ContainerStatus{exited("app", 1)}, want: v1.PodRunning},
		{name: "on failure, succeeded", pod: newPod(onFailure), statuses: []v1.ContainerStatus{exited("app", 0)}, want: v1.PodSucceeded},
		{name: "never, waits after its end", pod: newPod(never), statuses: []v1.ContainerStatus{crashed("app", 0)}, want: v1.PodFailed},
		{name: "rule restarts", pod: newPod(never, onCode42), statuses: []v1.ContainerStatus{exited("app", 42)}, want: v1.PodRunning},
		{name: "rule does not match", pod: newPod(onCode42), statuses: []v1.ContainerStatus{exited("app", 1)}, want: v1.PodFailed},
		{name: "init runs", pod: newPod(withInit("i")), statuses: []v1.ContainerStatus{waits("app"), running("i")}, want: v1.PodPending},
		{name: "init done", pod: newPod(withInit("i")), statuses: []v1.ContainerStatus{running("app"), exited("i", 0)}, want: v1.PodRunning},
		{name: "init failed", pod: newPod(withInit("i")), statuses: []v1.ContainerStatus{waits("app"), exited("i", 1)}, want: v1.PodPending},
		{name: "never, init failed", pod: newPod(never, withInit("i")), statuses: []v1.ContainerStatus{waits("app"), exited("i", 1)}, want: v1.PodFailed},
		{name: "never, init waits after failure", pod: newPod(never, withInit("i")), statuses: []v1.ContainerStatus{waits("app"), crashed("i", 1)}, want: v1.PodFailed},
		{name: "init unknown", pod: newPod(withInit("i")), statuses: []v1.ContainerStatus{running("app")}, want: v1.PodPending},
		{name: "sidecar starts", pod: newPod(withSidecar("s")), statuses: []v1.ContainerStatus{waits("app"), running("s")}, want: v1.PodPending},
		{
			name: "sidecar starts again", pod: newPod(withSidecar("s")),
			statuses: []v1.ContainerStatus{running("app"), running("s")}, want: v1.PodRunning,
		},
		{name: "sidecar started", pod: newPod(withSidecar("s")), statuses: []v1.ContainerStatus{running("app"), started(running("s"))}, want: v1.PodRunning},
		{name: "sidecar waits", pod: newPod(withSidecar("s")), statuses: []v1.ContainerStatus{running("app"), waits("s")}, want: v1.PodPending},
		{name: "sidecar crashed", pod: newPod(withSidecar("s")), statuses: []v1.ContainerStatus{running("app"), crashed("s", 1)}, want: v1.PodRunning},
		{
			name: "never, done but for the sidecar", pod: newPod(never, withSidecar("s")),
			statuses: []v1.ContainerStatus{exited("app", 0), started(running("s"))}, want: v1.PodRunning,
		},
		{
			name: "never, done with the sidecar", pod: newPod(never, withSidecar("s")),
			statuses: []v1.ContainerStatus{exited("app", 0), exited("s", 137)}, want: v1.PodSucceeded,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := phase(tt.pod, tt.statuses, tt.terminal); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// instance is the runtime's status of one container, the n-th of its name.
func instance(name string, n int, state container.State, code int) *container.Status {
	return &container.Status{
		ID: container.ID{Type: "containerd", ID: name + string(rune('0'+n))}, Name: name, State: state, RestartCount: n, ExitCode: code,
		Image: name + ":1", ImageRef: "sha256:" + name, CreatedAt: noon().Add(time.Duration(n) * time.Minute), SandboxID: "sb",
		StartedAt: noon(), FinishedAt: noon().Add(time.Second), Reason: map[bool]string{true: "Completed", false: "Error"}[code == 0],
	}
}

// brief is what a test looks at of a container's status.
type brief struct {
	Name, Is, Reason, Last string
	Code                   int32
	Restarts               int32
}

func briefly(in []v1.ContainerStatus) []brief {
	var out []brief
	for _, st := range in {
		b := brief{Name: st.Name, Restarts: st.RestartCount}
		switch s := st.State; {
		case s.Running != nil:
			b.Is = "running"
		case s.Waiting != nil:
			b.Is, b.Reason = "waiting", s.Waiting.Reason
		case s.Terminated != nil:
			b.Is, b.Reason, b.Code = "ended", s.Terminated.Reason, s.Terminated.ExitCode
		}
		if l := st.LastTerminationState.Terminated; l != nil {
			b.Last = l.Reason
		}
		out = append(out, b)
	}
	return out
}

func TestContainerStatuses(t *testing.T) {
	wasRunning := v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{
		Name: "app", ContainerID: "containerd://app0", RestartCount: 4, State: running("app").State,
	}}}
	wasExited := v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{
		Name: "app", ContainerID: "containerd://old", RestartCount: 4,
		State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137}},
	}}}
	//lint:ignore ST1008 the order is that of StartError
	startError := func(name string) (error, string, bool) {
		return errors.New("CrashLoopBackOff"), "back-off 10s restarting failed", name != "fine"
	}
	never := policy(v1.RestartPolicyNever)
	for _, tt := range []struct {
		name       string
		pod        *v1.Pod
		old        v1.PodStatus
		runtime    []*container.Status
		startError func(string) (error, string, bool)
		init       bool // look at the init containers' statuses
		want       []brief
	}{
		{name: "not made yet", pod: newPod(), want: []brief{{Name: "app", Is: "waiting", Reason: "ContainerCreating"}}},
		{name: "behind init containers", pod: newPod(withInit("i")), want: []brief{{Name: "app", Is: "waiting", Reason: "PodInitializing"}}},
		{name: "by name", pod: newPod(also("aa")), want: []brief{
			{Name: "aa", Is: "waiting", Reason: "ContainerCreating"}, {Name: "app", Is: "waiting", Reason: "ContainerCreating"},
		}},
		{
			name: "runs after a crash", pod: newPod(),
			runtime: []*container.Status{instance("app", 1, container.Running, 0), instance("app", 0, container.Exited, 1)},
			want:    []brief{{Name: "app", Is: "running", Last: "Error", Restarts: 1}},
		},
		{
			name: "crash loop", pod: newPod(), startError: startError,
			runtime: []*container.Status{instance("app", 0, container.Exited, 1)},
			want:    []brief{{Name: "app", Is: "waiting", Reason: "CrashLoopBackOff", Last: "Error"}},
		},
		{
			name: "not restarted, so no start error", pod: newPod(never), startError: startError,
			runtime: []*container.Status{instance("app", 0, container.Exited, 1)},
			want:    []brief{{Name: "app", Is: "ended", Reason: "Error", Code: 1}},
		},
		{
			name: "never made for an error", pod: newPod(also("fine")), startError: startError,
			want: []brief{{Name: "app", Is: "waiting", Reason: "CrashLoopBackOff"}, {Name: "fine", Is: "waiting", Reason: "ContainerCreating"}},
		},
		{name: "created", pod: newPod(), runtime: []*container.Status{instance("app", 0, container.Created, 0)}, want: []brief{{Name: "app", Is: "waiting"}}},
		{name: "unknown", pod: newPod(), runtime: []*container.Status{instance("app", 0, container.Unknown, 0)}, want: []brief{{Name: "app", Is: "waiting"}}},
		{
			name: "unknown after it ran", pod: newPod(), old: wasRunning,
			runtime: []*container.Status{instance("app", 0, container.Unknown, 0)},
			want:    []brief{{Name: "app", Is: "ended", Reason: "ContainerStatusUnknown", Code: 137, Restarts: 5}},
		},
		{
			name: "lost", pod: newPod(), old: wasRunning,
			want: []brief{{Name: "app", Is: "waiting", Reason: "ContainerCreating", Last: "ContainerStatusUnknown", Restarts: 5}},
		},
		{
			name: "lost in deletion", pod: newPod(deleted), old: wasRunning,
			want: []brief{{Name: "app", Is: "waiting", Reason: "ContainerCreating", Last: "ContainerStatusUnknown", Restarts: 4}},
		},
		{
			name: "removed after its end", pod: newPod(never), old: wasExited,
			want: []brief{{Name: "app", Is: "ended", Reason: "OOMKilled", Code: 137, Restarts: 4}},
		},
		{
			name: "counts go on where the runtime lost them", pod: newPod(), old: wasExited,
			runtime: []*container.Status{instance("app", 0, container.Running, 0)},
			want:    []brief{{Name: "app", Is: "running", Last: "OOMKilled", Restarts: 4}},
		},
		{
			name: "init by the spec's order", pod: newPod(withInit("z", "a")), init: true,
			runtime: []*container.Status{instance("z", 0, container.Exited, 0)},
			want:    []brief{{Name: "z", Is: "ended", Reason: "Completed"}, {Name: "a", Is: "waiting", Reason: "PodInitializing"}},
		},
		{
			name: "init must have succeeded, sidecars not", pod: newPod(withInit("i"), withSidecar("s")), init: true,
			runtime: []*container.Status{instance("app", 0, container.Running, 0)},
			want:    []brief{{Name: "i", Is: "ended", Reason: "Completed"}, {Name: "s", Is: "waiting", Reason: "PodInitializing"}},
		},
		{
			name: "init in crash loop", pod: newPod(withInit("i")), init: true, startError: startError,
			runtime: []*container.Status{instance("i", 0, container.Exited, 1)},
			want:    []brief{{Name: "i", Is: "waiting", Reason: "CrashLoopBackOff", Last: "Error"}},
		},
		{
			name: "init succeeded, so no start error", pod: newPod(withInit("i")), init: true, startError: startError,
			runtime: []*container.Status{instance("i", 0, container.Exited, 0)},
			want:    []brief{{Name: "i", Is: "ended", Reason: "Completed"}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			st := Generate(GenerateInput{
				Pod: tt.pod, PodStatus: &container.PodStatus{ContainerStatuses: tt.runtime}, Old: tt.old, StartError: tt.startError, ShouldStart: kuberuntime.ShouldStart,
			})
			got := st.ContainerStatuses
			if tt.init {
				got = st.InitContainerStatuses
			}
			if diff := cmp.Diff(tt.want, briefly(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPhaseWithHistory(t *testing.T) {
	live := &container.PodStatus{ContainerStatuses: []*container.Status{instance("app", 0, container.Running, 0)}}
	deadline := func(p *v1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(60)) }
	since := func(d time.Duration) v1.PodStatus {
		return v1.PodStatus{Phase: v1.PodRunning, StartTime: &metav1.Time{Time: noon().Add(-d)}}
	}
	for _, tt := range []struct {
		name string
		pod  *v1.Pod
		old  v1.PodStatus
		want []string // phase, reason, message
	}{
		{name: "first", pod: newPod(), want: []string{"Running", "", ""}},
		{
			name: "reason stays with the phase", pod: newPod(), old: v1.PodStatus{Phase: v1.PodRunning, Reason: "R", Message: "M"},
			want: []string{"Running", "R", "M"},
		},
		{
			name: "reason goes with the phase", pod: newPod(), old: v1.PodStatus{Phase: v1.PodPending, Reason: "R", Message: "M"},
			want: []string{"Running", "", ""},
		},
		{
			name: "failed once, failed for good", pod: newPod(), old: v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted", Message: "low"},
			want: []string{"Failed", "Evicted", "low"},
		},
		{name: "terminal at the API server", pod: newPod(apiPhase(v1.PodSucceeded)), want: []string{"Succeeded", "", ""}},
		{
			name: "the API server's end wins", pod: newPod(apiPhase(v1.PodSucceeded)), old: v1.PodStatus{Phase: v1.PodFailed},
			want: []string{"Succeeded", "", ""},
		},
		{name: "deadline passed", pod: newPod(deadline), old: since(time.Minute), want: []string{"Failed", DeadlineReason, DeadlineMessage}},
		{name: "deadline ahead", pod: newPod(deadline), old: since(59 * time.Second), want: []string{"Running", "", ""}},
		{name: "not started", pod: newPod(deadline), want: []string{"Running", "", ""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			st := Generate(GenerateInput{Pod: tt.pod, PodStatus: live, Old: tt.old, Now: noon()})
			if diff := cmp.Diff(tt.want, []string{string(st.Phase), st.Reason, st.Message}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// condText is a condition in one line.
func condText(c v1.PodCondition) string {
	s := string(c.Status)
	for _, part := range []string{c.Reason, c.Message} {
		if part != "" {
			s += " | " + part
		}
	}
	return s
}

func TestConditions(t *testing.T) {
	sandbox := func(state runtimeapi.PodSandboxState, ip string) *runtimeapi.PodSandboxStatus {
		return &runtimeapi.PodSandboxStatus{Id: "sb", State: state, Network: &runtimeapi.PodSandboxNetworkStatus{Ip: ip}}
	}
	up, down := sandbox(runtimeapi.PodSandboxState_SANDBOX_READY, "10.0.0.1"), sandbox(runtimeapi.PodSandboxState_SANDBOX_NOTREADY, "")
	app := instance("app", 0, container.Running, 0)
	probes := func(isReady bool) func(*v1.Pod, *v1.PodStatus) {
		return func(_ *v1.Pod, st *v1.PodStatus) {
			for i := range st.ContainerStatuses {
				st.ContainerStatuses[i].Ready = isReady
			}
			for i := range st.InitContainerStatuses {
				c := &st.InitContainerStatuses[i]
				c.Ready = isReady && (c.State.Running != nil || c.State.Terminated != nil)
				c.Started = new(c.Ready)
			}
		}
	}
	for _, tt := range []struct {
		name     string
		pod      *v1.Pod
		runtime  []*container.Status
		sandbox  []*runtimeapi.PodSandboxStatus
		old      v1.PodStatus
		terminal bool
		unready  bool
		want     map[v1.PodConditionType]string
	}{
		{
			name: "ready", pod: newPod(), runtime: []*container.Status{app}, sandbox: []*runtimeapi.PodSandboxStatus{up, down},
			want: map[v1.PodConditionType]string{"PodReadyToStartContainers": "True", "Initialized": "True", "Ready": "True", "ContainersReady": "True"},
		},
		{
			name: "not ready", pod: newPod(), unready: true, runtime: []*container.Status{app}, sandbox: []*runtimeapi.PodSandboxStatus{up},
			want: map[v1.PodConditionType]string{
				"PodReadyToStartContainers": "True", "Initialized": "True",
				"Ready":           "False | ContainersNotReady | containers with unready status: [app]",
				"ContainersReady": "False | ContainersNotReady | containers with unready status: [app]",
			},
		},
		{
			name: "initializing", pod: newPod(withInit("i")), unready: true, sandbox: []*runtimeapi.PodSandboxStatus{down},
			want: map[v1.PodConditionType]string{
				"PodReadyToStartContainers": "False", "Initialized": "False | ContainersNotInitialized | containers with incomplete status: [i]",
				"Ready":           "False | ContainersNotReady | containers with unready status: [app]",
				"ContainersReady": "False | ContainersNotReady | containers with unready status: [app]",
			},
		},
		{
			name: "initialized once", pod: newPod(withInit("i")), unready: true, sandbox: []*runtimeapi.PodSandboxStatus{down, up},
			old: v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.PodInitialized, Status: v1.ConditionTrue}}},
			want: map[v1.PodConditionType]string{
				"PodReadyToStartContainers": "False", "Initialized": "True",
				"Ready":           "False | ContainersNotReady | containers with unready status: [app]",
				"ContainersReady": "False | ContainersNotReady | containers with unready status: [app]",
			},
		},
		{
			name: "sidecar not ready", pod: newPod(withSidecar("s")), runtime: []*container.Status{app},
			sandbox: []*runtimeapi.PodSandboxStatus{sandbox(runtimeapi.PodSandboxState_SANDBOX_READY, "")},
			want: map[v1.PodConditionType]string{
				"PodReadyToStartContainers": "False", "Initialized": "True",
				"Ready":           "False | ContainersNotReady | containers with unready status: [s]",
				"ContainersReady": "False | ContainersNotReady | containers with unready status: [s]",
			},
		},
		{
			name: "completed", pod: newPod(policy(v1.RestartPolicyNever)), unready: true, runtime: []*container.Status{instance("app", 0, container.Exited, 0)},
			want: map[v1.PodConditionType]string{
				"PodReadyToStartContainers": "False", "Initialized": "True | PodCompleted",
				"Ready": "False | PodCompleted", "ContainersReady": "False | PodCompleted",
			},
		},
		{
			name: "failed", pod: newPod(), terminal: true, runtime: []*container.Status{instance("app", 0, container.Exited, 2)},
			want: map[v1.PodConditionType]string{
				"PodReadyToStartContainers": "False", "Initialized": "True", "Ready": "False | PodFailed", "ContainersReady": "False | PodFailed",
			},
		},
		{
			name: "evicted", pod: newPod(), runtime: []*container.Status{app}, sandbox: []*runtimeapi.PodSandboxStatus{up},
			old: v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "TerminationByKubelet"}}},
			want: map[v1.PodConditionType]string{
				"DisruptionTarget":          "True | TerminationByKubelet",
				"PodReadyToStartContainers": "True", "Initialized": "True", "ContainersReady": "True", "Ready": "True",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.want["PodScheduled"] = "True"
			st := Generate(GenerateInput{
				Pod: tt.pod, Old: tt.old, Terminal: tt.terminal, UpdateProbes: probes(!tt.unready),
				PodStatus: &container.PodStatus{ContainerStatuses: tt.runtime, SandboxStatuses: tt.sandbox},
			})
			got := map[v1.PodConditionType]string{}
			for _, c := range st.Conditions {
				got[c.Type] = condText(c)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
