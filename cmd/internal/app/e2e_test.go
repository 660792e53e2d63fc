package app_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/plegbench/nodebox"
)

// startContainerd starts a private containerd that ends with the test.
func startContainerd(t *testing.T, opts nodebox.Options) *nodebox.Containerd {
	t.Helper()
	nodebox.Need(t, nodebox.Missing(false))
	c, err := nodebox.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("cleaning up: %v", err)
		}
	})
	return c
}

func runPods(t *testing.T, c *nodebox.Containerd, p nodebox.Pods) []nodebox.Pod {
	t.Helper()
	pods, err := c.RunPods(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return pods
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestEndToEndDaemon breaks one containerd in every way in which a daemon as a whole can be broken, and asks kdiag.
func TestEndToEndDaemon(t *testing.T) {
	c := startContainerd(t, nodebox.Options{Network: true})
	runPods(t, c, nodebox.Pods{Count: 3, Containers: 2, State: crictl.ContainerRunning})
	pleg := func(args ...string) outcome {
		return kdiag(t.Context(), append([]string{"pleg", "-o", "json", "--runtime-endpoint", c.Endpoint()}, args...)...)
	}

	t.Run("healthy", func(t *testing.T) {
		got := pleg()
		r := got.report(t)
		if len(r.Causes) == 0 && (r.Status != checks.Healthy || got.code != 0) || slices.ContainsFunc(codes(r), ofThisRuntime) {
			t.Errorf("status %s, causes %v, exit code %d\n%s", r.Status, codes(r), got.code, got.stdout)
		}
		if r.Runtime.Name != "containerd" || r.Relist.Containers.Running != 6 || r.Relist.Sweep.Inspected != 9 {
			t.Errorf("runtime %+v, containers %+v, sweep %+v", r.Runtime, r.Relist.Containers, r.Relist.Sweep)
		}
	})

	t.Run("frozen", func(t *testing.T) {
		must(t, c.Pause(t.Context()))
		defer func() { must(t, c.Resume()) }()
		r := pleg("--rpc-timeout", "1s").wants(t, "RuntimeHung")
		s := r.Causes[0].Subject
		if s == nil || s.Kind != "Process" || len(s.Processes) == 0 || s.Processes[0].PID != c.PID() || s.Processes[0].State != "stopped" {
			t.Errorf("subject %+v, want the stopped containerd, process %d", s, c.PID())
		}
		steps := r.Causes[0].NextSteps
		if want := fmt.Sprintf("kill -CONT %d", c.PID()); len(steps) == 0 || steps[0].Command != want {
			t.Errorf("next steps %+v, want %q first", steps, want)
		}
	})

	t.Run("frozen in the middle", func(t *testing.T) {
		done := make(chan outcome, 1)
		go func() {
			done <- kdiag(t.Context(), "relist", "-o", "json", "--runtime-endpoint", c.Endpoint(),
				"--count", "60", "--interval", "400ms", "--rpc-timeout", "1s")
		}()
		time.Sleep(time.Second) // a few samples are in; when exactly it freezes does not matter
		must(t, c.Pause(t.Context()))
		got := <-done
		must(t, c.Resume())
		if got.code != 1 || !strings.Contains(got.stdout, `"code": "RuntimeHung"`) {
			t.Errorf("exit code %d, want 1 and RuntimeHung\n%s", got.code, got.stdout)
		}
	})

	t.Run("refused", func(t *testing.T) {
		must(t, c.StopKeepSocket(t.Context()))
		r := pleg().wants(t, "RuntimeDown")
		if r.Status != checks.Unhealthy {
			t.Errorf("status %s", r.Status)
		}
	})

	t.Run("socket missing", func(t *testing.T) {
		must(t, os.Remove(c.Socket()))
		pleg().wants(t, "RuntimeDown")
	})

	t.Run("back again", func(t *testing.T) {
		must(t, c.Restart(t.Context()))
		if got := pleg(); got.code != 0 && slices.ContainsFunc(codes(got.report(t)), ofThisRuntime) {
			t.Errorf("exit code %d after a restart\n%s", got.code, got.stdout)
		}
	})
}

func TestEndToEndNoCNI(t *testing.T) {
	c := startContainerd(t, nodebox.Options{})
	kdiag(t.Context(), "pleg", "-o", "json", "--runtime-endpoint", c.Endpoint()).wants(t, "NetworkNotReady")
}

func TestEndToEndCRIDisabled(t *testing.T) {
	c := startContainerd(t, nodebox.Options{DisabledPlugins: []string{nodebox.PluginCRI}})
	kdiag(t.Context(), "pleg", "-o", "json", "--runtime-endpoint", c.Endpoint()).wants(t, "RuntimeUnsupported")
}

func TestEndToEndManyExited(t *testing.T) {
	c := startContainerd(t, nodebox.Options{Network: true})
	if _, err := c.MakeExited(t.Context(), 1000); err != nil {
		t.Fatal(err)
	}
	got := kdiag(t.Context(), "pleg", "-o", "json", "--runtime-endpoint", c.Endpoint(), "--exited-warning", "500")
	r := got.wants(t, "TooManyExited")
	if r.Status != checks.Degraded || r.Relist.Containers.Exited != 1000 || *r.Relist.ExitedBeyondNewest != 990 {
		t.Errorf("status %s, %+v, %d beyond the newest; want degraded, 1000 and 990",
			r.Status, r.Relist.Containers, *r.Relist.ExitedBeyondNewest)
	}
}

func TestEndToEndListTooLarge(t *testing.T) {
	c := startContainerd(t, nodebox.Options{Network: true})
	// A few thousand containers, most with small annotations, and enough with large ones to pass the limit.
	runPods(t, c, nodebox.Pods{Count: 20, Containers: 100, State: crictl.ContainerCreated, Prefix: "small"})
	if _, err := c.MakeLargeList(t.Context(), crictl.DefaultMessageLimit); err != nil {
		t.Fatal(err)
	}
	r := kdiag(t.Context(), "pleg", "-o", "json", "--runtime-endpoint", c.Endpoint()).wants(t, "ListTooLarge")
	if r.Status != checks.Unhealthy || r.Relist.Containers.Created < 2100 || *r.Relist.ResponseBytes <= crictl.DefaultMessageLimit {
		t.Errorf("status %s, %+v, %d bytes; want all containers seen beyond the limit",
			r.Status, r.Relist.Containers, *r.Relist.ResponseBytes)
	}
}

// TestEndToEndStatusLock wedges one container as a stuck update of its resources does: its shim is stopped, and the
// daemon waits for it while it holds the container's status lock. From then on every list of containers hangs.
func TestEndToEndStatusLock(t *testing.T) {
	c := startContainerd(t, nodebox.Options{Network: true})
	pods := runPods(t, c, nodebox.Pods{Count: 2, Containers: 1, State: crictl.ContainerRunning})
	culprit := pods[1]
	shim, err := c.Shim(culprit.ID)
	must(t, err)
	release, err := c.Wedge(t.Context(), culprit.ID, culprit.Containers[0].ID)
	must(t, err)
	t.Cleanup(func() { must(t, release()) })

	r := kdiag(t.Context(), "pleg", "-o", "json", "--runtime-endpoint", c.Endpoint(), "--rpc-timeout", "2s").wants(t, "ShimStuck")
	i := slices.Index(codes(r), "ListHang")
	if i < 0 || r.Causes[i].CausedBy != "ShimStuck" {
		t.Fatalf("causes %v, want ListHang, caused by ShimStuck", codes(r))
	}
	s := r.Causes[i].Subject
	if s == nil || s.ID != culprit.Containers[0].ID {
		t.Fatalf("subject %+v, want container %s", s, culprit.Containers[0].ID)
	}
	if len(s.Processes) == 0 || s.Processes[0].PID != shim || s.Processes[0].State != "stopped" {
		t.Errorf("processes %+v, want the stopped shim %d", s.Processes, shim)
	}
}

// TestEndToEndPermission runs kdiag as a user who may not open the socket: it could not tell, and says what to do.
func TestEndToEndPermission(t *testing.T) {
	c := startContainerd(t, nodebox.Options{Network: true})
	must(t, os.Chmod(c.Dir(), 0o755))
	must(t, os.Chmod(c.Socket(), 0o600))
	cmd := exec.CommandContext(t.Context(), buildKdiag(t), "pleg", "-o", "json", "--runtime-endpoint", c.Endpoint())
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	cmd.Dir = "/"
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, _ := cmd.Output()
	got := outcome{cmd.ProcessState.ExitCode(), string(out), stderr.String()}
	r := got.report(t)
	if !got.couldNotTell(t) || !strings.Contains(strings.Join(r.Problems, "\n"), "root") {
		t.Errorf("status %s, exit code %d, problems %q; want unknown, 2 and the advice to be root", r.Status, got.code, r.Problems)
	}
}

// TestEndToEndNotCRI asks a socket behind which something else lives.
func TestEndToEndNotCRI(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	if len(path) > 100 {
		dir, err := os.MkdirTemp("/tmp", "kdiag-")
		must(t, err)
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		path = filepath.Join(dir, "s")
	}
	lis, err := net.Listen("unix", path)
	must(t, err)
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
	kdiag(t.Context(), "pleg", "-o", "json", "--runtime-endpoint", path).wants(t, "RuntimeUnsupported")
}

// TestEndToEndNode runs the program in a whole node, as a person would there: no flags, a real unit, a frozen daemon.
func TestEndToEndNode(t *testing.T) {
	nodebox.Need(t, nodebox.Missing(true))
	cache, err := os.UserCacheDir()
	must(t, err)
	box, err := nodebox.NewBox(t.Context(), filepath.Join(cache, "kdiag", "nodebox"))
	must(t, err)
	t.Cleanup(func() {
		if err := box.Close(); err != nil {
			t.Errorf("cleaning up: %v", err)
		}
	})
	must(t, box.CopyIn(buildKdiag(t), "/usr/local/bin/kdiag"))
	// A network configuration is all that containerd asks for to call the network ready; no pod here uses it.
	conf := filepath.Join(box.Root(), "etc", "cni", "net.d", "10-none.conflist")
	must(t, os.MkdirAll(filepath.Dir(conf), 0o755))
	must(t, os.WriteFile(conf, []byte(`{"cniVersion":"0.4.0","name":"none","plugins":[{"type":"loopback"}]}`), 0o644))
	must(t, box.Boot(t.Context()))

	out, err := box.Exec(t.Context(), "kdiag", "pleg", "-o", "brief")
	if err != nil {
		t.Fatalf("on a healthy node: %v\n%s", err, out)
	}
	if _, err := box.Exec(t.Context(), "systemctl", "kill", "-s", "STOP", "containerd"); err != nil {
		t.Fatal(err)
	}
	out, err = box.Exec(t.Context(), "sh", "-c", "kdiag pleg --rpc-timeout 1s; echo exit code $?")
	must(t, err)
	for _, want := range []string{"RuntimeHung", "is stopped", "kill -CONT", "exit code 1"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is missing in:\n%s", want, out)
		}
	}
}

// buildKdiag builds the program, without the race detector, where every user may run it.
func buildKdiag(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "kdiag-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	path := filepath.Join(dir, "kdiag")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, "github.com/kdiag/kdiag/cmd/kdiag")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building kdiag: %v\n%s", err, out)
	}
	return path
}
