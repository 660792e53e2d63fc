package status

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/kuberuntime"
	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

func noon() time.Time { return time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC) }

// newPod is a pod web with the container app.
func newPod(edits ...func(*v1.Pod)) *v1.Pod {
	uid := func(p *v1.Pod) { p.UID = "u1" }
	return looptest.Pod("web", append([]func(*v1.Pod){uid}, edits...)...)
}

func withB(p *v1.Pod) { p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: "b"}) }

// statuses reads container statuses, such as "app=running b=exited:1". crashed stands for waiting after an end, and
// started for running with a startup probe that succeeded.
func statuses(text string) (out []v1.ContainerStatus) {
	for _, word := range strings.Fields(text) {
		name, state, _ := strings.Cut(word, "=")
		state, code, _ := strings.Cut(state, ":")
		n, _ := strconv.Atoi(code)
		end := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: int32(n)}}
		st := v1.ContainerStatus{Name: name}
		switch state {
		case "running", "started":
			st.State.Running, st.Started = &v1.ContainerStateRunning{}, new(state == "started")
		case "exited":
			st.State = end
		case "crashed":
			st.LastTerminationState = end
			fallthrough
		default:
			st.State.Waiting = &v1.ContainerStateWaiting{}
		}
		out = append(out, st)
	}
	return out
}

func TestPhase(t *testing.T) {
	const pending, isRunning, succeeded, failed = v1.PodPending, v1.PodRunning, v1.PodSucceeded, v1.PodFailed
	for _, tt := range []struct {
		pod      *v1.Pod
		statuses string
		terminal bool
		want     v1.PodPhase
	}{
		{newPod(), "", false, pending},
		{newPod(), "app=running", false, isRunning},
		{newPod(withB), "app=running", false, pending},
		{newPod(), "app=exited:0", false, isRunning},
		{newPod(), "app=exited:0", true, succeeded},
		{newPod(looptest.Annotated(pod.ConfigSourceAnnotation, pod.FileSource)), "app=exited:0", true, isRunning},
		{newPod(looptest.Never, withB), "app=exited:1 b=running", false, isRunning},
		{newPod(looptest.Never), "app=crashed:0", false, failed},
		{newPod(looptest.Never, looptest.WithInit("i")), "app=waits i=crashed:1", false, failed},
		{newPod(looptest.WithInit("s")), "app=running s=waits", false, pending},
		{newPod(looptest.WithInit("s")), "app=running s=crashed:1", false, isRunning},
		{newPod(looptest.Never, looptest.WithInit("s")), "app=exited:0 s=started", false, isRunning},
		{newPod(looptest.Never, looptest.WithInit("s")), "app=exited:0 s=exited:137", false, succeeded},
	} {
		got := phase(tt.pod, statuses(tt.statuses), tt.terminal)
		testkit.Equal(t, fmt.Sprint(tt.pod.Spec.RestartPolicy, tt.statuses, tt.terminal), tt.want, got)
	}
}

// instances reads the runtime's statuses, such as "app1=running app0=exited:1": the second instance of app runs.
func instances(text string) *container.PodStatus {
	st := &container.PodStatus{}
	for _, word := range strings.Fields(text) {
		id, state, _ := strings.Cut(word, "=")
		state, code, _ := strings.Cut(state, ":")
		restarts, _ := strconv.Atoi(id[len(id)-1:])
		exitCode, _ := strconv.Atoi(code)
		st.ContainerStatuses = append(st.ContainerStatuses, &container.Status{
			ID: container.ID{Type: "containerd", ID: id}, Name: id[:len(id)-1], State: container.State(state),
			RestartCount: restarts, ExitCode: exitCode, StartedAt: noon(), FinishedAt: noon().Add(time.Second),
			Reason: map[bool]string{true: "Completed", false: "Error"}[exitCode == 0],
		})
	}
	return st
}

// brief writes a container's status: name, state, reason and exit code; what it was before; its restarts.
func brief(st v1.ContainerStatus) string {
	s := st.Name
	switch {
	case st.State.Running != nil:
		s += " running"
	case st.State.Waiting != nil:
		s += " waiting " + st.State.Waiting.Reason
	case st.State.Terminated != nil:
		s += fmt.Sprintf(" ended %s %d", st.State.Terminated.Reason, st.State.Terminated.ExitCode)
	}
	if l := st.LastTerminationState.Terminated; l != nil {
		s += ", was " + l.Reason
	}
	return fmt.Sprint(s, ", ", st.RestartCount)
}

// TestReadinessGates has a pod whose container is ready, with two gates.
func TestReadinessGates(t *testing.T) {
	const none = `corresponding condition of pod readiness gate "a" does not exist.`
	for _, tt := range []struct {
		a, b, was string // statuses of the gates and of Ready; empty without the condition
		ready     v1.ConditionStatus
		message   string
		reconcile bool
	}{
		{"True", "True", "True", v1.ConditionTrue, "", false},
		{"True", "True", "False", v1.ConditionTrue, "", true},
		{"", "True", "True", v1.ConditionFalse, none, true},
		{
			"", "False", "False", v1.ConditionFalse, none + `, the status of pod readiness gate "b" is not "True", but False`,
			true,
		},
	} {
		p := newPod(func(p *v1.Pod) {
			p.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "a"}, {ConditionType: "b"}}
			for kind, is := range map[v1.PodConditionType]string{"a": tt.a, "b": tt.b, v1.PodReady: tt.was} {
				if is != "" {
					c := v1.PodCondition{Type: kind, Status: v1.ConditionStatus(is)}
					p.Status.Conditions = append(p.Status.Conditions, c)
				}
			}
			p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "app", Ready: true}}
		})
		st := Generate(GenerateInput{Pod: p, PodStatus: instances("app0=running"), UpdateProbes: allReady})
		c := condition(st.Conditions, v1.PodReady)
		got := []any{c.Status, c.Message, NeedToReconcilePodReadiness(p)}
		testkit.Equal(t, fmt.Sprint(tt), []any{tt.ready, tt.message, tt.reconcile}, got)
	}
}

func TestContainerStatuses(t *testing.T) {
	was := func(state v1.ContainerState) v1.PodStatus {
		return v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{
			Name: "app", ContainerID: "containerd://old", RestartCount: 4, State: state,
		}}}
	}
	wasRunning := was(v1.ContainerState{Running: &v1.ContainerStateRunning{}})
	killed := &v1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137}
	wasKilled := was(v1.ContainerState{Terminated: killed})
	crashLoop := &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "10s"}
	for _, tt := range []struct {
		pod     *v1.Pod
		old     v1.PodStatus
		runtime string
		backOff bool // the last start of all containers but b failed
		want    string
	}{
		{pod: newPod(), want: "app waiting ContainerCreating, 0"},
		{pod: newPod(), runtime: "app1=running app0=exited:1", want: "app running, was Error, 1"},
		{pod: newPod(), runtime: "app0=exited:1", backOff: true, want: "app waiting CrashLoopBackOff, was Error, 0"},
		{pod: newPod(withB), backOff: true, want: "app waiting CrashLoopBackOff, 0; b waiting ContainerCreating, 0"},
		{pod: newPod(), runtime: "app0=created", want: "app waiting , 0"},
		{pod: newPod(), old: wasRunning, want: "app waiting ContainerCreating, was ContainerStatusUnknown, 4"},
		{pod: newPod(looptest.Never), old: wasKilled, want: "app ended OOMKilled 137, 4"},
		{pod: newPod(), old: wasKilled, runtime: "app0=running", want: "app running, was OOMKilled, 4"},
		{ // the init container must have succeeded, the sidecar not
			pod: newPod(looptest.WithInit("i", "s")), runtime: "app0=running",
			want: "i ended Completed 0, 0; s waiting PodInitializing, 0; app running, 0",
		},
		{
			pod: newPod(looptest.WithInit("i")), runtime: "i0=exited:0", backOff: true,
			want: "i ended Completed 0, 0; app waiting CrashLoopBackOff, 0",
		},
	} {
		in := GenerateInput{
			Pod: tt.pod, PodStatus: instances(tt.runtime), Old: tt.old, ShouldStart: kuberuntime.ShouldStart,
		}
		if tt.backOff {
			in.NotStarted = map[string]*v1.ContainerStateWaiting{"app": crashLoop, "i": crashLoop}
		}
		st := Generate(in)
		var got []string
		for _, c := range append(st.InitContainerStatuses, st.ContainerStatuses...) {
			got = append(got, brief(c))
		}
		testkit.Equal(t, tt.runtime, tt.want, strings.Join(got, "; "))
	}
}

// allReady is an UpdateProbes that makes all ready but what waits.
func allReady(_ *v1.Pod, st *v1.PodStatus) {
	for _, list := range [][]v1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses} {
		for i := range list {
			list[i].Ready = list[i].State.Waiting == nil
			list[i].Started = new(list[i].Ready)
		}
	}
}
