//go:build e2e

package containerd

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
)

// capture captures dumps of a containerd.
func capture(t *testing.T, c *nodebox.Containerd, args ...string) (e2etest.Outcome, *checks.StacksReport) {
	t.Helper()
	args = append([]string{"stacks", "--capture", "--runtime-endpoint", c.Endpoint(), "-o", "json"}, args...)
	o := e2etest.Kdiag(t.Context(), t, args...)
	return o, e2etest.Decode[checks.StacksReport](t, o)
}

// holder captures dumps of a containerd in which an update of a pod's container waits for the stopped shim.
func holder(t *testing.T, n *node, sandboxID string, shim int) {
	// Two lists wait for the lock: a dump has no times in its first minutes, and one alone could be of the moment.
	ctx, cancel := context.WithCancel(t.Context())
	var lists sync.WaitGroup
	for range 2 {
		lists.Go(func() { _, _ = n.cri.ListContainers(ctx, nil) })
	}
	defer func() {
		cancel()
		lists.Wait()
	}()
	var o e2etest.Outcome
	var r *checks.StacksReport
	e2etest.Eventually(t, "the lists to wait", func() bool {
		o, r = capture(t, n.Containerd, "--shim", strconv.Itoa(shim))
		return len(r.Holders) > 0
	})
	if o.Code != 1 || r.Status != checks.Unhealthy || len(r.Holders) == 0 {
		t.Fatalf("exit code %d\n%s", o.Code, o.Stdout)
	}
	h := r.Holders[0]
	if h.Call != "UpdateContainerResources" || h.WaitsFor != "ttrpc" || h.Process == nil || h.Process.PID != shim ||
		h.Subject == nil || h.Subject.ID != sandboxID {
		t.Errorf("holder %+v, want the update that waits for shim %d", h, shim)
	}
	resume := fmt.Sprintf("kill -CONT %d", shim)
	if !slices.ContainsFunc(r.NextSteps, func(s checks.NextStep) bool { return s.Command == resume }) {
		t.Errorf("next steps %+v, want %s", r.NextSteps, resume)
	}
	if s := r.Sources[len(r.Sources)-1]; s.PID != shim || s.Problem == "" || len(s.Kernel) == 0 {
		t.Errorf("source %+v, want the kernel stacks of the stopped shim", s)
	}
}

// TestEndToEndStacks captures a dump of a containerd that is well. Those of broken ones are faults of package faults.
func TestEndToEndStacks(t *testing.T) {
	c := e2etest.StartContainerd(t, nodebox.Options{})
	e2etest.RunPods(t, c, nodebox.Pods{Count: 1, Containers: 1, State: crictl.ContainerRunning})
	o, r := capture(t, c)
	if o.Code != 0 || r.Status != checks.Healthy || len(r.Holders)+len(r.Known) > 0 {
		t.Errorf("exit code %d\n%s", o.Code, o.Stdout)
	}
	if s := r.Sources[0]; s.PID != c.PID() || s.Role != "runtime" || s.Goroutines < 20 || s.Idle < s.Goroutines/2 {
		t.Errorf("source %+v", s)
	}
	if want := fmt.Sprintf("SIGUSR1 to containerd (pid %d)", c.PID()); !strings.Contains(o.Stderr, want) {
		t.Errorf("stderr %q, want %q before it is sent", o.Stderr, want)
	}
}
