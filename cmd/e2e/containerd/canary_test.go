//go:build e2e

package containerd

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/fault"
)

// A canaryNode is a node on which kdiag canary runs, and the folder of its temporary files.
type canaryNode struct {
	*node
	temp string
}

func startCanaryNode(t *testing.T) canaryNode {
	t.Helper()
	return canaryNode{startNode(t, nodebox.Options{Network: true, RootSize: 1 << 30}), t.TempDir()}
}

func (n canaryNode) start(t *testing.T, args ...string) *e2etest.Process {
	t.Helper()
	all := append([]string{"canary", "-v", "-o", "json", "--runtime-endpoint", n.Endpoint()}, args...)
	return e2etest.Start(t, []string{"TMPDIR=" + n.temp}, all...)
}

func (n canaryNode) run(t *testing.T, args ...string) (*checks.CanaryReport, int) {
	t.Helper()
	return finish[checks.CanaryReport](t, n.start(t, args...))
}

// holdExec starts a proxy in which ExecSync hangs until release, and returns its endpoint.
func (n canaryNode) holdExec(t *testing.T) (endpoint string, release func()) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "held.sock")
	held := []fake.Fault{{RPC: "ExecSync", Hang: true}}
	proxy, err := fault.New(fault.Config{Backend: n.Endpoint(), Listen: socket, Faults: held})
	e2etest.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- proxy.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the proxy: %v", err)
		}
	})
	return "unix://" + socket, func() { e2etest.Must(t, proxy.SetFaults(nil, nil)) }
}

// linger starts a canary whose ExecSync hangs, and waits until so many sandboxes are there. The image is given: the
// canary's own choice may be one without a program for ExecSync.
func (n canaryNode) linger(t *testing.T, sandboxes int, args ...string) *e2etest.Process {
	t.Helper()
	endpoint, _ := n.holdExec(t)
	r := n.start(t, append(args, "--image", nodebox.ImageBusybox, "--runtime-endpoint", endpoint)...)
	e2etest.Eventually(t, "a canary to come up", func() bool { return len(n.canaries(t)) == sandboxes })
	return r
}

// canaries are what is left in the runtime: of canaries, or of anything at all.
func (n canaryNode) canaries(t *testing.T) []*runtimeapi.PodSandbox {
	t.Helper()
	list, err := n.cri.ListPodSandbox(t.Context(), nil)
	e2etest.Must(t, err)
	return list
}

// wantsClean checks that the runtime and the folder of temporary files are empty.
func (n canaryNode) wantsClean(t *testing.T) {
	t.Helper()
	if left := n.canaries(t); len(left) > 0 {
		t.Errorf("sandboxes are left: %v", left)
	}
	containers, err := n.cri.ListContainers(t.Context(), nil)
	if err != nil || len(containers) > 0 {
		t.Errorf("containers are left: %v (%v)", containers, err)
	}
	if entries, err := os.ReadDir(n.temp); err != nil || len(entries) > 0 {
		t.Errorf("files are left: %v (%v)", entries, err)
	}
}

// TestEndToEndCanary runs canaries on a real containerd: well, frozen in the midst, interrupted, and killed.
func TestEndToEndCanary(t *testing.T) {
	n := startCanaryNode(t)
	for _, tt := range []struct {
		args, network, image string
		skipped              bool // ExecSync
	}{
		{"--cni=false", "host", nodebox.ImageBusybox, false},
		{"--cni=true", "cni", nodebox.ImageBusybox, false},
		{"--image=" + nodebox.ImagePause, "host", nodebox.ImagePause, true},
	} {
		t.Run(tt.args, func(t *testing.T) {
			r, code := n.run(t, tt.args)
			wantsFine(t, r, code)
			skipped := r.Steps[5].Status == checks.StatusSkipped
			if len(r.Steps) != 11 || r.Network != tt.network || r.Image != tt.image || r.Runtime.Name != "containerd" ||
				skipped != tt.skipped {
				t.Errorf("%+v", r)
			}
			n.wantsClean(t)
		})
	}
	for summary, args := range map[string][]string{
		"the image docker.io/local/none:1 is not on this node": {"--image", "docker.io/local/none:1"},
		"cannot run `/bin/none`":                               {"--image", nodebox.ImageBusybox, "--", "/bin/none"},
	} {
		t.Run(summary, func(t *testing.T) {
			r, code := n.run(t, args...)
			if r.Status != checks.Unknown || code != 2 || !strings.Contains(r.Summary, summary) {
				t.Errorf("exit code %d, %+v", code, r)
			}
			n.wantsClean(t)
		})
	}
	t.Run("exits by itself", func(t *testing.T) { // before ExecSync
		endpoint, release := n.holdExec(t)
		run := n.start(t, "--rpc-timeout", "1m", "--timeout", "5m", "--runtime-endpoint", endpoint,
			"--image", nodebox.ImageBusybox, "--", "false")
		e2etest.Eventually(t, "the container to exit", func() bool {
			all, err := n.cri.ListContainers(t.Context(), nil)
			return err == nil && len(all) == 1 && all[0].GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
		})
		release()
		r, code := finish[checks.CanaryReport](t, run)
		if r.Status != checks.Unknown || code != 2 || !strings.Contains(r.Summary, "the container exited with code 1") {
			t.Errorf("exit code %d, %+v", code, r)
		}
		n.wantsClean(t)
	})
	for name, signals := range map[string][]os.Signal{
		"interrupted": {syscall.SIGINT}, "hung up": {syscall.SIGHUP, syscall.SIGPIPE, syscall.SIGHUP},
	} {
		t.Run(name, func(t *testing.T) {
			run := n.linger(t, 1)
			for _, s := range signals {
				e2etest.Must(t, run.Cmd.Process.Signal(s))
			}
			r, code := finish[checks.CanaryReport](t, run)
			if code != 2 || r.Status != checks.Unknown || !r.CleanedUp {
				t.Errorf("exit code %d, %+v", code, r)
			}
			n.wantsClean(t)
		})
	}
	t.Run("no network", func(t *testing.T) { // a sandbox may come late: this is the last test
		e2etest.Must(t, n.HangCNI())
		r, code := n.run(t, "--cni", "--timeout", "8s")
		e2etest.Must(t, n.ReleaseCNI())
		if r.Status != checks.Unhealthy || code != 1 || !strings.Contains(r.Summary, "RunPodSandbox hangs") {
			t.Errorf("exit code %d, %+v", code, r)
		}
	})
}

// wantsFine checks that a canary went well, however slow this machine is.
func wantsFine(t *testing.T, r *checks.CanaryReport, code int) {
	t.Helper()
	if r.Status != checks.Healthy && r.Status != checks.Degraded || code != 0 || !r.CleanedUp {
		t.Errorf("exit code %d, %+v", code, r)
	}
}

// TestEndToEndCanaryLeft kills a kdiag whose canary is there. Then it stops the daemon while another is there: kdiag
// ends in time and names what is left. The next run removes one whose time is over, and not the first, whose is not.
func TestEndToEndCanaryLeft(t *testing.T) {
	n := startCanaryNode(t)
	killed := n.linger(t, 1, "--timeout", "10m")
	e2etest.Must(t, killed.Cmd.Process.Kill())
	killed.Wait()
	young := n.canaries(t)[0]

	frozen := n.linger(t, 2, "--timeout", "20s") // a busy machine takes ten to make a sandbox
	e2etest.Must(t, n.Pause(t.Context()))
	r, code := finish[checks.CanaryReport](t, frozen)
	e2etest.Must(t, n.Resume())
	if code != 1 || r.CleanedUp || r.Status != checks.Unhealthy || len(r.Left) != 1 {
		t.Errorf("exit code %d, %+v", code, r)
	}
	var commands []string
	for _, s := range r.NextSteps {
		commands = append(commands, s.Command)
	}
	if want := "rmp -f " + r.SandboxID; !strings.Contains(strings.Join(commands, "\n"), want) {
		t.Errorf("%q is not in %q", want, commands)
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
	r, code = n.run(t)
	wantsFine(t, r, code)
	if !slices.Contains(r.Earlier, id) || slices.Contains(r.Earlier, young.GetId()) {
		t.Errorf("removed of earlier runs: %v, want %s and not %s", r.Earlier, id, young.GetId())
	}
}
