package fake

import (
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// eventBacklog is how many events a subscriber may be behind. It is the size of the kubelet's own event channel.
const eventBacklog = 1000

// A broker sends container events to subscribers. It never waits for one: the channel of a subscriber that is more than
// eventBacklog behind is closed, so that a stuck client does not stop the runtime.
type broker struct {
	mu   sync.Mutex
	subs map[chan *runtimeapi.ContainerEventResponse]struct{}
}

func newBroker() *broker {
	return &broker{subs: map[chan *runtimeapi.ContainerEventResponse]struct{}{}}
}

func (b *broker) subscribe() chan *runtimeapi.ContainerEventResponse {
	sub := make(chan *runtimeapi.ContainerEventResponse, eventBacklog)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.subs[sub] = struct{}{}
	return sub
}

func (b *broker) unsubscribe(sub chan *runtimeapi.ContainerEventResponse) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.subs, sub)
}

// wanted reports whether there are subscribers, so that events need not be built without any.
func (b *broker) wanted() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.subs) > 0
}

func (b *broker) publish(event *runtimeapi.ContainerEventResponse) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for sub := range b.subs {
		select {
		case sub <- event:
		default:
			delete(b.subs, sub)
			close(sub)
		}
	}
}

// publish sends an event about the sandbox or the container with that id. Like containerd's, it contains the status
// of the sandbox and of all its containers. The caller holds mu, so events keep the order of the changes.
func (st *store) publish(sb *sandbox, id string, kind runtimeapi.ContainerEventType) {
	if !st.events.wanted() {
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
	st.events.publish(event)
}

// GetContainerEvents streams events until the caller hangs up, falls behind or the server stops.
func (r *runtimeService) GetContainerEvents(
	_ *runtimeapi.GetEventsRequest, stream grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse],
) error {
	sub := r.store.events.subscribe()
	defer r.store.events.unsubscribe(sub)
	for {
		select {
		case event, ok := <-sub:
			if !ok {
				return status.Errorf(codes.ResourceExhausted, "more than %d events were not read; list again", eventBacklog)
			}
			if err := stream.Send(event); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-r.done:
			return errStopping()
		}
	}
}
