//go:build e2e

package fault_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/fake"
)

// TestEndToEnd takes pods through their whole life on a real containerd behind the proxy, and injects each fault.
func TestEndToEnd(t *testing.T) {
	box, err := nodebox.Start(t.Context(), nodebox.Options{})
	must(t, err)
	t.Cleanup(func() {
		if err := box.Close(); err != nil {
			t.Error(err)
		}
	})
	f := start(t, box.Endpoint())
	pods, err := nodebox.RunPods(t.Context(), f.path, nodebox.Pods{
		Count: 2, Containers: 1, State: crictl.ContainerRunning,
	})
	must(t, err)
	a, b := pods[0].Containers[0].ID, pods[1].Containers[0].ID
	exec, err := f.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{
		ContainerId: a, Cmd: []string{"/bin/echo", "through"}, Timeout: 30,
	})
	if err != nil || string(exec.GetStdout()) != "through\n" {
		t.Errorf("exec: %q, %v", exec.GetStdout(), err)
	}
	set := func(faults ...fake.Fault) {
		t.Helper()
		must(t, f.SetFaults(faults, nil))
	}
	t.Run("hang of one container", func(t *testing.T) {
		// This proxy has not seen the pods.
		f := start(t, box.Endpoint(), fake.Fault{RPC: "ContainerStatus", Hang: true, Object: fake.Object{Pod: "pod-0"}})
		got := []codes.Code{f.status(t, a, time.Second), f.status(t, b, time.Minute), f.status(t, b[:10], time.Minute)}
		if diff := cmp.Diff([]codes.Code{codes.DeadlineExceeded, codes.OK, codes.OK}, got); diff != "" {
			t.Errorf("statuses (-want +got):\n%s", diff)
		}
	})
	t.Run("oversize", func(t *testing.T) {
		set(fake.Fault{RPC: "ListContainers", Oversize: 17 << 20, First: 1})
		all := &runtimeapi.ListContainersRequest{}
		if got := codeOf(t.Context(), f.ListContainers, all); got != codes.ResourceExhausted {
			t.Errorf("the first list: %v", got)
		}
		if list, err := f.ListContainers(t.Context(), all); err != nil || len(list.GetContainers()) != 2 {
			t.Errorf("the second list: %v, %v", list, err)
		}
	})
	t.Run("restart of containerd", func(t *testing.T) {
		must(t, box.Stop(t.Context()))
		if got := f.version(t); got != codes.Unavailable {
			t.Errorf("while it is down: %s", got)
		}
		must(t, box.Restart(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for f.status(t, a, time.Minute) != codes.OK {
			if ctx.Err() != nil {
				t.Fatal("it is not reached again")
			}
		}
	})
	for _, id := range []string{a, b} {
		stopped := codeOf(t.Context(), f.StopContainer, &runtimeapi.StopContainerRequest{ContainerId: id})
		removed := codeOf(t.Context(), f.RemoveContainer, &runtimeapi.RemoveContainerRequest{ContainerId: id})
		if stopped != codes.OK || removed != codes.OK {
			t.Errorf("container %s: stopping %v, removing %v", id, stopped, removed)
		}
	}
	set(fake.Fault{RPC: "StopPodSandbox", Drop: true, First: 1})
	for i, id := range []string{pods[0].ID, pods[1].ID} {
		stop := &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}
		if got := codeOf(t.Context(), f.StopPodSandbox, stop); i == 0 && got != codes.Unavailable {
			t.Errorf("a call that is dropped: %v", got)
		}
		for codeOf(t.Context(), f.StopPodSandbox, stop) == codes.Unavailable {
			continue // until the connection is made anew
		}
		remove := &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id}
		if got := codeOf(t.Context(), f.RemovePodSandbox, remove); got != codes.OK {
			t.Errorf("removing sandbox %s: %v", id, got)
		}
	}
	list, err := f.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil || len(list.GetItems()) != 0 {
		t.Errorf("left: %v, %v", list, err)
	}
	if got := f.Stats()["StopPodSandbox"]; got.Faulted != 1 || got.Calls < 3 {
		t.Errorf("stats: %+v", got)
	}
}
