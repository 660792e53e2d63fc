package pleg

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// Numbers of pkg/kubelet/kubelet.go and pkg/kubelet/pleg/evented.go.
const (
	maxStreamLosses = 5
	cacheRefresh    = 5 * time.Second // how often the cache is declared fresh while events come
)

// Events is the runtime's stream of container events.
type Events interface {
	// GetContainerEvents calls connected once the stream is open and yield for each event, until the stream ends.
	GetContainerEvents(ctx context.Context, connected func(), yield func(*runtimeapi.ContainerEventResponse)) error
}

// An EventedConfig is what an Evented is made of. Runtime, cache, metrics and event channel are those of the Generic.
type EventedConfig struct {
	Generic *Generic // made with the long period and threshold: 5 and 10 minutes
	Stream  Events
	Log     logr.Logger
	Owner   string // value of the owner's label of the pods that concern us; what others own is passed over

	FallbackPeriod    time.Duration // of the Generic once the runtime's events are given up: 1 s
	FallbackThreshold time.Duration // likewise: 3 minutes
}

// An Evented follows the runtime's events, above a Generic that relists seldom. After five losses of the stream, in all its
// life, it gives up and has the Generic relist each second.
type Evented struct {
	EventedConfig
	inUse atomic.Bool
}

// NewEvented returns an Evented, which does nothing until it is run. The Generic has to be run beside it.
func NewEvented(cfg EventedConfig) *Evented {
	return &Evented{EventedConfig: cfg}
}

// Run follows the events until ctx ends. Having fallen back it only waits.
func (e *Evented) Run(ctx context.Context) error {
	e.use(true)
	defer e.use(false)
	streaming, stop := context.WithCancel(ctx)
	defer stop()
	// Between the stream and the inspections is room for as many events as in the channel of our own.
	received := make(chan *runtimeapi.ContainerEventResponse, cap(e.Generic.events))
	var wg sync.WaitGroup
	wg.Go(func() { e.process(streaming, received) })
	wg.Go(func() { e.refresh(streaming) })
	e.watch(streaming, received)
	stop()
	wg.Wait()
	if ctx.Err() == nil {
		e.Log.V(4).Info("Fall back to Generic PLEG relisting since Evented PLEG is not working")
		e.use(false)
		e.Generic.setPeriod(e.FallbackPeriod, e.FallbackThreshold)
		<-ctx.Done()
	}
	return ctx.Err()
}

// InUse reports whether the runtime's events are followed, and not given up.
func (e *Evented) InUse() bool { return e.inUse.Load() }

// Healthy fails, with the kubelet's text, only while the channel of events is full. As the kubelet's, it writes the present over the
// time of the last relist in kubelet_pleg_last_seen_seconds, after a fall-back too.
func (e *Evented) Healthy() error {
	if n := len(e.Generic.events); n == cap(e.Generic.events) {
		return fmt.Errorf("EventedPLEG: pleg event channel capacity is full with %v events", n)
	}
	e.Generic.Metrics.PLEGLastSeen.Set(float64(time.Now().Unix()))
	return nil
}

func (e *Evented) use(on bool) {
	e.inUse.Store(on)
	e.Generic.Cache.takeOnlyNewer(on)
}

// watch reads the stream, again and again and without a pause, until it was lost five times or ctx ends. A stream that the
// runtime ends without an error is lost too: CRI-O does so when its events are off.
func (e *Evented) watch(ctx context.Context, received chan<- *runtimeapi.ContainerEventResponse) {
	m := e.Generic.Metrics
	for range maxStreamLosses {
		err := e.Stream.GetContainerEvents(ctx, m.EventedPLEGConnections.Inc, func(ev *runtimeapi.ContainerEventResponse) {
			select {
			case received <- ev:
			case <-ctx.Done():
			}
		})
		if ctx.Err() != nil {
			return
		}
		m.EventedPLEGErrors.Inc()
		e.Generic.Relist(ctx) // whatever happened while there was no stream
		e.Log.V(4).Info("Evented PLEG: Failed to get container events, retrying: ", "err", err)
	}
}

// refresh declares the cache fresh now and then, so that a worker whose pod had no event is not kept until the next relist.
func (e *Evented) refresh(ctx context.Context) {
	for {
		e.Generic.Cache.UpdateTime(time.Now())
		select {
		case <-ctx.Done():
			return
		case <-time.After(cacheRefresh):
		}
	}
}

func (e *Evented) process(ctx context.Context, received <-chan *runtimeapi.ContainerEventResponse) {
	for {
		select {
		case <-ctx.Done():
			return
		case ev := <-received:
			e.handle(ctx, ev)
		}
	}
}

// handle brings the cache up to date after one of the runtime's events and sends what follows from it.
func (e *Evented) handle(ctx context.Context, ev *runtimeapi.ContainerEventResponse) {
	sandbox := ev.GetPodSandboxStatus()
	if sandbox == nil || sandbox.Metadata == nil {
		e.Log.Error(nil, "Evented PLEG: received ContainerEventResponse with nil PodSandboxStatus or PodSandboxStatus.Metadata",
			"containerID", ev.ContainerId)
		return
	}
	if e.Owner != "" && sandbox.Labels[container.OwnerLabel] != e.Owner {
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
			e.Log.Error(nil, "Evented PLEG: Event channel is full, discarded pod lifecycle event")
		}
	}
	kind := strings.TrimSuffix(strings.TrimPrefix(ev.ContainerEventType.String(), "CONTAINER_"), "_EVENT")
	// Not the whole event: annotations may contain a pod's environment.
	e.Log.V(4).Info("Received Container "+kind[:1]+strings.ToLower(kind[1:])+" Event", "podUID", uid, "containerID", ev.ContainerId)
}

// sandboxGone forgets a pod whose sandbox was removed. A pod that has another is inspected instead: an empty status would
// have its worker start it a second time.
func (e *Evented) sandboxGone(ctx context.Context, uid types.UID, id string) {
	status, err := e.Generic.Cache.Get(uid)
	if err == nil {
		for _, sb := range status.SandboxStatuses {
			if sb.GetId() != id {
				e.inspect(ctx, uid)
				return
			}
		}
	}
	e.Generic.Cache.Delete(uid)
}

// inspect writes a pod's status to the cache and reports whether it is new. A pod that cannot be had now is left to an
// on-demand relist.
func (e *Evented) inspect(ctx context.Context, uid types.UID) bool {
	at := time.Now()
	pod, err := e.Generic.Runtime.GetPod(ctx, uid)
	if err == nil {
		updated, err := e.Generic.writeStatus(ctx, uid, pod, at)
		if err == nil {
			return updated
		}
	}
	e.Generic.RequestReinspect(uid)
	e.Generic.RequestRelist(uid)
	return false
}

// eventsOf are the events that follow from one of the runtime's. A container that was only created is nothing to act on.
func eventsOf(uid types.UID, ev *runtimeapi.ContainerEventResponse) []Event {
	switch ev.ContainerEventType {
	case runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT:
		return []Event{{ID: uid, Type: ContainerStarted, Data: ev.ContainerId}}
	case runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT:
		return []Event{{ID: uid, Type: ContainerDied, Data: ev.ContainerId}}
	case runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT:
		return []Event{
			{ID: uid, Type: ContainerDied, Data: ev.ContainerId},
			{ID: uid, Type: ContainerRemoved, Data: ev.ContainerId},
		}
	}
	return nil
}
