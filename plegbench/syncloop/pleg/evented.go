package pleg

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// Numbers of pkg/kubelet/kubelet.go and pkg/kubelet/pleg/evented.go.
const (
	maxStreamLosses = 5
	cacheRefresh    = 5 * time.Second // between two updates of the cache's global time
)

// Events is the runtime's stream of container events.
type Events interface {
	// GetContainerEvents calls connected once the stream is open and yield for each event, until the stream ends.
	GetContainerEvents(ctx context.Context, connected func(), yield func(*runtimeapi.ContainerEventResponse)) error
}

// An Evented follows the runtime's events, while a Generic relists seldom. After five losses of the stream in all it
// falls back for good: the Generic relists each second. It uses the runtime, cache, metrics, log and event channel of
// the Generic, which has to run as well.
type Evented struct {
	Generic *Generic // made with the long period and threshold: 5 and 10 minutes
	Stream  Events
	Owner   string // value of container.OwnerLabel; events of other pods are ignored

	FallbackPeriod    time.Duration // of the Generic after the fallback: 1 s
	FallbackThreshold time.Duration // likewise: 3 minutes
}

// Run follows the events until the fallback, and then waits for the end of ctx.
func (e *Evented) Run(ctx context.Context) error {
	newest := &e.Generic.Cache.onlyNewer
	newest.Store(true)
	defer newest.Store(false)
	streaming, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	// So that the worker of a pod without events need not wait for the next relist.
	wg.Go(func() {
		wait.UntilWithContext(streaming, func(context.Context) { e.Generic.Cache.UpdateTime(time.Now()) }, cacheRefresh)
	})
	e.watch(streaming)
	stop()
	wg.Wait()
	if ctx.Err() == nil {
		e.Generic.Log.V(4).Info("Fall back to Generic PLEG relisting since Evented PLEG is not working")
		newest.Store(false)
		e.Generic.setPeriod(e.FallbackPeriod, e.FallbackThreshold)
		<-ctx.Done()
	}
	return ctx.Err()
}

// Healthy fails, with the kubelet's text, only while the channel of events is full. Like the kubelet's, it sets
// kubelet_pleg_last_seen_seconds to the present time, also after the fallback.
func (e *Evented) Healthy() error {
	if n := len(e.Generic.events); n == cap(e.Generic.events) {
		return fmt.Errorf("EventedPLEG: pleg event channel capacity is full with %v events", n)
	}
	e.Generic.Metrics.PLEGLastSeen.Set(float64(time.Now().Unix()))
	return nil
}

// watch reads the stream, without pauses between its losses, until the last loss or the end of ctx. The end of a stream
// without an error is a loss, too: CRI-O ends it so if its events are disabled.
func (e *Evented) watch(ctx context.Context) {
	m := e.Generic.Metrics
	for range maxStreamLosses {
		err := e.Stream.GetContainerEvents(ctx, m.EventedPLEGConnections.Inc,
			func(ev *runtimeapi.ContainerEventResponse) { e.handle(ctx, ev) })
		if ctx.Err() != nil {
			return
		}
		m.EventedPLEGErrors.Inc()
		e.Generic.Relist(ctx) // for changes during the loss of the stream
		e.Generic.Log.V(4).Info("Evented PLEG: Failed to get container events, retrying: ", "err", err)
	}
}

// handle updates the cache after one of the runtime's events and sends the resulting events.
func (e *Evented) handle(ctx context.Context, ev *runtimeapi.ContainerEventResponse) {
	sandbox := ev.GetPodSandboxStatus()
	if sandbox == nil || sandbox.Metadata == nil {
		e.Generic.Log.Error(nil, "Evented PLEG: received ContainerEventResponse with nil PodSandboxStatus or "+
			"PodSandboxStatus.Metadata", "containerID", ev.ContainerId)
		return
	}
	if sandbox.Labels[container.OwnerLabel] != e.Owner {
		return
	}
	e.Generic.Metrics.EventedPLEGLatency.Observe(time.Since(time.Unix(0, ev.CreatedAt)).Seconds())
	uid := types.UID(sandbox.Metadata.Uid)
	if ev.ContainerEventType == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT {
		if sandbox.Id == ev.ContainerId {
			e.sandboxGone(ctx, uid, sandbox.Id)
		}
	} else if !e.inspect(ctx, uid) {
		return
	}
	for _, out := range eventsOf(uid, ev) {
		if !e.Generic.put(out) {
			e.Generic.Log.Error(nil, "Evented PLEG: Event channel is full, discarded pod lifecycle event")
		}
	}
	kind := strings.TrimSuffix(strings.TrimPrefix(ev.ContainerEventType.String(), "CONTAINER_"), "_EVENT")
	// Not the whole event: annotations may contain a pod's environment.
	e.Generic.Log.V(4).Info("Received Container "+kind[:1]+strings.ToLower(kind[1:])+" Event",
		"podUID", uid, "containerID", ev.ContainerId)
}

// sandboxGone removes a pod from the cache after its sandbox. A pod with another sandbox is inspected instead: with an
// empty status its worker would start it a second time.
func (e *Evented) sandboxGone(ctx context.Context, uid types.UID, id string) {
	another := func(sb *runtimeapi.PodSandboxStatus) bool { return sb.GetId() != id }
	if status, err := e.Generic.Cache.Get(uid); err == nil && slices.ContainsFunc(status.SandboxStatuses, another) {
		e.inspect(ctx, uid)
		return
	}
	e.Generic.Cache.Delete(uid)
}

// inspect writes a pod's status to the cache and reports whether it is new. If it fails, it requests an on-demand
// relist.
func (e *Evented) inspect(ctx context.Context, uid types.UID) bool {
	at := time.Now()
	pod, err := e.Generic.Runtime.GetPod(ctx, uid)
	if err == nil {
		var updated bool
		if updated, err = e.Generic.writeStatus(ctx, uid, pod, at); err == nil {
			return updated
		}
	}
	e.Generic.RequestReinspect(uid)
	e.Generic.RequestRelist(uid)
	return false
}

// eventsOf converts one of the runtime's events. The creation of a container has no consequence.
func eventsOf(uid types.UID, ev *runtimeapi.ContainerEventResponse) []Event {
	switch ev.ContainerEventType {
	case runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT:
		return computeEvents(uid, ev.ContainerId, nonExistent, container.Running)
	case runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT:
		return computeEvents(uid, ev.ContainerId, container.Running, container.Exited)
	case runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT:
		return computeEvents(uid, ev.ContainerId, container.Running, nonExistent)
	}
	return nil
}
