//go:build e2e

package containerd

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl/fake"
)

// TestEndToEndCanary runs canaries on a real containerd: well, with a program that is not there, killed, and with
// the daemon stopped while one is there, of which kdiag names what is left. The next run removes one whose
// time is over, and not the one of the killed run, whose time is not.
func TestEndToEndCanary(t *testing.T) {
	n, temp := startNode(t), t.TempDir()
	start := func(args ...string) *e2etest.Process {
		args = append([]string{"canary", "-v", "-o", "json", "--runtime-endpoint", n.Endpoint()}, args...)
		return e2etest.Start(t, []string{"TMPDIR=" + temp}, args...)
	}
	wants := func(o *checks.CanaryReport, code int, status checks.Verdict, want int) {
		t.Helper()
		fine := status == checks.Healthy && o.Status == checks.Degraded // a machine may be slow
		if o.Status != status && !fine || code != want || o.CleanedUp != (want != 1) {
			t.Errorf("exit code %d, %+v", code, o)
		}
	}
	sandboxes := func() []*runtimeapi.PodSandbox {
		list, err := n.cri.ListPodSandbox(t.Context(), nil)
		e2etest.Must(t, err)
		return list
	}
	wantsClean := func() {
		t.Helper()
		containers, err := n.cri.ListContainers(t.Context(), nil)
		files, _ := os.ReadDir(temp)
		if left := sandboxes(); err != nil || len(left)+len(containers)+len(files) > 0 {
			t.Errorf("left: %v %v %v (%v)", left, containers, files, err)
		}
	}
	endpoint, set := e2etest.Proxy(t, n.Endpoint())
	set(fake.Fault{RPC: "ExecSync", Hang: true})
	// linger starts a canary that hangs, and waits until so many are there. The image is given: the canary's own choice
	// may be one without a program for ExecSync.
	linger := func(want int, timeout string) *e2etest.Process {
		p := start("--timeout", timeout, "--rpc-timeout", "30s", "--image", nodebox.ImageBusybox,
			"--runtime-endpoint", endpoint)
		e2etest.Eventually(t, "a canary to come up", func() bool { return len(sandboxes()) == want })
		return p
	}

	patient := []string{"--rpc-timeout", "1m", "--timeout", "5m"} // for a busy machine
	for args, network := range map[string]string{"--cni=false": "host", "--cni=true": "cni"} {
		r, code := finish[checks.CanaryReport](t, start(append(patient, args)...))
		wants(r, code, checks.Healthy, 0)
		if len(r.Steps) != 11 || r.Network != network || r.Image != nodebox.ImageBusybox {
			t.Errorf("%s: %+v", args, r)
		}
		wantsClean()
	}
	r, code := finish[checks.CanaryReport](t, start(append(patient, "--image", nodebox.ImageBusybox, "--",
		"/bin/none")...))
	wants(r, code, checks.Unknown, 2)
	if !strings.Contains(r.Summary, "cannot run `/bin/none`") {
		t.Errorf("%+v", r)
	}
	wantsClean()

	killed := linger(1, "10m")
	e2etest.Must(t, killed.Cmd.Process.Kill())
	killed.Wait()
	young := sandboxes()[0]
	frozen := linger(2, "45s") // a busy machine takes ten or more to make a sandbox
	e2etest.Must(t, n.Pause(t.Context()))
	r, code = finish[checks.CanaryReport](t, frozen)
	e2etest.Must(t, n.Resume())
	wants(r, code, checks.Unhealthy, 1)
	removes := func(s checks.NextStep) bool { return strings.Contains(s.Command, "rmp -f "+r.SandboxID) }
	if len(r.Left) != 1 || !slices.ContainsFunc(r.NextSteps, removes) {
		t.Errorf("%v is left, and the next steps are %+v", r.Left, r.NextSteps)
	}

	// A canary of an hour ago.
	old := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "old", Namespace: young.GetMetadata().GetNamespace(), Uid: "old"},
		Labels:   young.GetLabels(), Annotations: maps.Clone(young.GetAnnotations()),
		Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
		}},
	}
	for key, value := range old.Annotations {
		if at, err := time.Parse(time.RFC3339, value); err == nil {
			old.Annotations[key] = at.Add(-time.Hour).Format(time.RFC3339)
		}
	}
	id, err := n.cri.RunPodSandbox(t.Context(), old, "")
	e2etest.Must(t, err)
	r, code = finish[checks.CanaryReport](t, start(patient...))
	wants(r, code, checks.Healthy, 0)
	if !slices.Contains(r.Earlier, id) || slices.Contains(r.Earlier, young.GetId()) {
		t.Errorf("removed of earlier runs: %v, want %s and not %s", r.Earlier, id, young.GetId())
	}
}
