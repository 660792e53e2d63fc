//go:build e2e

package monitor

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/plegbench"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestEndToEndMonitor looks at a private containerd in which the lock of a container's status is held and released;
// which is stopped, goes on, is killed while it is stopped, starts again, and is stopped while another runtime takes
// over its socket. Only one call hangs at a time, however often it looks.
func TestEndToEndMonitor(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	box, err := nodebox.Start(ctx, nodebox.Options{Debug: true})
	must(err)
	t.Cleanup(func() { must(box.Close()) })
	pods, err := box.RunPods(ctx, nodebox.Pods{Count: 3, Containers: 1, State: crictl.ContainerRunning})
	must(err)
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
	hold := func() error {
		cri, err := crictl.NewConn(box.Endpoint(), nil)
		must(err)
		t.Cleanup(func() { _ = cri.Close() })
		must(box.FreezeShim(ctx, pods[0].ID))
		update := &runtimeapi.UpdateContainerResourcesRequest{
			ContainerId: pods[0].Containers[0].ID, Linux: &runtimeapi.LinuxContainerResources{CpuShares: 100},
		}
		go func() { _, _ = runtimeapi.NewRuntimeServiceClient(cri).UpdateContainerResources(ctx, update) }()
		time.Sleep(time.Second) // until it waits for the shim
		return nil
	}
	release := func() error {
		dial := func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", box.DebugSocket()) }
		debug := http.Client{Transport: &http.Transport{DialContext: dial}}
		resp, err := debug.Get("http://containerd/debug/pprof/goroutine?debug=2")
		must(err)
		dump, err := io.ReadAll(resp.Body)
		if n := bytes.Count(dump, []byte("_ListContainers_Handler(")); n != 1 {
			t.Errorf("containerd serves %d ListContainers", n)
		}
		return errors.Join(err, resp.Body.Close(), box.ThawShim(pods[0].ID))
	}
	pause := func() error { return box.Pause(ctx) }
	kill := func() error {
		defer time.Sleep(time.Second) // until Version has failed too: while it hangs, a look lists once more
		return box.Kill(ctx)
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
		{"killed", kill, crictl.ConnectRefused, map[crictl.Code]int{crictl.Unavailable: 1}},
		{"starts again", func() error { return box.Restart(ctx) }, crictl.ConnectOK, map[crictl.Code]int{}},
		{"stopped at last", pause, crictl.ConnectSilent, map[crictl.Code]int{crictl.DeadlineExceeded: 1}},
		{"another's socket", another, crictl.ConnectOK, map[crictl.Code]int{crictl.Unavailable: 1}},
	} {
		must(step.do())
		clear(lists)
		var now *plegbench.Measurement
		for range 5 { // what ends a call may come after the next look began
			now = m.Look(ctx, true)
			time.Sleep(200 * time.Millisecond)
		}
		if diff := cmp.Diff(step.want, lists); diff != "" || now.Connect.State != step.state {
			t.Errorf("%s: %s; calls: %s", step.name, now.Connect.State, diff)
		}
	}
}
