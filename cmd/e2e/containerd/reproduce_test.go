//go:build e2e

package containerd

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench/syncloop/reproduce"
)

// TestEndToEndReproduce plays incidents on a real containerd that runs somebody else's pod: through the proxy, which
// nobody but the syncLoop feels, and with the daemon itself frozen. One run is interrupted.
func TestEndToEndReproduce(t *testing.T) {
	c := startNode(t, nodebox.Options{})
	e2etest.RunPods(t, c.Containerd, nodebox.Pods{Count: 1, Containers: 1, State: crictl.ContainerRunning})
	pods := func() int {
		return len(c.client.ListPodSandbox(t.Context(), crictl.Filter{}, crictl.ModeUnary).Sandboxes)
	}
	wantsOnlyOthers := func(t *testing.T) {
		t.Helper()
		containers := c.client.ListContainers(t.Context(), crictl.Filter{}, crictl.ModeUnary).Containers
		if pods() != 1 || len(containers) != 1 {
			t.Errorf("%d sandboxes and %d containers are left, want one each", pods(), len(containers))
		}
		if left, err := filepath.Glob("/sys/fs/cgroup/*/kdiag-reproduce-*"); err != nil || len(left) > 0 {
			t.Errorf("cgroups are left: %v %v", left, err)
		}
	}
	t.Run("exited-flood", func(t *testing.T) {
		got := e2etest.Kdiag(t.Context(), t, "reproduce", "exited-flood", "--runtime-endpoint", c.Endpoint(), "--speed",
			"10", "--exited", "30", "-o", "json")
		r := e2etest.Decode[render.ReproductionReport](t, got)
		if got.Code != 0 || len(r.Missed) > 0 || !r.CleanedUp {
			t.Errorf("exit code %d, missed %v, cleaned up %t, stderr %s\n%+v", got.Code, r.Missed, r.CleanedUp,
				got.Stderr, r.Events)
		}
		wantsOnlyOthers(t)
	})
	t.Run("interrupted", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer cancel()
			e2etest.Eventually(t, "pods to come", func() bool { return pods() > 1 })
		}()
		got := e2etest.Kdiag(ctx, t, "reproduce", "list-hang", "--runtime-endpoint", c.Endpoint(), "-o", "json")
		if r := e2etest.Decode[render.ReproductionReport](t, got); got.Code != 2 || !r.Interrupted || !r.CleanedUp {
			t.Errorf("exit code %d, interrupted %t, cleaned up %t", got.Code, r.Interrupted, r.CleanedUp)
		}
		wantsOnlyOthers(t)
	})
	t.Run("frozen", func(t *testing.T) {
		s, _ := reproduce.Find("runtime-hung")
		s.Steps = nil // nobody could kill a container now
		r, err := reproduce.Run(t.Context(), reproduce.Config{
			Scenario: s, Endpoint: c.Endpoint(), Pods: 3, Speed: 10, Dir: "/tmp",
			Fault: func(ctx context.Context, on bool) error {
				if on {
					return c.Pause(ctx)
				}
				return c.Resume()
			},
		})
		if err != nil || len(r.Missed) > 0 || !r.CleanedUp {
			t.Fatalf("%v, report %+v", err, r)
		}
		rest := r.Events
		for _, what := range []reproduce.What{
			reproduce.Fault, reproduce.RelistStuck, reproduce.NotReady, reproduce.Lifted, reproduce.Recovered,
			reproduce.CleanedUp,
		} {
			i := slices.IndexFunc(rest, func(e reproduce.Event) bool { return e.What == what })
			if i < 0 {
				t.Fatalf("no %s in its place; these are left: %+v", what, rest)
			}
			rest = rest[i+1:]
		}
		if !strings.Contains(r.Message, "container runtime is down") {
			t.Errorf("message %q", r.Message)
		}
		wantsOnlyOthers(t)
	})
}
