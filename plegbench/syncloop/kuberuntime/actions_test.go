package kuberuntime

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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

func has(sandboxes ...*runtimeapi.PodSandboxStatus) *container.PodStatus {
	return &container.PodStatus{SandboxStatuses: sandboxes}
}

// statusOf reads a status: "ready" or "old" for a sandbox, and containers, the newest first, as "a=exited:1". A word
// after the exit code is the reason; "changed" instead of a code is another hash.
func statusOf(t *testing.T, text string) *container.PodStatus {
	t.Helper()
	st := has()
	for _, word := range strings.Fields(text) {
		name, state, isContainer := strings.Cut(word, "=")
		switch {
		case isContainer:
			state, rest, _ := strings.Cut(state, ":")
			code, reason, _ := strings.Cut(rest, ":")
			n, _ := strconv.Atoi(code)
			s := containerIs(name, container.State(state), n)
			if s.Reason = reason; code == "changed" {
				s.Hash++
			}
			st.ContainerStatuses = append(st.ContainerStatuses, s)
		case word == "ready":
			st.SandboxStatuses = append(st.SandboxStatuses, sandboxIs(0, ready))
		case word == "old":
			st.SandboxStatuses = append(st.SandboxStatuses, sandboxIs(0, notReady))
		default:
			t.Fatalf("what is %s?", word)
		}
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

// text writes actions as the tests expect them.
func (a PodActions) text() string {
	var out []string
	if a.KillPod {
		out = append(out, "kill")
	}
	if a.CreateSandbox {
		out = append(out, fmt.Sprintf("sandbox %d", a.Attempt))
	}
	for _, i := range a.InitToStart {
		out = append(out, fmt.Sprintf("init %d", i))
	}
	for _, i := range a.ContainersToStart {
		out = append(out, fmt.Sprintf("start %d", i))
	}
	for _, k := range a.ContainersToKill {
		out = append(out, "kill "+k.Name+": "+k.Message)
	}
	return strings.Join(out, ", ")
}

// with changes a pod in place.
func with(p *v1.Pod, change func(*v1.Pod)) *v1.Pod {
	change(p)
	return p
}

func onFailure(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyOnFailure }
func never(p *v1.Pod)     { p.Spec.RestartPolicy = v1.RestartPolicyNever }
func deleted(p *v1.Pod)   { p.DeletionTimestamp = &metav1.Time{} }

type decision struct {
	name              string
	pod               *v1.Pod
	status            string
	liveness, startup string // verdicts
	want              string
}

func decisions(t *testing.T, tests []decision) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := computePodActions(actionInput{
				pod: tt.pod, status: statusOf(t, tt.status),
				liveness: verdicts(strings.Fields(tt.liveness)...), startup: verdicts(strings.Fields(tt.startup)...),
			})
			same(t, "actions", tt.want, got.text())
		})
	}
}

func TestSandboxChanged(t *testing.T) {
	sandbox := func(network runtimeapi.NamespaceMode, ip string) *runtimeapi.PodSandboxStatus {
		s := sandboxIs(1, ready)
		s.Network.Ip = ip
		s.Linux = &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{
			Options: &runtimeapi.NamespaceOption{Network: network},
		}}
		return s
	}
	noNetwork := sandboxIs(1, ready)
	noNetwork.Network = nil
	hostPod := with(testPod("a"), func(p *v1.Pod) { p.Spec.HostNetwork = true })
	again := func(attempt uint32, id, why string) PodActions {
		return PodActions{KillPod: true, CreateSandbox: true, Attempt: attempt, SandboxID: id, Why: why}
	}
	for _, tt := range []struct {
		name   string
		pod    *v1.Pod
		status *container.PodStatus
		want   PodActions
	}{
		{"none", testPod("a"), has(), again(0, "", "No sandbox for pod can be found. Need to start a new one")},
		{
			"two ready", testPod("a"), has(sandboxIs(3, ready), sandboxIs(2, ready)),
			again(4, "sb3", "Multiple sandboxes are ready for Pod. Need to reconcile them"),
		},
		{
			"newest not ready", testPod("a"), has(sandboxIs(1, notReady)),
			again(2, "sb1", "No ready sandbox for pod can be found. Need to start a new one"),
		},
		{
			"other network", testPod("a"), has(sandbox(runtimeapi.NamespaceMode_NODE, "10.0.0.1")),
			again(2, "", "Sandbox for pod has changed. Need to start a new one"),
		},
		{
			"no address", testPod("a"), has(sandbox(runtimeapi.NamespaceMode_POD, "")),
			again(2, "sb1", "Sandbox for pod has no IP address. Need to start a new one"),
		},
		{"no network in the answer", testPod("a"), has(noNetwork), PodActions{Attempt: 1, SandboxID: "sb1"}},
		{
			"host network has no address", hostPod, has(sandbox(runtimeapi.NamespaceMode_NODE, "")),
			PodActions{Attempt: 1, SandboxID: "sb1"},
		},
		{
			"an older one that ended", testPod("a"), has(sandboxIs(3, ready), sandboxIs(2, notReady)),
			PodActions{Attempt: 3, SandboxID: "sb3"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, sandboxChanged(tt.pod, tt.status)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestStartOver(t *testing.T) {
	ownPolicy := with(testPod("a", "b"), func(p *v1.Pod) {
		p.Spec.Containers[0].RestartPolicy = new(v1.ContainerRestartPolicyOnFailure)
	})
	decisions(t, []decision{
		{"a new pod", testPod("a", "b"), "", "", "", "kill, sandbox 0, start 0, start 1"},
		{"a new pod with init containers", withInit(testPod("a"), "i", "j"), "", "", "", "kill, sandbox 0, init 0"},
		{"never, with containers", with(testPod("a"), never), "old a=exited:1", "", "", "kill"},
		{"never, without any", with(testPod("a"), never), "old", "", "", "kill, sandbox 1, start 0"},
		{"never, first attempt", with(testPod("a"), never), "a=exited:1", "", "", "kill, sandbox 0, start 0"},
		{"always starts what succeeded", testPod("a", "b"), "old a=exited:0", "", "", "kill, sandbox 1, start 0, start 1"},
		{
			"on failure leaves out what succeeded", with(testPod("a", "b"), onFailure), "old a=exited:0 b=exited:1", "", "",
			"kill, sandbox 1, start 1",
		},
		{"on failure, all succeeded", with(testPod("a"), onFailure), "old a=exited:0", "", "", "kill"},
		{"a container's own policy", ownPolicy, "old a=exited:0 b=exited:0", "", "", "kill, sandbox 1, start 1"},
		{"init containers begin anew", withInit(testPod("a"), "i", "j"), "old a=running j=exited:0", "", "", "kill, sandbox 1, init 0"},
	})
}

// TestActionsProperties compares who is started and killed with naive rules; here are the reasons, and the rules and
// policies of a container.
func TestRegularContainers(t *testing.T) {
	rules := func(op v1.ContainerRestartRuleOnExitCodesOperator) *v1.Pod {
		return with(testPod("a"), func(p *v1.Pod) {
			p.Spec.Containers[0].RestartPolicy = new(v1.ContainerRestartPolicyNever)
			p.Spec.Containers[0].RestartPolicyRules = []v1.ContainerRestartRule{{
				Action:    v1.ContainerRestartRuleActionRestart,
				ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: op, Values: []int32{42}},
			}}
		})
	}
	in, notIn := v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn
	changed := "start 0, kill a: Container a definition changed, will be restarted"
	decisions(t, []decision{
		{
			"unknown is killed first", testPod("a"), "ready a=unknown", "", "",
			`start 0, kill a: Container is in "unknown" state, try killing it before restart`,
		},
		{"all exited, never", with(testPod("a", "b"), never), "ready a=exited:1 b=exited:0", "", "", "kill"},
		{"one still runs, never", with(testPod("a", "b"), never), "ready a=exited:1 b=running", "", "", ""},
		{"changed, always", testPod("a"), "ready a=running:changed", "", "", changed},
		{"changed, never", with(testPod("a"), never), "ready a=running:changed", "", "", changed},
		{"liveness", testPod("a"), "ready a=running", "a", "", "start 0, kill a: Container a failed liveness probe, will be restarted"},
		{
			"liveness, never, another runs", with(testPod("a", "b"), never), "ready a=running b=running", "a", "",
			"kill a: Container a failed liveness probe",
		},
		{"liveness, never, alone", with(testPod("a"), never), "ready a=running", "a", "", "kill"},
		{
			"startup", with(testPod("a"), onFailure), "ready a=running", "", "a",
			"start 0, kill a: Container a failed startup probe, will be restarted",
		},
		{
			"liveness goes before startup", testPod("a"), "ready a=running", "a", "a",
			"start 0, kill a: Container a failed liveness probe, will be restarted",
		},
		{"deleted, exited", with(testPod("a", "b"), deleted), "ready a=exited:1 b=running", "", "", ""},
		{"deleted, never started", with(testPod("a"), deleted), "ready", "", "", "kill"},
		{"a rule's code", rules(in), "ready a=exited:42", "", "", "start 0"},
		{"not a rule's code", rules(in), "ready a=exited:1", "", "", "kill"},
		{"a rule's other codes", rules(notIn), "ready a=exited:1", "", "", "start 0"},
		{"the newest instance counts", testPod("a"), "ready a=running a=exited:1", "", "", ""},
	})
}

func TestInitContainers(t *testing.T) {
	probed := func(p *v1.Pod) {
		for i := range p.Spec.InitContainers {
			p.Spec.InitContainers[i].StartupProbe, p.Spec.InitContainers[i].LivenessProbe = &v1.Probe{}, &v1.Probe{}
		}
	}
	tryKill := `: Init container is in "unknown" state, try killing it before restart`
	ij := func() *v1.Pod { return withInit(testPod("a"), "i", "j") }
	si := func() *v1.Pod { return withInit(testPod("a"), "s", "i") }
	decisions(t, []decision{
		{"none started", ij(), "ready", "", "", "init 0"},
		{"first created", ij(), "ready i=created", "", "", "init 0"},
		{"first runs", ij(), "ready i=running", "", "", ""},
		{"first ended well", ij(), "ready i=exited:0", "", "", "init 1"},
		{"first failed, always", ij(), "ready i=exited:1", "", "", "init 0"},
		{"first failed, never", with(ij(), never), "ready i=exited:1", "", "", "kill"},
		{"first was killed for memory", ij(), "ready i=exited:0:OOMKilled", "", "", "init 0"},
		{"first was killed for memory, on failure, exit 0", with(ij(), onFailure), "ready i=exited:0:OOMKilled", "", "", "kill"},
		{"first unknown", ij(), "ready i=unknown", "", "", "init 0, kill i" + tryKill},
		{"first unknown, never", with(ij(), never), "ready i=unknown", "", "", "kill"},
		{"last ended well", ij(), "ready j=exited:0 i=exited:0", "", "", "start 0"},
		{"last ended well, first collected", ij(), "ready j=exited:0", "", "", "start 0"},
		{"a failure before the last does not count", ij(), "ready j=exited:0 i=exited:1", "", "", "start 0"},
		{"last failed, never", with(ij(), never), "ready j=exited:1 i=exited:0", "", "", "kill"},
		{"regular one runs, all collected", ij(), "ready a=running", "", "", ""},
		{"regular one created", ij(), "ready a=created", "", "", "start 0"},
		{"regular one exited does not count", ij(), "ready a=exited:1", "", "", "init 0"},
		{"sidecar last, runs", withInit(testPod("a"), "i", "s"), "ready s=running", "", "", "start 0"},
		{"sidecar first, runs", si(), "ready s=running", "", "", "init 1"},
		{"sidecar first, runs, second at work", si(), "ready i=running s=running", "", "", ""},
		{"sidecar waits for its startup probe", with(si(), probed), "ready s=running", "", "", ""},
		{"sidecar's startup probe passed", with(si(), probed), "ready s=running", "", "+s", "init 1"},
		{
			"sidecar's startup probe failed", with(si(), probed), "ready s=running", "", "s",
			"init 0, kill s: Init container s failed startup probe",
		},
		{
			"sidecar's liveness failed", with(si(), probed), "ready s=running a=running", "s", "+s",
			"init 0, kill s: Init container s failed liveness probe",
		},
		{
			"sidecar changed, next is started as well", si(), "ready s=running:changed", "", "",
			"init 0, init 1, kill s: Init container s definition changed",
		},
		{"sidecar exited while initialising", si(), "ready s=exited:0", "", "", "init 0"},
		{"sidecar exited beside a running pod", with(si(), never), "ready s=exited:0 a=running", "", "", "init 0"},
		{"sidecar collected beside a running pod", si(), "ready a=running", "", "", "init 0"},
		{"sidecar unknown, never", with(si(), never), "ready s=unknown a=running", "", "", "init 0, kill s" + tryKill},
		{"sidecars do not keep a pod alive", with(si(), never), "ready s=exited:0 a=exited:0 i=exited:0", "", "", "kill"},
		{"a deleted pod does not repeat a failed init container", with(ij(), deleted), "ready i=exited:1", "", "", "kill"},
		{"two sidecars, both gone", withInit(testPod("a"), "s", "i", "s2"), "ready a=running", "", "", "init 0, init 2"},
	})
}
