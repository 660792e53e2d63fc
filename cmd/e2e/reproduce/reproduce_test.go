//go:build e2e

package reproduce

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench/syncloop/reproduce"
)

// wantsOnly checks that a runtime has no other sandbox than those that were there before.
func wantsOnly(t *testing.T, c *nodebox.Containerd, pods int) {
	t.Helper()
	client, err := crictl.Dial(c.Endpoint(), crictl.Options{})
	e2etest.Must(t, err)
	defer client.Close()
	sandboxes := client.ListPodSandbox(t.Context(), crictl.Filter{}, crictl.ModeUnary)
	containers := client.ListContainers(t.Context(), crictl.Filter{}, crictl.ModeUnary)
	if len(sandboxes.Sandboxes) != pods || len(containers.Containers) != pods {
		t.Errorf("%d sandboxes and %d containers are left, want %d each", len(sandboxes.Sandboxes),
			len(containers.Containers), pods)
	}
	if left, err := filepath.Glob("/sys/fs/cgroup/*/kdiag-reproduce-*"); err != nil || len(left) > 0 {
		t.Errorf("cgroups are left: %v %v", left, err)
	}
}

// TestEndToEndReproduce plays incidents on a real containerd that runs somebody else's pod: through the proxy, which
// nobody but the syncLoop feels, and with the daemon itself frozen.
func TestEndToEndReproduce(t *testing.T) {
	c := e2etest.StartContainerd(t, nodebox.Options{})
	e2etest.RunPods(t, c, nodebox.Pods{Count: 1, Containers: 1, State: crictl.ContainerRunning})
	for _, name := range []string{"runtime-hung", "inspect-hang", "exited-flood"} {
		t.Run(name, func(t *testing.T) {
			got := e2etest.Kdiag(t.Context(), t, "reproduce", name, "--runtime-endpoint", c.Endpoint(), "--speed", "10",
				"--exited", "30", "-o", "json")
			r := e2etest.Decode[render.ReproductionReport](t, got)
			if got.Code != 0 || len(r.Missed) > 0 || !r.CleanedUp {
				t.Errorf("exit code %d, missed %v, cleaned up %t, stderr %s\n%+v", got.Code, r.Missed, r.CleanedUp,
					got.Stderr, r.Events)
			}
			wantsOnly(t, c, 1)
		})
	}
	t.Run("image that ends by itself", func(t *testing.T) {
		got := e2etest.Kdiag(t.Context(), t, "reproduce", "healthy", "--runtime-endpoint", c.Endpoint(), "--speed",
			"60", "--image", nodebox.ImageBusybox, "--pods", "2", "-o", "json")
		r := e2etest.Decode[render.ReproductionReport](t, got)
		text := strings.Join(append(r.Missed, r.Problems...), " ")
		if got.Code == 0 || !r.CleanedUp || !strings.Contains(text, "ended with exit code 0") {
			t.Errorf("exit code %d, cleaned up %t: %s", got.Code, r.CleanedUp, text)
		}
	})
	t.Run("frozen", func(t *testing.T) {
		s, _ := reproduce.Find("runtime-hung")
		s.Steps = nil // nobody could kill a container now
		r, err := reproduce.Run(t.Context(), reproduce.Config{
			Scenario: s, Endpoint: c.Endpoint(), Pods: 6, Speed: 10, Dir: "/tmp",
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
		wantsOrder(t, r.Events, reproduce.Fault, reproduce.RelistStuck, reproduce.NotReady, reproduce.Lifted,
			reproduce.Recovered, reproduce.CleanedUp)
		if !strings.Contains(r.Message, "container runtime is down") {
			t.Errorf("message %q", r.Message)
		}
		wantsOnly(t, c, 1)
	})
}

// TestEndToEndReproduceCut ends a run in the middle, by an interrupt and by a kill.
func TestEndToEndReproduceCut(t *testing.T) {
	c := e2etest.StartContainerd(t, nodebox.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(8*time.Second, cancel)
	got := e2etest.Kdiag(ctx, t, "reproduce", "list-hang", "--runtime-endpoint", c.Endpoint(), "--speed", "5",
		"-o", "json")
	if r := e2etest.Decode[render.ReproductionReport](t, got); got.Code != 2 || !r.Interrupted || !r.CleanedUp {
		t.Errorf("exit code %d, interrupted %t, cleaned up %t", got.Code, r.Interrupted, r.CleanedUp)
	}
	wantsOnly(t, c, 0)
}

// wantsOrder checks that these events are in the report, in this order, with others between them.
func wantsOrder(t *testing.T, events []reproduce.Event, want ...reproduce.What) {
	t.Helper()
	for _, what := range want {
		i := slices.IndexFunc(events, func(e reproduce.Event) bool { return e.What == what })
		if i < 0 {
			t.Errorf("no %s in its place; of %v, these are left: %+v", what, want, events)
			return
		}
		events = events[i+1:]
	}
}
