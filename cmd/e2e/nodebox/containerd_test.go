//go:build e2e

package nodebox

import (
	"errors"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/crictl"
)

// start starts a runtime whose leftovers are looked for at the end.
func start(t *testing.T, opts Options) *Containerd {
	t.Helper()
	c, err := Start(t.Context(), opts)
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of containerd ends with:\n%s", tail(c.Log()))
		}
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		checkNothingLeft(t, c.Dir())
	})
	return c
}

// checkNothingLeft looks for what a box may leave.
func checkNothingLeft(t *testing.T, dir string) {
	t.Helper()
	if pids := processesOf(dir); len(pids) > 0 {
		t.Errorf("processes are left: %v", pids)
	}
	if points, err := mountsBelow(dir); len(points) > 0 || err != nil {
		t.Errorf("mounts are left: %v, %v", points, err)
	}
	if dirs := cgroupDirs(map[string]bool{filepath.Base(dir): true}); len(dirs) > 0 {
		t.Errorf("cgroups are left: %v", dirs)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is left: %v", err)
	}
}

// processesOf returns the processes with this text in their arguments.
func processesOf(text string) map[int][]string {
	found := processes()
	maps.DeleteFunc(found, func(_ int, args []string) bool { return !strings.Contains(strings.Join(args, " "), text) })
	return found
}

func dial(t *testing.T, c *Containerd, timeout time.Duration) *crictl.Client {
	t.Helper()
	client, err := crictl.Dial(c.Endpoint(), crictl.Options{RPCTimeout: timeout})
	must(t, err)
	t.Cleanup(func() { client.Close() })
	return client
}

func mustRun(t *testing.T, c *Containerd, p Pods) []Pod {
	t.Helper()
	pods, err := c.RunPods(t.Context(), p)
	must(t, err)
	return pods
}

// answered checks the code of calls.
func answered(t *testing.T, want crictl.Code, calls ...crictl.Call) {
	t.Helper()
	for _, c := range calls {
		if c.Code != want {
			t.Errorf("%s: %s %s, want %s", c.Method, c.Code, c.Err, want)
		}
	}
}

// refuses checks how connecting to the daemon's socket fails.
func refuses(t *testing.T, c *Containerd, want error) {
	t.Helper()
	if _, err := net.Dial("unix", c.Socket()); !errors.Is(err, want) || c.Running() {
		t.Errorf("connecting: %v, want %v; running %v", err, want, c.Running())
	}
}

// states counts the listed containers by state.
func states(t *testing.T, client *crictl.Client) map[crictl.ContainerState]int {
	t.Helper()
	list := client.ListContainers(t.Context(), crictl.Filter{}, crictl.ModeUnary)
	if !list.Complete {
		t.Fatalf("ListContainers: %+v", list.Calls)
	}
	n := map[crictl.ContainerState]int{}
	for _, c := range list.Containers {
		n[c.State]++
	}
	return n
}

func TestEndToEndNodeRunsPods(t *testing.T) {
	c := start(t, Options{Network: true, RootSize: 1 << 30})
	client := dial(t, c, time.Minute)
	status, call := client.Status(t.Context())
	answered(t, crictl.OK, call)
	for _, typ := range []string{"RuntimeReady", "NetworkReady"} {
		if cond, ok := status.Condition(typ); !ok || !cond.Status {
			t.Errorf("%s = %+v", typ, cond)
		}
	}
	mustRun(t, c, Pods{Count: 2, Containers: 2, State: crictl.ContainerRunning, Padding: 1000})
	mustRun(t, c, Pods{Count: 1, Containers: 1, State: crictl.ContainerCreated, Prefix: "new"})
	net := mustRun(t, c, Pods{Count: 1, Containers: 1, State: crictl.ContainerRunning, Prefix: "net", PodNetwork: true})
	ran := mustRun(t, c, Pods{Count: 1, Containers: 1, Attempts: 2, State: crictl.ContainerExited, Prefix: "ran"})
	_, err := c.MakeExited(t.Context(), 103)
	must(t, err)
	if st, call := client.ContainerStatus(t.Context(), ran[0].Containers[1].ID); !call.OK() || st.ExitCode != 0 ||
		st.StartedAt.IsZero() {
		t.Errorf("status of a container that ran: %+v, %+v", st, call)
	}
	want := map[crictl.ContainerState]int{
		crictl.ContainerRunning: 5, crictl.ContainerCreated: 1, crictl.ContainerExited: 105,
	}
	if diff := cmp.Diff(want, states(t, client)); diff != "" {
		t.Errorf("states of containers: %s", diff)
	}
	list := client.ListContainers(t.Context(), crictl.Filter{SandboxID: net[0].ID}, crictl.ModeUnary)
	if len(list.Containers) != 1 || list.Containers[0].Pod.Name != "net-0" ||
		list.Containers[0].ID != net[0].Containers[0].ID {
		t.Errorf("containers of the pod with a network: %+v", list.Containers)
	}

	answered(t, crictl.OK,
		client.StopPodSandbox(t.Context(), net[0].ID), client.RemovePodSandbox(t.Context(), net[0].ID))
}

func TestEndToEndNodeStoppedAndRestarted(t *testing.T) {
	c := start(t, Options{RootSize: 256 << 20})
	mustRun(t, c, Pods{Count: 1, Containers: 1, State: crictl.ContainerRunning})
	first := c.PID()

	must(t, c.StopKeepSocket(t.Context()))
	refuses(t, c, syscall.ECONNREFUSED) // the socket that was left
	must(t, c.Restart(t.Context()))
	if got := states(t, dial(t, c, time.Minute)); got[crictl.ContainerRunning] != 1 {
		t.Errorf("states after a restart: %v, want 1 running", got)
	}
	if c.PID() == first {
		t.Error("the restarted daemon has the process id of the first")
	}

	must(t, c.Stop(t.Context()))
	refuses(t, c, syscall.ENOENT)
	must(t, c.Restart(t.Context()))

	must(t, c.Kill(t.Context()))
	refuses(t, c, syscall.ECONNREFUSED)
	// Cleaned up dead, with the container still running.
}

// TestEndToEndNodeFrozen closes a runtime that is frozen, with a frozen shim and a dead one.
func TestEndToEndNodeFrozen(t *testing.T) {
	c := start(t, Options{})
	pods := mustRun(t, c, Pods{Count: 2, Containers: 1, State: crictl.ContainerRunning})
	must(t, c.FreezeShim(t.Context(), pods[0].ID))
	shim, err := c.Shim(pods[1].ID)
	must(t, err)
	must(t, syscall.Kill(shim, syscall.SIGKILL))
	for _, pod := range pods {
		if _, err := os.Stat(c.shimSocket(pod.ID)); err != nil {
			t.Errorf("the socket of a shim: %v", err)
		}
	}
	must(t, c.Pause(t.Context()))
	_, call := dial(t, c, 300*time.Millisecond).Version(t.Context())
	answered(t, crictl.DeadlineExceeded, call)
}

func TestEndToEndNodeSweepsAfterADeadOwner(t *testing.T) {
	parent, err := os.MkdirTemp("", "kdiag-sweep-")
	must(t, err)
	defer os.Remove(parent)
	c, err := Start(t.Context(), Options{Parent: parent})
	must(t, err)
	defer c.Close()
	mustRun(t, c, Pods{Count: 1, Containers: 1, State: crictl.ContainerRunning})

	sweepNow := func() { sweep(parent, folderPrefix, func(dir string) error { return clean(t.Context(), dir) }) }
	sweepNow()
	if !c.Running() {
		t.Fatal("a box was swept away while its owner lived")
	}
	c.lock.Close() // what the kernel does when the owner dies
	sweepNow()
	<-c.done
	checkNothingLeft(t, c.Dir())
}

// TestEndToEndStartFails checks that the error has the reason.
func TestEndToEndStartFails(t *testing.T) {
	for want, opts := range map[string]Options{
		"its CRI plugin did not load":     {RootSize: 4 << 10},
		"containerd ended: exit status 1": {DisabledPlugins: []string{"\a"}},
	} {
		if _, err := Start(t.Context(), opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
}
