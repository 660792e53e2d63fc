package fake

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, Scenario{Name: "empty"})
		streams := make([]runtimeapi.RuntimeService_GetContainerEventsClient, 2)
		for i := range streams {
			streams[i] = must(c.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{}))(t)
		}
		synctest.Wait() // both have subscribed
		sandboxID, id := c.start(t)
		must(c.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id}))(t)
		must(c.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandboxID}))(t)
		must(c.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sandboxID}))(t)

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
				containers := string(rune('0' + len(event.GetContainersStatuses())))
				got = append(got, names[event.GetContainerId()]+" "+kind+", "+containers+" containers")
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

// TestSlowStreamEnds has a subscriber that does not read: flow control stops the stream, the backlog fills, and the
// stream ends with an error after which the caller must list again.
func TestSlowStreamEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, Scenario{Name: "empty"})
		stream := must(c.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{}))(t)
		synctest.Wait()
		large := &runtimeapi.ContainerEventResponse{ContainerId: strings.Repeat("x", 64<<10)}
		for range 3 * eventBacklog {
			c.server.store.mu.Lock()
			c.server.store.send(large)
			c.server.store.mu.Unlock()
			synctest.Wait()
		}
		if len(c.server.store.watchers) > 0 {
			t.Fatal("the stream that nobody reads is still subscribed")
		}
		for {
			if _, err := stream.Recv(); err != nil {
				if codeOf(err) != codes.ResourceExhausted {
					t.Errorf("the stream ended with %v", err)
				}
				return
			}
		}
	})
}
