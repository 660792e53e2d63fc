package status

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

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
	gate := func(p *v1.Pod) { p.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "lb"}} }
	gateIs := func(is v1.ConditionStatus) podOption {
		return func(p *v1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: "lb", Status: is})
		}
	}
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
			name: "initialized once", pod: newPod(withInit("i")), unready: true, sandbox: []*runtimeapi.PodSandboxStatus{up, up},
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
			name: "gate missing", pod: newPod(gate), runtime: []*container.Status{app}, sandbox: []*runtimeapi.PodSandboxStatus{up},
			want: map[v1.PodConditionType]string{
				"PodReadyToStartContainers": "True", "Initialized": "True", "ContainersReady": "True",
				"Ready": `False | ReadinessGatesNotReady | corresponding condition of pod readiness gate "lb" does not exist.`,
			},
		},
		{
			name: "gate closed", pod: newPod(gate, gateIs(v1.ConditionFalse)), runtime: []*container.Status{app}, sandbox: []*runtimeapi.PodSandboxStatus{up},
			want: map[v1.PodConditionType]string{
				"lb": "False", "PodReadyToStartContainers": "True", "Initialized": "True", "ContainersReady": "True",
				"Ready": `False | ReadinessGatesNotReady | the status of pod readiness gate "lb" is not "True", but False`,
			},
		},
		{
			name: "gate open", pod: newPod(gate, gateIs(v1.ConditionTrue)), runtime: []*container.Status{app}, sandbox: []*runtimeapi.PodSandboxStatus{up},
			want: map[v1.PodConditionType]string{
				"lb": "True", "PodReadyToStartContainers": "True", "Initialized": "True", "ContainersReady": "True", "Ready": "True",
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
		{
			name: "another network namespace", pod: newPod(func(p *v1.Pod) { p.Spec.HostNetwork = true }), runtime: []*container.Status{app},
			sandbox: []*runtimeapi.PodSandboxStatus{up},
			want: map[v1.PodConditionType]string{
				"PodReadyToStartContainers": "False", "Initialized": "True", "ContainersReady": "True", "Ready": "True",
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

func TestNoStatuses(t *testing.T) {
	p := newPod(withInit("i"))
	for name, c := range map[string]v1.PodCondition{
		"initialized": initialized(p, nil, nil, v1.PodPending), "ready": ready(p, nil, nil, v1.PodPending),
	} {
		if got := condText(c); got != "False | UnknownContainerStatuses" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestNeedsReadinessSync(t *testing.T) {
	p := newPod(func(p *v1.Pod) {
		p.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "lb"}}
		p.Status.ContainerStatuses = []v1.ContainerStatus{started(running("app"))}
		p.Status.Conditions = []v1.PodCondition{{Type: "lb", Status: v1.ConditionTrue}, {Type: v1.PodReady, Status: v1.ConditionFalse}}
	})
	if !NeedsReadinessSync(p) {
		t.Error("an opened gate was not seen")
	}
	p.Status.Conditions[1].Status = v1.ConditionTrue
	if NeedsReadinessSync(p) {
		t.Error("nothing has changed")
	}
}
