//go:build e2e

package containerd

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/plegbench"
)

// TestEndToEndMonitor looks at a private containerd in which the lock of a container's status is held and released;
// which is stopped, goes on, is killed while it is stopped, starts again, and is stopped while another runtime takes
// over its socket. Only one call hangs at a time, however often it looks.
func TestEndToEndMonitor(t *testing.T) {
	must := func(err error) {
		t.Helper()
		e2etest.Must(t, err)
	}
	ctx := t.Context()
	box := e2etest.StartContainerd(t, nodebox.Options{Debug: true})
	pods := e2etest.RunPods(t, box, nodebox.Pods{Count: 3, Containers: 1, State: crictl.ContainerRunning})
	client, err := crictl.Dial(box.Endpoint(), crictl.Options{})
	must(err)
	defer client.Close()
	lists := map[crictl.Code]int{}
	m := plegbench.NewMonitor(box.Endpoint(), client, plegbench.MonitorOptions{
		RPCTimeout: 2 * time.Second, Interval: 30 * time.Second, Sweep: 5 * time.Minute, Done: func(c crictl.Call) {
			if c.Method == "ListContainers" && (!c.OK() || c.Elapsed > 2*time.Second) {
				lists[c.Code]++
			}
		},
	})
	defer m.Close()
	dial := func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", box.DebugSocket()) }
	debug := http.Client{Transport: &http.Transport{DialContext: dial}}
	goroutines := func() []string {
		resp, err := debug.Get("http://containerd/debug/pprof/goroutine?debug=2")
		must(err)
		dump, err := io.ReadAll(resp.Body)
		must(errors.Join(err, resp.Body.Close()))
		return strings.Split(string(dump), "\n\n")
	}
	hold := func() error {
		cri, err := crictl.NewConn(box.Endpoint(), nil)
		must(err)
		t.Cleanup(func() { _ = cri.Close() })
		must(box.FreezeShim(ctx, pods[0].ID))
		update := &runtimeapi.UpdateContainerResourcesRequest{
			ContainerId: pods[0].Containers[0].ID, Linux: &runtimeapi.LinuxContainerResources{CpuShares: 100},
		}
		go func() { _, _ = runtimeapi.NewRuntimeServiceClient(cri).UpdateContainerResources(ctx, update) }()
		e2etest.Poll(t, "the update to wait for the shim", func() bool {
			return slices.ContainsFunc(goroutines(), func(g string) bool {
				return strings.Contains(g, "UpdateContainerResources") && strings.Contains(g, "ttrpc.(*Client).Call")
			})
		})
		return nil
	}
	release := func() error {
		listing := func(g string) bool { return strings.Contains(g, "_ListContainers_Handler(") }
		if n := len(slices.DeleteFunc(goroutines(), func(g string) bool { return !listing(g) })); n != 1 {
			t.Errorf("containerd serves %d ListContainers", n)
		}
		return box.ThawShim(pods[0].ID)
	}
	pause := func() error { return box.Pause(ctx) }
	kill := func() error { // Version hangs until it fails, and while it does a look may list once more
		must(box.Kill(ctx))
		e2etest.Poll(t, "the socket to refuse", func() bool {
			return m.Poll(ctx, true).Connect.State == crictl.ConnectRefused
		})
		if lists[crictl.Unavailable] == 0 {
			t.Errorf("the list that hung did not fail: %v", lists)
		}
		return nil
	}
	another := func() error {
		must(os.Remove(box.Socket()))
		healthy, _ := fake.Builtin("healthy")
		srv, err := fake.New(healthy)
		must(err)
		stop, err := fake.Listen(context.WithoutCancel(ctx), srv, box.Socket())
		t.Cleanup(func() {
			stop()
			must(box.Resume())
		})
		return err
	}
	for _, step := range []struct {
		name  string
		do    func() error
		state crictl.ConnectState // to be found in the end
		want  map[crictl.Code]int // ListContainers that hung, failed or came late
	}{
		{"healthy", func() error { return nil }, crictl.ConnectOK, map[crictl.Code]int{}},
		{"its lock is held", hold, crictl.ConnectOK, map[crictl.Code]int{crictl.DeadlineExceeded: 1}},
		{"its lock is released", release, crictl.ConnectOK, map[crictl.Code]int{crictl.OK: 1}},
		{"stopped", pause, crictl.ConnectSilent, map[crictl.Code]int{crictl.DeadlineExceeded: 1}},
		{"goes on", box.Resume, crictl.ConnectOK, map[crictl.Code]int{crictl.OK: 1}},
		{"stopped again", pause, crictl.ConnectSilent, map[crictl.Code]int{crictl.DeadlineExceeded: 1}},
		{"killed", kill, crictl.ConnectRefused, map[crictl.Code]int{}},
		{"starts again", func() error { return box.Restart(ctx) }, crictl.ConnectOK, map[crictl.Code]int{}},
		{"stopped at last", pause, crictl.ConnectSilent, map[crictl.Code]int{crictl.DeadlineExceeded: 1}},
		{"another's socket", another, crictl.ConnectOK, map[crictl.Code]int{crictl.Unavailable: 1}},
	} {
		must(step.do())
		clear(lists)
		var now *plegbench.Measurement
		e2etest.Poll(t, step.name, func() bool { // what ends a call may come after the next look began
			now = m.Poll(ctx, true)
			return now.Connect.State == step.state && maps.Equal(step.want, lists)
		})
		for range 3 { // nothing more comes
			now = m.Poll(ctx, true)
		}
		if diff := cmp.Diff(step.want, lists); diff != "" || now.Connect.State != step.state {
			t.Errorf("%s: %s; calls: %s", step.name, now.Connect.State, diff)
		}
	}
}
