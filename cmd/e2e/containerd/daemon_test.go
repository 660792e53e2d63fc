//go:build e2e

package containerd

import (
	"testing"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
)

// TestEndToEndDaemon has what the faults of package faults do not have: a socket that nobody serves, the dumps that
// kdiag stacks captures while a lock is held, and lists that are long or large.
func TestEndToEndDaemon(t *testing.T) {
	c := startNode(t, nodebox.Options{Network: true, RootSize: 1 << 30})
	pods := e2etest.RunPods(t, c.Containerd, nodebox.Pods{Count: 3, Containers: 2, State: crictl.ContainerRunning})
	pleg := func(args ...string) e2etest.Outcome {
		return e2etest.Kdiag(
			t.Context(), t,
			append([]string{"pleg", "-o", "json", "--runtime-endpoint", c.Endpoint()}, args...)...)
	}

	t.Run("refused", func(t *testing.T) {
		e2etest.Must(t, c.StopKeepSocket(t.Context()))
		r := pleg().Wants(t, "RuntimeDown")
		if r.Status != checks.Unhealthy {
			t.Errorf("status %s", r.Status)
		}
	})

	e2etest.Must(t, c.Restart(t.Context()))

	t.Run("status lock", func(t *testing.T) { // from now on every list of containers hangs
		shim, err := c.Shim(pods[1].ID)
		e2etest.Must(t, err)
		release, err := c.Wedge(t.Context(), pods[1].ID, pods[1].Containers[0].ID)
		e2etest.Must(t, err)
		defer func() { e2etest.Must(t, release()) }()
		holder(t, c, pods[1].ID, shim)
	})

	t.Run("many exited", func(t *testing.T) {
		_, err := c.MakeExited(t.Context(), 1000)
		e2etest.Must(t, err)
		r := pleg("--exited-warning", "500").Wants(t, "TooManyExited")
		if r.Status != checks.Degraded || r.Relist.Containers.Exited != 1000 || *r.Relist.ExitedBeyondNewest != 990 {
			t.Errorf("status %s, %+v, %d beyond the newest; want degraded, 1000 and 990",
				r.Status, r.Relist.Containers, *r.Relist.ExitedBeyondNewest)
		}
	})

	t.Run("list too large", func(t *testing.T) {
		_, err := c.MakeLargeList(t.Context(), crictl.DefaultMessageLimit)
		e2etest.Must(t, err)
		r := pleg().Wants(t, "ListTooLarge")
		if r.Status != checks.Unhealthy || r.Relist.Containers.Exited != 1000 || r.Relist.Containers.Running != 6 ||
			*r.Relist.ResponseBytes <= crictl.DefaultMessageLimit {
			t.Errorf("status %s, %+v, %d bytes; want all containers seen beyond the limit",
				r.Status, r.Relist.Containers, *r.Relist.ResponseBytes)
		}
	})
}

func TestEndToEndCRIDisabled(t *testing.T) {
	c := e2etest.StartContainerd(t, nodebox.Options{DisabledPlugins: []string{nodebox.PluginCRI}})
	e2etest.Kdiag(t.Context(), t, "pleg", "-o", "json", "--runtime-endpoint", c.Endpoint()).Wants(t, "RuntimeUnsupported")
}
