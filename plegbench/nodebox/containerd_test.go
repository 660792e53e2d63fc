package nodebox

import (
	"context"
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

	"github.com/kdiag/kdiag/crictl"
)

// start starts a runtime whose leftovers are looked for at the end.
func start(t *testing.T, opts Options) *Containerd {
	t.Helper()
	Need(t, Missing(false))
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

func TestNodeRunsPods(t *testing.T) {
	c := start(t, Options{Network: true, RootSize: 1 << 30})
	client := dial(t, c, time.Minute)
	status, call := client.Status(t.Context())
	if !call.OK() {
		t.Fatalf("Status: %+v", call)
	}
	for _, typ := range []string{"RuntimeReady", "NetworkReady"} {
		if cond, ok := status.Condition(typ); !ok || !cond.Status {
			t.Errorf("%s = %+v", typ, cond)
		}
	}
	mustRun(t, c, Pods{Count: 2, Containers: 2, State: crictl.ContainerRunning, Padding: 1000})
	mustRun(t, c, Pods{Count: 1, Containers: 1, State: crictl.ContainerCreated, Prefix: "new"})
	networked := mustRun(t, c, Pods{
		Count: 1, Containers: 1, State: crictl.ContainerRunning, Prefix: "net",
		PodNetwork: true,
	})
	ran := mustRun(t, c, Pods{Count: 1, Containers: 1, Attempts: 2, State: crictl.ContainerExited, Prefix: "ran"})
	if _, err := c.MakeExited(t.Context(), 103); err != nil {
		t.Fatal(err)
	}
	if st, call := client.ContainerStatus(t.Context(), ran[0].Containers[1].ID); !call.OK() || st.ExitCode != 0 ||
		st.StartedAt.IsZero() {
		t.Errorf("status of a container that ran: %+v, %+v", st, call)
	}
	got := states(t, client)
	if got[crictl.ContainerRunning] != 5 || got[crictl.ContainerCreated] != 1 || got[crictl.ContainerExited] != 105 {
		t.Errorf("states of containers: %v, want 5 running, 1 created, 105 exited", got)
	}
	list := client.ListContainers(t.Context(), crictl.Filter{SandboxID: networked[0].ID}, crictl.ModeUnary)
	if len(list.Containers) != 1 || list.Containers[0].Pod.Name != "net-0" ||
		list.Containers[0].ID != networked[0].Containers[0].ID {
		t.Errorf("containers of the pod with a network: %+v", list.Containers)
	}

	before := time.Now()
	if call := client.StopPodSandbox(t.Context(), networked[0].ID); !call.OK() {
		t.Errorf("StopPodSandbox: %+v", call)
	}
	if call := client.RemovePodSandbox(t.Context(), networked[0].ID); !call.OK() {
		t.Errorf("RemovePodSandbox: %+v", call)
	}
	t.Logf("stopping and removing a sandbox took %v", time.Since(before))
}

func TestNodeFrozen(t *testing.T) {
	c := start(t, Options{})
	mustRun(t, c, Pods{Count: 1, Containers: 1, State: crictl.ContainerRunning})
	must(t, c.Pause(t.Context()))
	frozen := dial(t, c, 300*time.Millisecond)
	if _, call := frozen.Version(t.Context()); !call.Hung() {
		t.Errorf("Version of a frozen containerd: %+v, want it to hang", call)
	}
	must(t, c.Resume())
	if _, call := dial(t, c, time.Minute).Version(t.Context()); !call.OK() {
		t.Errorf("Version after it was resumed: %+v", call)
	}
	// Cleaned up frozen.
	must(t, c.Pause(t.Context()))
}

func TestNodeStoppedAndRestarted(t *testing.T) {
	c := start(t, Options{RootSize: 256 << 20})
	mustRun(t, c, Pods{Count: 1, Containers: 1, State: crictl.ContainerRunning})
	first := c.PID()

	must(t, c.StopKeepSocket(t.Context()))
	if _, err := net.Dial("unix", c.Socket()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connecting to the socket that was left: %v, want connection refused", err)
	}
	if c.Running() {
		t.Error("a stopped containerd says it runs")
	}
	must(t, c.Restart(t.Context()))
	if got := states(t, dial(t, c, time.Minute)); got[crictl.ContainerRunning] != 1 {
		t.Errorf("states after a restart: %v, want 1 running", got)
	}
	if c.PID() == first {
		t.Error("the restarted daemon has the process id of the first")
	}

	must(t, c.Stop(t.Context()))
	if _, err := net.Dial("unix", c.Socket()); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("connecting after Stop: %v, want no such file", err)
	}
	must(t, c.Restart(t.Context()))

	must(t, c.Kill(t.Context()))
	if _, err := net.Dial("unix", c.Socket()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connecting after Kill: %v, want connection refused", err)
	}
	// Cleaned up dead, with the container still running.
}

func TestNodeWithoutCRI(t *testing.T) {
	c := start(t, Options{DisabledPlugins: []string{PluginCRI}})
	if _, call := dial(t, c, time.Minute).Version(t.Context()); call.Code != crictl.Unimplemented {
		t.Errorf("Version without the CRI plugin: %+v, want Unimplemented", call)
	}
}

func TestNodeLargeList(t *testing.T) {
	c := start(t, Options{RootSize: 1 << 30})
	if _, err := c.MakeLargeList(t.Context(), 17<<20); err != nil {
		t.Fatal(err)
	}
	list := dial(t, c, time.Minute).ListContainers(t.Context(), crictl.Filter{}, crictl.ModeUnary)
	if call := list.Calls[0]; call.Code != crictl.ResourceExhausted || !strings.Contains(call.Err, "larger than max") {
		t.Errorf("ListContainers: %+v, want ResourceExhausted", call)
	}
}

func TestNodeWedged(t *testing.T) {
	c := start(t, Options{})
	pods := mustRun(t, c, Pods{Count: 2, Containers: 1, State: crictl.ContainerRunning})
	victim, other := pods[0].Containers[0].ID, pods[1].Containers[0].ID
	release, err := c.Wedge(t.Context(), pods[0].ID, victim)
	must(t, err)
	quick, patient := dial(t, c, 300*time.Millisecond), dial(t, c, time.Minute)
	if call := quick.ListContainers(t.Context(), crictl.Filter{}, crictl.ModeUnary).Calls[0]; !call.Hung() {
		t.Errorf("ListContainers: %+v, want it to hang", call)
	}
	if _, call := quick.ContainerStatus(t.Context(), victim); !call.Hung() {
		t.Errorf("ContainerStatus of the wedged container: %+v, want it to hang", call)
	}
	if _, call := patient.ContainerStatus(t.Context(), other); !call.OK() {
		t.Errorf("ContainerStatus of another container: %+v", call)
	}
	if call := patient.ListPodSandbox(t.Context(), crictl.Filter{}, crictl.ModeUnary).Calls[0]; !call.OK() {
		t.Errorf("ListPodSandbox: %+v", call)
	}
	must(t, release())
	if got := states(t, patient); got[crictl.ContainerRunning] != 2 {
		t.Errorf("states after the release: %v, want 2 running", got)
	}
	// Cleaned up with a frozen shim and a dead one.
	must(t, c.FreezeShim(t.Context(), pods[0].ID))
	shim, err := c.Shim(pods[1].ID)
	must(t, err)
	must(t, syscall.Kill(shim, syscall.SIGKILL))
	for _, pod := range pods {
		if _, err := os.Stat(c.shimSocket(pod.ID)); err != nil {
			t.Errorf("the socket of a shim: %v", err)
		}
	}
}

func TestNodeHungCNI(t *testing.T) {
	c := start(t, Options{Network: true})
	must(t, c.HangCNI())
	ctx, cancel := context.WithCancel(t.Context())
	hung := make(chan error, 1)
	go func() {
		_, err := c.RunPods(ctx, Pods{Count: 1, PodNetwork: true})
		hung <- err
	}()
	plugin := func() (bool, error) {
		return len(processesOf(c.path("cni/bin/bridge"))) > 0, errors.New("there is none")
	}
	must(t, poll(t.Context(), time.Minute, "a CNI plugin to run", plugin))
	must(t, c.ReleaseCNI())
	if err := <-hung; err != nil {
		t.Errorf("the sandbox whose plugin was let go: %v", err)
	}
	cancel()
}

func TestNodeSweepsAfterADeadOwner(t *testing.T) {
	Need(t, Missing(false))
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

// TestStartFails wants the reason in the error.
func TestStartFails(t *testing.T) {
	Need(t, Missing(false))
	for want, opts := range map[string]Options{
		"its CRI plugin did not load":     {RootSize: 4 << 10},
		"containerd ended: exit status 1": {DisabledPlugins: []string{"\a"}},
	} {
		if _, err := Start(t.Context(), opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
}
