package fake

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestLifeOfAPod makes, stops and removes a pod. Two clients get the events of it.
func TestLifeOfAPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, Scenario{Name: "empty"})
		streams := make([]runtimeapi.RuntimeService_GetContainerEventsClient, 2)
		for i := range streams {
			streams[i] = must(c.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{}))(t)
		}
		synctest.Wait() // both have subscribed
		sandboxID, id := c.start(t)
		log := c.status(t, id).GetLogPath()
		if got := c.status(t, id); got.GetStartedAt() != 0 || !strings.HasSuffix(log, "/main/0.log") {
			t.Errorf("created: started at %d, log %q", got.GetStartedAt(), log)
		}
		time.Sleep(time.Second)
		must(c.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id}))(t)
		if _, err := os.Stat(log); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		must(c.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandboxID}))(t)
		got := c.status(t, id)
		if got.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || got.GetExitCode() != 137 ||
			got.GetReason() != "Error" {
			t.Errorf("after StopPodSandbox: %v", got)
		}
		if second := int64(time.Second); got.GetStartedAt()-got.GetCreatedAt() != second ||
			got.GetFinishedAt()-got.GetStartedAt() != second {
			t.Errorf("times: %d, %d, %d", got.GetCreatedAt(), got.GetStartedAt(), got.GetFinishedAt())
		}
		for range 2 { // the second time it is gone, which is no error
			must(c.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sandboxID}))(t)
		}
		if n := len(c.containers(t, nil)) + len(c.sandboxes(t)); n != 0 {
			t.Errorf("%d objects left", n)
		}
		names := map[string]string{sandboxID: "sandbox", id: "container"}
		want := []string{
			"sandbox CREATED, 0 containers", "sandbox STARTED, 0 containers",
			"container CREATED, 1 containers", "container STARTED, 1 containers", "container STOPPED, 1 containers",
			"sandbox STOPPED, 1 containers", "container DELETED, 0 containers", "sandbox DELETED, 0 containers",
		}
		for i, stream := range streams {
			var got []string
			for range want {
				event := must(stream.Recv())(t)
				kind := strings.TrimSuffix(strings.TrimPrefix(event.GetContainerEventType().String(), "CONTAINER_"),
					"_EVENT")
				got = append(got, fmt.Sprintf("%s %s, %d containers", names[event.GetContainerId()], kind,
					len(event.GetContainersStatuses())))
				if event.GetPodSandboxStatus().GetMetadata().GetUid() != "u-1" || event.GetCreatedAt() == 0 {
					t.Errorf("event without its sandbox or its time: %v", event)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("subscriber %d (-want +got):\n%s", i, diff)
			}
		}
	})
}

// TestExits has one container that ends by itself, and one that was removed before.
func TestExits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, Scenario{Name: "ends", Exits: []Exit{
			{Object: Object{Pod: "other"}}, {Object: Object{Container: "m*n"}, After: Duration(time.Minute), Code: 3},
		}})
		for _, removed := range []bool{false, true} {
			_, id := c.start(t)
			must(c.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id}))(t)
			time.Sleep(59 * time.Second)
			if got := c.status(t, id).GetState(); got != runtimeapi.ContainerState_CONTAINER_RUNNING {
				t.Errorf("after 59 s: %s", got)
			}
			if removed {
				must(c.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id}))(t)
			}
			time.Sleep(2 * time.Second)
			if removed {
				continue
			}
			if got := c.status(t, id); got.GetExitCode() != 3 || got.GetReason() != "Error" {
				t.Errorf("after 61 s: %v", got)
			}
		}
	})
}
