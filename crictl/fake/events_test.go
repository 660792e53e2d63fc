package fake

import (
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

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
