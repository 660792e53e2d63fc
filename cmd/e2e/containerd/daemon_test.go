//go:build e2e

package containerd

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
)

// TestEndToEndDaemon breaks one containerd in every way in which a daemon as a whole can be broken, and asks kdiag.
func TestEndToEndDaemon(t *testing.T) {
	c := e2etest.StartContainerd(t, nodebox.Options{Network: true, RootSize: 1 << 30})
	pods := e2etest.RunPods(t, c, nodebox.Pods{Count: 3, Containers: 2, State: crictl.ContainerRunning})
	pleg := func(args ...string) e2etest.Outcome {
		return e2etest.Kdiag(
			t.Context(), t,
			append([]string{"pleg", "-o", "json", "--runtime-endpoint", c.Endpoint()}, args...)...)
	}

	t.Run("healthy", func(t *testing.T) {
		got := pleg()
		r := got.Report(t)
		if len(r.Causes) == 0 && (r.Status != checks.Healthy || got.Code != 0) ||
			len(e2etest.Own(r)) != 0 {
			t.Errorf("status %s, causes %v, exit code %d\n%s", r.Status, e2etest.Codes(r), got.Code, got.Stdout)
		}
		if r.Runtime.Name != "containerd" || r.Relist.Containers.Running != 6 || r.Relist.Sweep.Inspected != 9 {
			t.Errorf("runtime %+v, containers %+v, sweep %+v", r.Runtime, r.Relist.Containers, r.Relist.Sweep)
		}
	})

	t.Run("frozen", func(t *testing.T) {
		e2etest.Must(t, c.Pause(t.Context()))
		defer func() { e2etest.Must(t, c.Resume()) }()
		r := pleg("--rpc-timeout", "1s").Wants(t, "RuntimeHung")
		s := r.Causes[0].Subject
		if s == nil || s.Kind != "Process" || len(s.Processes) == 0 || s.Processes[0].PID != c.PID() ||
			s.Processes[0].State != "stopped" {
			t.Errorf("subject %+v, want the stopped containerd, process %d", s, c.PID())
		}
		steps := r.Causes[0].NextSteps
		if want := fmt.Sprintf("kill -CONT %d", c.PID()); len(steps) == 0 || steps[0].Command != want {
			t.Errorf("next steps %+v, want %q first", steps, want)
		}
	})

	t.Run("refused", func(t *testing.T) {
		e2etest.Must(t, c.StopKeepSocket(t.Context()))
		r := pleg().Wants(t, "RuntimeDown")
		if r.Status != checks.Unhealthy {
			t.Errorf("status %s", r.Status)
		}
	})

	t.Run("socket missing", func(t *testing.T) {
		e2etest.Must(t, os.Remove(c.Socket()))
		pleg().Wants(t, "RuntimeDown")
	})

	t.Run("back again", func(t *testing.T) {
		e2etest.Must(t, c.Restart(t.Context()))
		if got := pleg(); got.Code != 0 && len(e2etest.Own(got.Report(t))) != 0 {
			t.Errorf("exit code %d after a restart\n%s", got.Code, got.Stdout)
		}
	})

	t.Run("status lock", func(t *testing.T) { statusLock(t, c, pods[1]) })

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

// statusLock wedges one container as a stuck update of its resources does: its shim is stopped, and the daemon waits
// for it while it holds the container's status lock. From then on every list of containers hangs.
func statusLock(t *testing.T, c *nodebox.Containerd, culprit nodebox.Pod) {
	shim, err := c.Shim(culprit.ID)
	e2etest.Must(t, err)
	release, err := c.Wedge(t.Context(), culprit.ID, culprit.Containers[0].ID)
	e2etest.Must(t, err)
	defer func() { e2etest.Must(t, release()) }()

	r := e2etest.Kdiag(t.Context(), t, "pleg", "-o", "json", "--runtime-endpoint", c.Endpoint(), "--rpc-timeout", "2s").
		Wants(t, "ShimStuck")
	i := slices.Index(e2etest.Codes(r), "ListHang")
	if i < 0 || r.Causes[i].CausedBy != "ShimStuck" {
		t.Fatalf("causes %v, want ListHang, caused by ShimStuck", e2etest.Codes(r))
	}
	s := r.Causes[i].Subject
	if s == nil || s.ID != culprit.Containers[0].ID {
		t.Fatalf("subject %+v, want container %s", s, culprit.Containers[0].ID)
	}
	if len(s.Processes) == 0 || s.Processes[0].PID != shim || s.Processes[0].State != "stopped" {
		t.Errorf("processes %+v, want the stopped shim %d", s.Processes, shim)
	}
	holder(t, c, culprit.ID, shim)
}

// TestEndToEndNotCRI asks a socket behind which something else lives.
func TestEndToEndNotCRI(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	if len(path) > 100 {
		dir, err := os.MkdirTemp("/tmp", "kdiag-")
		e2etest.Must(t, err)
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		path = filepath.Join(dir, "s")
	}
	lis, err := net.Listen("unix", path)
	e2etest.Must(t, err)
	t.Cleanup(func() { _ = lis.Close() })
	go func() {
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n400 Bad Request"))
			_ = conn.Close()
		}
	}()
	e2etest.Kdiag(t.Context(), t, "pleg", "-o", "json", "--runtime-endpoint", path).Wants(t, "RuntimeUnsupported")
}
