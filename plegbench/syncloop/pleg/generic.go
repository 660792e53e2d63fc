// Package pleg is the pod lifecycle event generator. It finds changes of the pods in the runtime, by listing all of
// them each second (Generic) or from the runtime's events (Evented), keeps each pod's status in a Cache, and sends an
// Event for each change to the syncLoop.
//
// It follows pkg/kubelet/pleg and pkg/kubelet/container/cache.go. A slow or hung relist delays the cache, and pod
// workers wait for the cache without a deadline: this is how a runtime stops a node.
package pleg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
)

// An EventType is the type of a change of a container or sandbox.
type EventType string

// The types of events.
const (
	ContainerStarted EventType = "ContainerStarted"
	ContainerDied    EventType = "ContainerDied"
	ContainerRemoved EventType = "ContainerRemoved"
	PodSync          EventType = "PodSync" // after a requested inspection without changes
)

// An Event is a change that the syncLoop has to act on.
type Event struct {
	ID   types.UID // of the pod
	Type EventType
	Data string // id of the container or sandbox; empty for PodSync
}

// A Runtime lists and inspects pods.
type Runtime interface {
	// GetPods lists all pods, or only their running containers and ready sandboxes.
	GetPods(ctx context.Context, all bool) ([]*container.Pod, error)
	// GetPod lists one pod. It is an error if the runtime does not have it.
	GetPod(ctx context.Context, uid types.UID) (*container.Pod, error)
	// GetPodStatus inspects each sandbox and container of a listed pod.
	GetPodStatus(ctx context.Context, pod *container.Pod) (*container.PodStatus, error)
}

// A State is the state of a Generic. Taking one never waits for a relist.
type State struct {
	LastRelist      time.Time     // start of the last relist whose lists succeeded; zero before the first
	Duration        time.Duration // of the last relist that ended, inspections included
	InProgressSince time.Time     // start of the relist under way; zero while there is none
	Relists         int           // ended, failed ones too
	Failures        int           // ended without lists
	Uninspected     int           // pods whose last inspection failed, or that are marked to be inspected again
	Queued          int           // events that the syncLoop has not taken yet
	Discarded       int           // events lost because the channel was full
	Threshold       time.Duration // it is unhealthy when LastRelist is longer ago
}

// Capacities of channels, from pkg/kubelet/kubelet.go and pkg/kubelet/pleg/generic.go.
const (
	eventCapacity   = 1000
	requestCapacity = 200
)

// A GenericConfig configures a Generic.
type GenericConfig struct {
	Runtime   Runtime
	Cache     *Cache
	Log       logr.Logger
	Metrics   *metrics.Metrics
	Period    time.Duration // from the end of a relist to the next: 1 s
	Threshold time.Duration // it is unhealthy without a relist for longer: 3 minutes
	OnDemand  bool          // honour RequestRelist, as from Kubernetes 1.36 on
	OnFailure func(error)   // is called when the lists of a relist have failed; may be nil
}

// A Generic finds changes by listing all pods again and again.
type Generic struct {
	GenericConfig
	events   chan Event
	requests chan request
	rearm    chan struct{} // signals a changed period: relist now

	relisting chan struct{} // full during a relist, which guards records; fake time goes on while one waits for it
	records   map[types.UID]*podRecord

	mu        sync.Mutex // guards the rest; never held during a call to the runtime
	period    time.Duration
	threshold time.Duration
	reinspect map[types.UID]bool
	seen      State // without the fields that State computes
}

// A request is one for the relist of one pod.
type request struct {
	uid types.UID
	at  time.Time
}

// NewGeneric makes a Generic.
func NewGeneric(cfg GenericConfig) *Generic {
	return &Generic{
		GenericConfig: cfg,
		events:        make(chan Event, eventCapacity),
		requests:      make(chan request, requestCapacity),
		rearm:         make(chan struct{}, 1),
		relisting:     make(chan struct{}, 1),
		records:       map[types.UID]*podRecord{},
		period:        cfg.Period,
		threshold:     cfg.Threshold,
		reinspect:     map[types.UID]bool{},
	}
}

// Events is the channel of events, the same one for a Generic and the Evented above it. It is never closed.
func (g *Generic) Events() <-chan Event { return g.events }

// Run relists at once and then each period, counted from the end of a relist, until ctx ends. A relist of all pods that
// is due goes before requests for single pods.
func (g *Generic) Run(ctx context.Context) error {
	for next := time.Now(); ctx.Err() == nil; {
		if time.Until(next) <= 0 {
			g.Relist(ctx)
			g.mu.Lock()
			next = time.Now().Add(g.period)
			g.mu.Unlock()
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(next)):
		case <-g.rearm:
			next = time.Now()
		case r := <-g.requests:
			if r.at.After(g.State().LastRelist) {
				g.relistPod(ctx, r.uid)
			}
		}
	}
	return ctx.Err()
}

// RequestRelist requests a relist of one pod. It never blocks: if 200 requests wait, it is dropped.
func (g *Generic) RequestRelist(uid types.UID) {
	if !g.OnDemand {
		return
	}
	select {
	case g.requests <- request{uid, time.Now()}:
	default:
		g.Log.Error(nil, "Relist request channel full; dropping relist request", "podUID", uid)
	}
}

// RequestReinspect makes the next relist inspect a pod even if nothing in the lists has changed.
func (g *Generic) RequestReinspect(uid types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reinspect[uid] = true
}

// Healthy returns nil, or an error with the kubelet's text. It depends on the start of the last relist whose two lists
// succeeded; slow inspections only delay the next one. As in the kubelet, kubelet_pleg_last_seen_seconds is set here
// and nowhere else.
func (g *Generic) Healthy() error {
	g.mu.Lock()
	last, threshold := g.seen.LastRelist, g.threshold
	g.mu.Unlock()
	if last.IsZero() {
		return errors.New("pleg has yet to be successful")
	}
	g.Metrics.PLEGLastSeen.Set(float64(last.Unix()))
	if age := time.Since(last); age > threshold {
		return fmt.Errorf("pleg was last seen active %v ago; threshold is %v", age, threshold)
	}
	return nil
}

// State returns the present state.
func (g *Generic) State() State {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.seen
	s.Uninspected = len(g.reinspect)
	s.Queued = len(g.events)
	s.Threshold = g.threshold
	return s
}

// setPeriod changes the period and threshold and relists at once, like a Generic that is stopped and started again.
func (g *Generic) setPeriod(period, threshold time.Duration) {
	g.mu.Lock()
	g.period, g.threshold = period, threshold
	g.mu.Unlock()
	select {
	case g.rearm <- struct{}{}:
	default:
	}
}

// Relist lists all pods and inspects those that changed, one after the other. It waits for a relist under way.
func (g *Generic) Relist(ctx context.Context) {
	g.relisting <- struct{}{}
	defer func() { <-g.relisting }()
	g.Log.V(5).Info("GenericPLEG: Relisting")
	start := g.begin()
	defer g.end(start)
	pods, err := g.Runtime.GetPods(ctx, true)
	if ctx.Err() != nil {
		return // the end of the syncLoop, not a failure
	}
	if err != nil {
		g.Log.Error(err, "GenericPLEG: Unable to retrieve pods")
		if g.OnFailure != nil {
			g.OnFailure(err)
		}
		g.mu.Lock()
		g.seen.Failures++
		g.mu.Unlock()
		return
	}
	g.listed(start, pods)
	for uid, r := range g.records {
		g.reconcile(ctx, uid, r, start)
	}
	g.mu.Lock()
	// Pods without a record are gone: one that comes is inspected in any case.
	maps.DeleteFunc(g.reinspect, func(uid types.UID, _ bool) bool { return g.records[uid] == nil })
	g.mu.Unlock()
	// Also after failed inspections: their errors are in the cache.
	g.Cache.UpdateTime(start)
}

// relistPod relists one pod. It does not change the time of the last relist, since it proves nothing about the other
// pods.
func (g *Generic) relistPod(ctx context.Context, uid types.UID) {
	g.relisting <- struct{}{}
	defer func() { <-g.relisting }()
	g.Log.V(5).Info("GenericPLEG: Relisting Pod", "podUID", uid)
	start := time.Now()
	defer func() { g.Metrics.PLEGPodRelistDuration.Observe(time.Since(start).Seconds()) }()
	pod, err := g.Runtime.GetPod(ctx, uid)
	if err != nil {
		g.Log.Error(err, "GenericPLEG: Unable to retrieve pod", "podUID", uid)
		return
	}
	g.setCurrent(pod)
	g.reconcile(ctx, uid, g.records[uid], start)
	g.Cache.SetObservedTime(uid, start)
}

func (g *Generic) begin() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	start := time.Now()
	if !g.seen.LastRelist.IsZero() {
		g.Metrics.PLEGRelistInterval.Observe(start.Sub(g.seen.LastRelist).Seconds())
	}
	g.seen.InProgressSince = start
	return start
}

func (g *Generic) end(start time.Time) {
	took := time.Since(start)
	g.Metrics.PLEGRelistDuration.Observe(took.Seconds())
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seen.InProgressSince = time.Time{}
	g.seen.Duration = took
	g.seen.Relists++
}

// listed records the success of the lists, from which health counts, before any pod is inspected. As upstream, the
// gauge of a state without containers keeps its value.
func (g *Generic) listed(start time.Time, pods []*container.Pod) {
	for _, r := range g.records {
		r.current = nil
	}
	ready := 0
	states := map[container.State]int{}
	for _, p := range pods {
		g.setCurrent(p)
		for _, c := range p.Containers {
			states[c.State]++
		}
		if slices.ContainsFunc(p.Sandboxes, func(s *container.Container) bool { return s.State == container.Running }) {
			ready++
		}
	}
	g.Metrics.RunningPods.Set(float64(ready))
	for s, n := range states {
		g.Metrics.RunningContainers.WithLabelValues(string(s)).Set(float64(n))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seen.LastRelist = start
}

func (g *Generic) setCurrent(p *container.Pod) {
	if g.records[p.UID] == nil {
		g.records[p.UID] = &podRecord{}
	}
	g.records[p.UID].current = p
}

// reconcile finds the changes of one pod, writes its status to the cache and sends its events. If the pod cannot be
// inspected nothing is sent and the record stays, so that the next relist finds the same changes again.
func (g *Generic) reconcile(ctx context.Context, uid types.UID, r *podRecord, at time.Time) {
	var events []Event
	changed := false
	compare := func(id string, from, to container.State) {
		if from != to {
			changed = true
			g.Log.V(4).Info("GenericPLEG", "podUID", uid, "containerID", id, "oldState", from, "newState", to)
			events = append(events, computeEvents(uid, id, from, to)...)
		}
	}
	now := states(r.current)
	for id, from := range r.old {
		compare(id, from, cmp.Or(now[id], nonExistent))
	}
	for id, to := range now {
		if _, known := r.old[id]; !known {
			compare(id, nonExistent, to)
		}
	}
	if marked := g.takeMark(uid); !changed && !marked {
		if r.current == nil {
			delete(g.records, uid) // it was listed without any container or sandbox
		}
		return
	}
	updated, err := g.writeStatus(ctx, uid, r.current, at)
	if err != nil {
		g.Log.V(4).Info("PLEG: Ignoring events for pod", "pod", r.current.Ref(), "err", err)
		g.RequestReinspect(uid)
		return
	}
	if !updated {
		return // the cache has a newer status from the runtime's events
	}
	if !changed {
		events = []Event{{ID: uid, Type: PodSync}}
	}
	r.old = now
	if r.current == nil {
		delete(g.records, uid)
	}
	g.send(uid, events)
}

// writeStatus inspects a listed pod and stores the result, errors too. It reports whether the cache accepted it.
func (g *Generic) writeStatus(
	ctx context.Context, uid types.UID, pod *container.Pod, at time.Time,
) (updated bool, err error) {
	if pod == nil {
		g.Log.V(4).Info("PLEG: Delete status for pod", "podUID", uid)
		g.Cache.Delete(uid)
		return true, nil
	}
	status, err := g.Runtime.GetPodStatus(ctx, pod)
	if err != nil {
		g.Log.Error(err, "PLEG: Write status", "pod", pod.Ref())
	} else {
		if before, beforeErr := g.Cache.Get(uid); beforeErr == nil {
			status.IPs = keptIPs(status, before)
		}
		g.Log.V(4).Info("PLEG: Write status", "pod", pod.Ref())
		if g.Cache.onlyNewer.Load() {
			at = status.TimeStamp // the relist's start would not compare with the times of the events' statuses
		}
	}
	return g.Cache.Set(uid, status, err, at), err
}

// send puts events into the channel. Events that do not fit are lost, since the record is already updated.
func (g *Generic) send(uid types.UID, events []Event) {
	for _, e := range events {
		if !g.put(e) {
			g.Log.Error(nil, "Event channel is full, discard this relist() cycle event")
		}
		if status, err := g.Cache.Get(uid); err == nil && e.Type == ContainerDied {
			for _, c := range status.ContainerStatuses {
				if c.ID.ID == e.Data {
					g.Log.V(2).Info("Generic (PLEG): container finished", "podID", uid, "containerID", e.Data,
						"exitCode", c.ExitCode)
				}
			}
		}
	}
}

// put sends an event unless the channel is full.
func (g *Generic) put(e Event) bool {
	select {
	case g.events <- e:
		return true
	default:
		g.Metrics.PLEGDiscardEvents.Inc()
		g.mu.Lock()
		g.seen.Discarded++
		g.mu.Unlock()
		return false
	}
}

// takeMark consumes the mark of RequestReinspect. A mark set during the inspection remains for the next relist.
func (g *Generic) takeMark(uid types.UID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	marked := g.reinspect[uid]
	delete(g.reinspect, uid)
	return marked
}

// nonExistent is the state of a container that is not listed. To PLEG, created is unknown (plegContainerState in
// pkg/kubelet/pleg/generic.go).
const nonExistent container.State = "non-existent"

// A podRecord has the containers and sandboxes of one pod at its last events, and the pod as it was last listed, nil
// if it is gone. While a pod cannot be inspected old does not change, so that the next relist finds the same difference
// again.
type podRecord struct {
	old     map[string]container.State // by id
	current *container.Pod
}

// states returns the states of the containers and sandboxes of a listed pod, by id. The pod may be nil.
func states(pod *container.Pod) map[string]container.State {
	if pod == nil {
		return nil
	}
	out := map[string]container.State{}
	for _, c := range slices.Concat(pod.Containers, pod.Sandboxes) {
		out[c.ID.ID] = c.State
		if c.State == container.Created {
			out[c.ID.ID] = container.Unknown
		}
	}
	return out
}

// computeEvents returns the events of one container's change of state, none if it changed to unknown.
func computeEvents(uid types.UID, id string, from, to container.State) []Event {
	died := Event{ID: uid, Type: ContainerDied, Data: id}
	switch to {
	case container.Running:
		return []Event{{ID: uid, Type: ContainerStarted, Data: id}}
	case container.Exited:
		return []Event{died}
	case nonExistent:
		removed := Event{ID: uid, Type: ContainerRemoved, Data: id}
		if from == container.Exited {
			return []Event{removed} // its end was sent before
		}
		return []Event{died, removed}
	}
	return nil
}

// keptIPs returns the addresses of a new status. A pod without a ready sandbox keeps its last addresses.
func keptIPs(status, before *container.PodStatus) []string {
	if len(status.IPs) > 0 || slices.ContainsFunc(status.SandboxStatuses, func(sb *runtimeapi.PodSandboxStatus) bool {
		return container.SandboxState(sb.GetState()) == container.Running
	}) {
		return status.IPs
	}
	return before.IPs
}
