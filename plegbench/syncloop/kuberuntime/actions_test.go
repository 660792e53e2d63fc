package kuberuntime

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

func sandboxIs(attempt uint32, state runtimeapi.PodSandboxState) *runtimeapi.PodSandboxStatus {
	return &runtimeapi.PodSandboxStatus{
		Id: fmt.Sprintf("sb%d", attempt), Metadata: &runtimeapi.PodSandboxMetadata{Attempt: attempt}, State: state,
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.1"},
	}
}

const (
	ready    = runtimeapi.PodSandboxState_SANDBOX_READY
	notReady = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
)

// containerIs is a status of a container whose spec did not change.
func containerIs(name string, state container.State, exitCode int) *container.Status {
	return &container.Status{
		ID: container.ID{Type: "fake", ID: "id-" + name}, Name: name, State: state, ExitCode: exitCode,
		Hash: ContainerHash(&v1.Container{Name: name, Image: "image:1"}),
	}
}

func has(sandbox *runtimeapi.PodSandboxStatus, containers ...*container.Status) *container.PodStatus {
	st := &container.PodStatus{ContainerStatuses: containers}
	if sandbox != nil {
		st.SandboxStatuses = append(st.SandboxStatuses, sandbox)
	}
	return st
}

// verdicts are failures of the containers with these names, or with a plus sign in front of the name, successes.
func verdicts(failed ...string) ProbeResult {
	return func(id container.ID) (bool, bool) {
		for _, n := range failed {
			if id.ID == "id-"+n {
				return true, true
			}
			if n[0] == '+' && id.ID == "id-"+n[1:] {
				return false, true
			}
		}
		return false, false
	}
}

func killOf(name, message string) Kill {
	return Kill{ID: container.ID{Type: "fake", ID: "id-" + name}, Name: name, Message: message}
}

// with changes a pod in place.
func with(p *v1.Pod, change func(*v1.Pod)) *v1.Pod {
	change(p)
	return p
}

func onFailure(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyOnFailure }
func never(p *v1.Pod)     { p.Spec.RestartPolicy = v1.RestartPolicyNever }

type decision struct {
	name              string
	pod               *v1.Pod
	status            *container.PodStatus
	liveness, startup []string
	want              PodActions
}

func decisions(t *testing.T, tests []decision) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := computePodActions(actionInput{
				pod: tt.pod, status: tt.status, liveness: verdicts(tt.liveness...), startup: verdicts(tt.startup...),
			})
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(PodActions{}, "Why"), cmpopts.IgnoreFields(Kill{}, "Probe")); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSandboxChanged(t *testing.T) {
	hostNetwork := sandboxIs(1, ready)
	hostNetwork.Linux = &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{
		Options: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
	}}
	noIP := sandboxIs(1, ready)
	noIP.Network.Ip = ""
	noNetwork := sandboxIs(1, ready)
	noNetwork.Network = nil
	hostPod := with(testPod("a"), func(p *v1.Pod) { p.Spec.HostNetwork = true })
	hostNoIP := sandboxIs(1, ready)
	hostNoIP.Linux, hostNoIP.Network = hostNetwork.Linux, noIP.Network
	two := has(sandboxIs(3, ready))
	two.SandboxStatuses = append(two.SandboxStatuses, sandboxIs(2, ready))
	older := has(sandboxIs(3, ready))
	older.SandboxStatuses = append(older.SandboxStatuses, sandboxIs(2, notReady))
	for _, tt := range []struct {
		name   string
		pod    *v1.Pod
		status *container.PodStatus
		want   PodActions
	}{
		{"none", testPod("a"), has(nil), PodActions{
			KillPod: true, CreateSandbox: true, Why: "No sandbox for pod can be found. Need to start a new one",
		}},
		{"two ready", testPod("a"), two, PodActions{
			KillPod: true, CreateSandbox: true, Attempt: 4, SandboxID: "sb3", Why: "Multiple sandboxes are ready for Pod. Need to reconcile them",
		}},
		{"newest not ready", testPod("a"), has(sandboxIs(1, notReady)), PodActions{
			KillPod: true, CreateSandbox: true, Attempt: 2, SandboxID: "sb1",
			Why: "No ready sandbox for pod can be found. Need to start a new one",
		}},
		{"other network", testPod("a"), has(hostNetwork), PodActions{
			KillPod: true, CreateSandbox: true, Attempt: 2, Why: "Sandbox for pod has changed. Need to start a new one",
		}},
		{"no address", testPod("a"), has(noIP), PodActions{
			KillPod: true, CreateSandbox: true, Attempt: 2, SandboxID: "sb1", Why: "Sandbox for pod has no IP address. Need to start a new one",
		}},
		{"no network in the answer", testPod("a"), has(noNetwork), PodActions{Attempt: 1, SandboxID: "sb1"}},
		{"host network has no address", hostPod, has(hostNoIP), PodActions{Attempt: 1, SandboxID: "sb1"}},
		{"an older one that ended", testPod("a"), older, PodActions{Attempt: 3, SandboxID: "sb3"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, sandboxChanged(tt.pod, tt.status)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestStartOver(t *testing.T) {
	old := sandboxIs(0, notReady)
	again := PodActions{KillPod: true, CreateSandbox: true, Attempt: 1, SandboxID: "sb0"}
	only := PodActions{KillPod: true, Attempt: 1, SandboxID: "sb0"}
	start := func(a PodActions, init []int, regular ...int) PodActions {
		a.InitToStart, a.ContainersToStart = init, regular
		return a
	}
	ownPolicy := with(testPod("a", "b"), func(p *v1.Pod) {
		p.Spec.RestartPolicy = v1.RestartPolicyAlways
		own := v1.ContainerRestartPolicyOnFailure
		p.Spec.Containers[0].RestartPolicy = &own
	})
	decisions(t, []decision{
		{"a new pod", testPod("a", "b"), has(nil), nil, nil, start(PodActions{KillPod: true, CreateSandbox: true}, nil, 0, 1)},
		{
			"a new pod with init containers", withInit(testPod("a"), "i", "j"), has(nil), nil, nil,
			start(PodActions{KillPod: true, CreateSandbox: true}, []int{0}),
		},
		{"never, with containers", with(testPod("a"), never), has(old, containerIs("a", container.Exited, 1)), nil, nil, only},
		{"never, without any", with(testPod("a"), never), has(old), nil, nil, start(again, nil, 0)},
		{
			"never, first attempt", with(testPod("a"), never), has(nil, containerIs("a", container.Exited, 1)), nil, nil,
			start(PodActions{KillPod: true, CreateSandbox: true}, nil, 0),
		},
		{"always starts what succeeded", testPod("a", "b"), has(old, containerIs("a", container.Exited, 0)), nil, nil, start(again, nil, 0, 1)},
		{
			"on failure leaves out what succeeded", with(testPod("a", "b"), onFailure),
			has(old, containerIs("a", container.Exited, 0), containerIs("b", container.Exited, 1)), nil, nil,
			start(again, nil, 1),
		},
		{"on failure, all succeeded", with(testPod("a"), onFailure), has(old, containerIs("a", container.Exited, 0)), nil, nil, only},
		{
			"a container's own policy", ownPolicy,
			has(old, containerIs("a", container.Exited, 0), containerIs("b", container.Exited, 0)), nil, nil,
			start(again, nil, 1),
		},
		{
			"init containers begin anew", withInit(testPod("a"), "i", "j"),
			has(old, containerIs("a", container.Running, 0), containerIs("j", container.Exited, 0)), nil, nil,
			start(again, []int{0}),
		},
	})
}

func TestRegularContainers(t *testing.T) {
	sb := sandboxIs(0, ready)
	fine := PodActions{SandboxID: "sb0"}
	done := PodActions{SandboxID: "sb0", KillPod: true}
	does := func(start []int, kills ...Kill) PodActions {
		return PodActions{SandboxID: "sb0", ContainersToStart: start, ContainersToKill: kills}
	}
	changed := containerIs("a", container.Running, 0)
	changed.Hash++
	noHash := containerIs("a", container.Running, 0)
	noHash.Hash = 0
	deleted := func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{} }
	rules := func(op v1.ContainerRestartRuleOnExitCodesOperator) func(*v1.Pod) {
		return func(p *v1.Pod) {
			own := v1.ContainerRestartPolicyNever
			p.Spec.Containers[0].RestartPolicy = &own
			p.Spec.Containers[0].RestartPolicyRules = []v1.ContainerRestartRule{{
				Action: v1.ContainerRestartRuleActionRestart, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: op, Values: []int32{42}},
			}}
		}
	}
	in, notIn := v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn
	decisions(t, []decision{
		{"missing", testPod("a", "b"), has(sb), nil, nil, does([]int{0, 1})},
		{"created", with(testPod("a"), never), has(sb, containerIs("a", container.Created, 0)), nil, nil, does([]int{0})},
		{
			"unknown is killed first", testPod("a"), has(sb, containerIs("a", container.Unknown, 0)), nil, nil,
			does([]int{0}, killOf("a", `Container is in "unknown" state, try killing it before restart`)),
		},
		{"exited, always", testPod("a"), has(sb, containerIs("a", container.Exited, 0)), nil, nil, does([]int{0})},
		{
			"exited well, on failure", with(testPod("a", "b"), onFailure),
			has(sb, containerIs("a", container.Exited, 0), containerIs("b", container.Running, 0)), nil, nil, fine,
		},
		{"exited badly, on failure", with(testPod("a"), onFailure), has(sb, containerIs("a", container.Exited, 1)), nil, nil, does([]int{0})},
		{
			"all exited, never", with(testPod("a", "b"), never),
			has(sb, containerIs("a", container.Exited, 1), containerIs("b", container.Exited, 0)), nil, nil, done,
		},
		{
			"one still runs, never", with(testPod("a", "b"), never),
			has(sb, containerIs("a", container.Exited, 1), containerIs("b", container.Running, 0)), nil, nil, fine,
		},
		{"running", testPod("a"), has(sb, containerIs("a", container.Running, 0)), nil, nil, fine},
		{
			"changed, always", testPod("a"), has(sb, changed), nil, nil,
			does([]int{0}, killOf("a", "Container a definition changed, will be restarted")),
		},
		{
			"changed, never", with(testPod("a"), never), has(sb, changed), nil, nil,
			does([]int{0}, killOf("a", "Container a definition changed, will be restarted")),
		},
		{
			"no hash", testPod("a"), has(sb, noHash), nil, nil,
			does([]int{0}, killOf("a", "Container a definition changed, will be restarted")),
		},
		{
			"liveness, always", testPod("a"), has(sb, containerIs("a", container.Running, 0)),
			[]string{"a"},
			nil,
			does([]int{0}, killOf("a", "Container a failed liveness probe, will be restarted")),
		},
		{
			"liveness, never, another runs", with(testPod("a", "b"), never),
			has(sb, containerIs("a", container.Running, 0), containerIs("b", container.Running, 0)),
			[]string{"a"},
			nil,
			does(nil, killOf("a", "Container a failed liveness probe")),
		},
		{"liveness, never, alone", with(testPod("a"), never), has(sb, containerIs("a", container.Running, 0)), []string{"a"}, nil, done},
		{
			"startup", with(testPod("a"), onFailure), has(sb, containerIs("a", container.Running, 0)), nil,
			[]string{"a"},
			does([]int{0}, killOf("a", "Container a failed startup probe, will be restarted")),
		},
		{
			"liveness goes before startup", testPod("a"), has(sb, containerIs("a", container.Running, 0)),
			[]string{"a"},
			[]string{"a"},
			does([]int{0}, killOf("a", "Container a failed liveness probe, will be restarted")),
		},
		{"probes are well", testPod("a"), has(sb, containerIs("a", container.Running, 0)), []string{"+a"}, []string{"+a"}, fine},
		{
			"deleted, exited", with(testPod("a", "b"), deleted),
			has(sb, containerIs("a", container.Exited, 1), containerIs("b", container.Running, 0)), nil, nil, fine,
		},
		{"deleted, all exited", with(testPod("a"), deleted), has(sb, containerIs("a", container.Exited, 1)), nil, nil, done},
		{"deleted, never started", with(testPod("a"), deleted), has(sb), nil, nil, done},
		{"a rule's code", with(testPod("a"), rules(in)), has(sb, containerIs("a", container.Exited, 42)), nil, nil, does([]int{0})},
		{"not a rule's code", with(testPod("a"), rules(in)), has(sb, containerIs("a", container.Exited, 1)), nil, nil, done},
		{"a rule's other codes", with(testPod("a"), rules(notIn)), has(sb, containerIs("a", container.Exited, 1)), nil, nil, does([]int{0})},
		{
			"the newest instance counts", testPod("a"),
			has(sb, containerIs("a", container.Running, 0), containerIs("a", container.Exited, 1)), nil, nil, fine,
		},
	})
}

func TestInitContainers(t *testing.T) {
	sb := sandboxIs(0, ready)
	does := func(init []int, regular []int, kills ...Kill) PodActions {
		return PodActions{SandboxID: "sb0", InitToStart: init, ContainersToStart: regular, ContainersToKill: kills}
	}
	done := PodActions{SandboxID: "sb0", KillPod: true}
	is := containerIs
	run, exited, created, unknown := container.Running, container.Exited, container.Created, container.Unknown
	oom := is("i", exited, 0)
	oom.Reason = "OOMKilled"
	changed := is("s", run, 0)
	changed.Hash++
	probed := func(p *v1.Pod) {
		for i := range p.Spec.InitContainers {
			p.Spec.InitContainers[i].StartupProbe, p.Spec.InitContainers[i].LivenessProbe = &v1.Probe{}, &v1.Probe{}
		}
	}
	tryKill := `Init container is in "unknown" state, try killing it before restart`
	ij, isPod := func() *v1.Pod { return withInit(testPod("a"), "i", "j") }, func() *v1.Pod { return withInit(testPod("a"), "i", "s") }
	si := func() *v1.Pod { return withInit(testPod("a"), "s", "i") }
	decisions(t, []decision{
		{"none started", ij(), has(sb), nil, nil, does([]int{0}, nil)},
		{"first created", ij(), has(sb, is("i", created, 0)), nil, nil, does([]int{0}, nil)},
		{"first runs", ij(), has(sb, is("i", run, 0)), nil, nil, does(nil, nil)},
		{"first ended well", ij(), has(sb, is("i", exited, 0)), nil, nil, does([]int{1}, nil)},
		{"first failed, always", ij(), has(sb, is("i", exited, 1)), nil, nil, does([]int{0}, nil)},
		{"first failed, never", with(ij(), never), has(sb, is("i", exited, 1)), nil, nil, done},
		{"first was killed for memory", ij(), has(sb, oom), nil, nil, does([]int{0}, nil)},
		{"first was killed for memory, on failure, exit 0", with(ij(), onFailure), has(sb, oom), nil, nil, done},
		{"first unknown", ij(), has(sb, is("i", unknown, 0)), nil, nil, does([]int{0}, nil, killOf("i", tryKill))},
		{"first unknown, never", with(ij(), never), has(sb, is("i", unknown, 0)), nil, nil, done},
		{"last ended well", ij(), has(sb, is("j", exited, 0), is("i", exited, 0)), nil, nil, does(nil, []int{0})},
		{"last ended well, first collected", ij(), has(sb, is("j", exited, 0)), nil, nil, does(nil, []int{0})},
		{"a failure before the last does not count", ij(), has(sb, is("j", exited, 0), is("i", exited, 1)), nil, nil, does(nil, []int{0})},
		{"last failed, never", with(ij(), never), has(sb, is("j", exited, 1), is("i", exited, 0)), nil, nil, done},
		{"regular one runs, all collected", ij(), has(sb, is("a", run, 0)), nil, nil, does(nil, nil)},
		{"regular one created", ij(), has(sb, is("a", created, 0)), nil, nil, does(nil, []int{0})},
		{"regular one exited does not count", ij(), has(sb, is("a", exited, 1)), nil, nil, does([]int{0}, nil)},
		{"sidecar last, runs", isPod(), has(sb, is("s", run, 0)), nil, nil, does(nil, []int{0})},
		{"sidecar first, runs", si(), has(sb, is("s", run, 0)), nil, nil, does([]int{1}, nil)},
		{"sidecar first, runs, second at work", si(), has(sb, is("i", run, 0), is("s", run, 0)), nil, nil, does(nil, nil)},
		{"sidecar waits for its startup probe", with(si(), probed), has(sb, is("s", run, 0)), nil, nil, does(nil, nil)},
		{"sidecar's startup probe passed", with(si(), probed), has(sb, is("s", run, 0)), nil, []string{"+s"}, does([]int{1}, nil)},
		{
			"sidecar's startup probe failed", with(si(), probed), has(sb, is("s", run, 0)), nil,
			[]string{"s"},
			does([]int{0}, nil, killOf("s", "Init container s failed startup probe")),
		},
		{
			"sidecar's liveness failed", with(si(), probed), has(sb, is("s", run, 0), is("a", run, 0)),
			[]string{"s"},
			[]string{"+s"},
			does([]int{0}, nil, killOf("s", "Init container s failed liveness probe")),
		},
		{
			"sidecar changed, next is started as well", si(), has(sb, changed), nil, nil,
			does([]int{0, 1}, nil, killOf("s", "Init container s definition changed")),
		},
		{"sidecar exited while initialising", si(), has(sb, is("s", exited, 0)), nil, nil, does([]int{0}, nil)},
		{"sidecar exited beside a running pod", with(si(), never), has(sb, is("s", exited, 0), is("a", run, 0)), nil, nil, does([]int{0}, nil)},
		{"sidecar collected beside a running pod", si(), has(sb, is("a", run, 0)), nil, nil, does([]int{0}, nil)},
		{
			"sidecar unknown, never", with(si(), never), has(sb, is("s", unknown, 0), is("a", run, 0)), nil, nil,
			does([]int{0}, nil, killOf("s", tryKill)),
		},
		{
			"sidecars do not keep a pod alive", with(si(), never),
			has(sb, is("s", exited, 0), is("a", exited, 0), is("i", exited, 0)), nil, nil, done,
		},
		{
			"a deleted pod does not repeat a failed init container",
			with(ij(), func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{} }), has(sb, is("i", exited, 1)), nil, nil,
			done,
		},
		{"two sidecars, both gone", withInit(testPod("a"), "s", "i", "s2"), has(sb, is("a", run, 0)), nil, nil, does([]int{0, 2}, nil)},
	})
}
