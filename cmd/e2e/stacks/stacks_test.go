//go:build e2e

package stacks

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
)

// TestEndToEndCapture captures dumps of one containerd: well, waiting for a stopped shim, and stopped.
func TestEndToEndCapture(t *testing.T) {
	c := e2etest.StartContainerd(t, nodebox.Options{})
	pod := e2etest.RunPods(t, c, nodebox.Pods{Count: 1, Containers: 1, State: crictl.ContainerRunning})[0]
	capture := func(t *testing.T, args ...string) (e2etest.Outcome, *checks.StacksReport) {
		t.Helper()
		args = append([]string{"stacks", "--capture", "--runtime-endpoint", c.Endpoint()}, args...)
		o := e2etest.Kdiag(t.Context(), t, append(args, "-o", "json")...)
		return o, e2etest.Decode[checks.StacksReport](t, o)
	}

	t.Run("well", func(t *testing.T) {
		o, r := capture(t)
		if o.Code != 0 || r.Status != checks.Healthy || len(r.Holders)+len(r.Known) > 0 {
			t.Errorf("exit code %d\n%s", o.Code, o.Stdout)
		}
		if s := r.Sources[0]; s.PID != c.PID() || s.Role != "runtime" || s.Goroutines < 20 || s.Idle < s.Goroutines/2 {
			t.Errorf("source %+v", s)
		}
		if want := fmt.Sprintf("SIGUSR1 to containerd (pid %d)", c.PID()); !strings.Contains(o.Stderr, want) {
			t.Errorf("stderr %q, want %q before it is sent", o.Stderr, want)
		}
	})

	t.Run("an update waits for a stopped shim", func(t *testing.T) {
		shim, err := c.Shim(pod.ID)
		e2etest.Must(t, err)
		release, err := c.Wedge(t.Context(), pod.ID, pod.Containers[0].ID)
		e2etest.Must(t, err)
		defer func() { e2etest.Must(t, release()) }()
		// Two lists wait for the lock: a dump has no times in its first minutes, and one alone could be of the moment.
		lists := make(chan e2etest.Outcome, 1)
		go func() {
			lists <- e2etest.Kdiag(t.Context(), t, "runtime", "-r", c.Endpoint(), "--rpc-timeout", "8s", "-o", "json")
		}()
		var o e2etest.Outcome
		var r *checks.StacksReport
		for range 20 { // until they have begun to wait
			if o, r = capture(t, "--shim", strconv.Itoa(shim)); len(r.Holders) > 0 {
				break
			}
		}
		if o.Code != 1 || r.Status != checks.Unhealthy || len(r.Holders) == 0 {
			t.Fatalf("exit code %d\n%s", o.Code, o.Stdout)
		}
		h := r.Holders[0]
		if h.Call != "UpdateContainerResources" || h.WaitsFor != "ttrpc" || h.Process == nil || h.Process.PID != shim ||
			h.Subject == nil || h.Subject.ID != pod.ID {
			t.Errorf("holder %+v, want the update that waits for shim %d", h, shim)
		}
		resume := fmt.Sprintf("kill -CONT %d", shim)
		if !slices.ContainsFunc(r.NextSteps, func(s checks.NextStep) bool { return s.Command == resume }) {
			t.Errorf("next steps %+v, want %s", r.NextSteps, resume)
		}
		if s := r.Sources[len(r.Sources)-1]; s.PID != shim || s.Problem == "" || len(s.Kernel) == 0 {
			t.Errorf("source %+v, want the kernel stacks of the stopped shim", s)
		}
		<-lists
	})

	t.Run("stopped", func(t *testing.T) {
		e2etest.Must(t, c.Pause(t.Context()))
		defer func() { e2etest.Must(t, c.Resume()) }()
		o, r := capture(t)
		if s := r.Sources[0]; o.Code != 1 || r.Status != checks.Unhealthy || s.Goroutines != 0 || len(s.Kernel) == 0 ||
			s.Kernel[0].State != "T" {
			t.Errorf("exit code %d, source %+v", o.Code, s)
		}
	})
}
