//go:build e2e

package containerd

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/crictl"
)

// TestEndToEndReproduce plays incidents on a real containerd that runs a pod of others: one to its end, and one that is
// interrupted. Only the syncLoop is affected, through a proxy.
func TestEndToEndReproduce(t *testing.T) {
	n := startNode(t)
	n.RunPods(t, nodebox.Pods{Count: 1, Containers: 1, State: crictl.ContainerRunning})
	count := func() (sandboxes, containers int) {
		return len(n.client.ListPodSandbox(t.Context(), crictl.Filter{}, crictl.ModeUnary).Sandboxes),
			len(n.client.ListContainers(t.Context(), crictl.Filter{}, crictl.ModeUnary).Containers)
	}
	play := func(ctx context.Context, code int, args ...string) {
		t.Helper()
		got := e2etest.Kdiag(ctx, t, append(args, "--runtime-endpoint", n.Endpoint(), "-o", "json")...)
		r := e2etest.Decode[render.ReproductionReport](t, got)
		if got.Code != code || code == 0 && len(r.Missed) > 0 || !r.CleanedUp || r.Interrupted != (code == 2) {
			t.Errorf("%s: exit code %d, %+v, stderr %s", args, got.Code, r, got.Stderr)
		}
		if sandboxes, containers := count(); sandboxes != 1 || containers != 1 {
			t.Errorf("%d sandboxes and %d containers are left, want one each", sandboxes, containers)
		}
		if left, err := filepath.Glob("/sys/fs/cgroup/*/kdiag-reproduce-*"); err != nil || len(left) > 0 {
			t.Errorf("cgroups are left: %v %v", left, err)
		}
	}
	play(t.Context(), 0, "reproduce", "exited-flood", "--speed", "10", "--exited", "30")
	ctx, interrupt := context.WithCancel(t.Context())
	go func() {
		defer interrupt()
		e2etest.Eventually(t, "pods to come", func() bool { sandboxes, _ := count(); return sandboxes > 1 })
	}()
	play(ctx, 2, "reproduce", "list-hang")
}
