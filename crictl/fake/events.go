package fake

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// eventBacklog is how many events a watcher may be behind. It is the size of the kubelet's own event channel.
const eventBacklog = 1000

// publish sends an event about the sandbox or the container with that id. Like containerd's, it contains the status
// of the sandbox and of all its containers. The caller holds mu, so events keep the order of the changes.
func (st *store) publish(sb *sandbox, id string, kind runtimeapi.ContainerEventType) {
	if len(st.watchers) == 0 {
		return
	}
	event := &runtimeapi.ContainerEventResponse{
		ContainerId:        id,
		ContainerEventType: kind,
		CreatedAt:          time.Now().UnixNano(),
		PodSandboxStatus:   sb.status(),
	}
	for _, c := range sb.containers {
		event.ContainersStatuses = append(event.ContainersStatuses, c.status())
	}
	st.send(event)
}

// send passes an event to the watchers. It never waits for one: the channel of a watcher that is more than eventBacklog
// behind is closed, so that a stuck client does not stop the runtime. The caller holds mu.
func (st *store) send(event *runtimeapi.ContainerEventResponse) {
	for watcher := range st.watchers {
		select {
		case watcher <- event:
		default:
			delete(st.watchers, watcher)
			close(watcher)
		}
	}
}

// GetContainerEvents streams events until the caller hangs up, falls behind or the server stops.
func (s *service) GetContainerEvents(
	_ *runtimeapi.GetEventsRequest, stream grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse],
) error {
	st := s.store
	watcher := make(chan *runtimeapi.ContainerEventResponse, eventBacklog)
	st.mu.Lock()
	st.watchers[watcher] = struct{}{}
	st.mu.Unlock()
	defer func() {
		st.mu.Lock()
		defer st.mu.Unlock()
		delete(st.watchers, watcher)
	}()
	for {
		select {
		case event, ok := <-watcher:
			if !ok {
				return status.Errorf(codes.ResourceExhausted, "more than %d events were not read; list again",
					eventBacklog)
			}
			if err := stream.Send(event); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-s.done:
			return ErrEnded
		}
	}
}
