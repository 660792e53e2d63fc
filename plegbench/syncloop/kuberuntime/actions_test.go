package kuberuntime

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
)

// sandboxIs reads a sandbox: ready or old.
func sandboxIs(text string) *runtimeapi.PodSandboxStatus {
	return &runtimeapi.PodSandboxStatus{
		Id: "sb0", Metadata: &runtimeapi.PodSandboxMetadata{},
		State:   map[string]runtimeapi.PodSandboxState{"ready": ready, "old": notReady}[text],
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.1"},
	}
}

// inputOf reads the state of a pod: sandboxes as sandboxIs does, and containers, the newest first, as "a=exited:1".
// After the state may stand an exit code, OOMKilled, changed for another hash, and liveness, startup or started for
// the result of a probe.
func inputOf(p *v1.Pod, text string) actionInput {
	liveness, startup := map[string]bool{}, map[string]bool{}
	probed := func(failed map[string]bool) ProbeResult {
		return func(id container.ID) (bool, bool) {
			f, known := failed[id.ID]
			return f, known
		}
	}
	in := actionInput{pod: p, status: &container.PodStatus{}, liveness: probed(liveness), startup: probed(startup)}
	for _, word := range strings.Fields(text) {
		name, rest, isContainer := strings.Cut(word, "=")
		if !isContainer {
			in.status.SandboxStatuses = append(in.status.SandboxStatuses, sandboxIs(word))
			continue
		}
		words := strings.Split(rest, ":")
		s := &container.Status{
			ID: container.ID{Type: "fake", ID: name}, Name: name, State: container.State(words[0]),
			Hash: ContainerHash(&v1.Container{Name: name, Image: "image:1"}),
		}
		for _, w := range words[1:] {
			switch w {
			case "OOMKilled":
				s.Reason = w
			case "changed":
				s.Hash++
			case "liveness":
				liveness[name] = true
			case "startup", "started":
				startup[name] = w == "startup"
			default:
				s.ExitCode, _ = strconv.Atoi(w)
			}
		}
		in.status.ContainerStatuses = append(in.status.ContainerStatuses, s)
	}
	return in
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
	for _, i := range a.InitContainersToStart {
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

func TestComputePodActions(t *testing.T) {
	withProbe := func(p *v1.Pod) { p.Spec.InitContainers[0].StartupProbe = &v1.Probe{} }
	a, ab := func() *v1.Pod { return testPod("a") }, func() *v1.Pod { return testPod("a", "b") }
	ij := func() *v1.Pod { return with(testPod("a"), looptest.WithInit("i", "j")) }
	si := func() *v1.Pod { return with(testPod("a"), looptest.WithInit("s", "i")) }
	const tryKill = `ontainer is in "unknown" state, try killing it before restart`
	for _, tt := range []struct {
		pod         *v1.Pod
		state, want string
	}{
		// Without a usable sandbox.
		{ab(), "", "kill, sandbox 0, start 0, start 1"},
		{ij(), "", "kill, sandbox 0, init 0"},
		{with(a(), looptest.Never), "old a=exited:1", "kill"},
		{with(a(), looptest.OnFailure), "old a=exited:0", "kill"},
		{ij(), "old a=running j=exited:0", "kill, sandbox 1, init 0"},
		{a(), "ready ready", "kill, sandbox 1, start 0"},
		// Regular containers.
		{ab(), "ready a=created b=exited:0", "start 0, start 1"},
		{with(ab(), looptest.OnFailure), "ready a=exited:0 b=exited:1", "start 1"},
		{with(ab(), looptest.Never), "ready a=exited:1 b=running", ""},
		{a(), "ready a=unknown", "start 0, kill a: C" + tryKill},
		{a(), "ready a=running:changed", "start 0, kill a: Container a definition changed, will be restarted"},
		{a(), "ready a=running:liveness", "start 0, kill a: Container a failed liveness probe, will be restarted"},
		{with(a(), looptest.Never), "ready a=running:liveness", "kill"},
		{a(), "ready a=running:startup", "start 0, kill a: Container a failed startup probe, will be restarted"},
		{a(), "ready a=running a=exited:1", ""},
		// Init containers.
		{ij(), "ready", "init 0"},
		{ij(), "ready i=running", ""},
		{ij(), "ready i=exited:0", "init 1"},
		{ij(), "ready i=exited:1", "init 0"},
		{with(ij(), looptest.Never), "ready i=exited:1", "kill"},
		{with(ij(), looptest.Deleted(0)), "ready i=exited:1", "kill"},
		{ij(), "ready i=exited:0:OOMKilled", "init 0"},
		{ij(), "ready i=unknown", "init 0, kill i: Init c" + tryKill},
		{ij(), "ready j=exited:0", "start 0"}, // the first was collected
		{ij(), "ready a=running", ""},
		{ij(), "ready a=exited:1", "init 0"},
		// Sidecars.
		{si(), "ready s=running", "init 1"},
		{with(si(), withProbe), "ready s=running", ""},
		{si(), "ready s=running:startup a=running", "init 0, kill s: Init container s failed startup probe"},
		{si(), "ready s=running:liveness a=running", "init 0, kill s: Init container s failed liveness probe"},
		{si(), "ready s=running:changed", "init 0, init 1, kill s: Init container s definition changed"},
		{si(), "ready s=exited:0", "init 0"},
		{with(si(), looptest.Never), "ready s=unknown a=running", "init 0, kill s: Init c" + tryKill},
		{with(si(), looptest.Never), "ready s=exited:0 a=exited:0 i=exited:0", "kill"}, // sidecars do not keep a pod alive
		{with(testPod("a"), looptest.WithInit("s", "i", "s2")), "ready a=running", "init 0, init 2"},
	} {
		got := computePodActions(inputOf(tt.pod, tt.state)).text()
		testkit.Equal(t, fmt.Sprintf("%s, %q", tt.pod.Spec.RestartPolicy, tt.state), tt.want, got)
	}
}
