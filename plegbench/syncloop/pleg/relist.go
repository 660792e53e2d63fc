package pleg

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// Relist lists all pods and inspects those that changed, one after the other. It waits for a relist under way.
func (g *Generic) Relist(ctx context.Context) {
	g.relisting.Lock()
	defer g.relisting.Unlock()
	g.Log.V(5).Info("GenericPLEG: Relisting")
	start := g.begin()
	defer g.end(start)
	pods, err := g.Runtime.GetPods(ctx, true)
	if ctx.Err() != nil {
		return // the end of the syncLoop, not a failure
	}
	if err != nil {
		g.Log.Error(err, "GenericPLEG: Unable to retrieve pods")
		g.mu.Lock()
		g.seen.Failures++
		g.mu.Unlock()
		return
	}
	g.listed(start, pods)
	for uid, r := range g.records {
		g.reconcile(ctx, uid, r, start)
	}
	g.dropStrayMarks()
	// Also after failed inspections: their errors are in the cache.
	g.Cache.UpdateTime(start)
}

// relistPod does for one pod what Relist does for all. It does not change the time of the last relist, since it proves
// nothing about the other pods.
func (g *Generic) relistPod(ctx context.Context, uid types.UID) {
	g.relisting.Lock()
	defer g.relisting.Unlock()
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
	ready, containers := 0, 0
	states := map[container.State]int{}
	for _, p := range pods {
		g.setCurrent(p)
		containers += len(p.Containers)
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
	g.seen.LastRelist, g.seen.Pods, g.seen.Containers = start, len(pods), containers
}

func (g *Generic) setCurrent(p *container.Pod) {
	if g.records[p.UID] == nil {
		g.records[p.UID] = &record{}
	}
	g.records[p.UID].current = p
}

// reconcile finds the changes of one pod, writes its status to the cache and sends its events. If the pod cannot be
// inspected nothing is sent and the record stays, so that the next relist finds the same changes again.
func (g *Generic) reconcile(ctx context.Context, uid types.UID, r *record, at time.Time) {
	var events []Event
	for _, id := range r.ids() {
		from, to := stateOf(r.old, id), stateOf(r.current, id)
		if from != to {
			g.Log.V(4).Info("GenericPLEG", "podUID", uid, "containerID", id, "oldState", from, "newState", to)
		}
		events = append(events, computeEvents(uid, id, from, to)...)
	}
	marked := g.takeMark(uid)
	if len(events) == 0 && !marked {
		if r.current == nil {
			delete(g.records, uid) // it was listed without any container or sandbox
		}
		return
	}
	updated, err := g.writeStatus(ctx, uid, r.current, at)
	if err != nil {
		g.Log.V(4).Info("PLEG: Ignoring events for pod", "pod", ref(r.current), "err", err)
		g.RequestReinspect(uid)
		return
	}
	if !updated {
		return // the cache has a newer status from the runtime's events
	}
	if len(events) == 0 {
		events = []Event{{ID: uid, Type: PodSync}}
	}
	r.old = r.current
	if r.current == nil {
		delete(g.records, uid)
	}
	g.send(uid, events)
}

// ref is the reference to a listed pod in a log line.
func ref(p *container.Pod) klog.ObjectRef {
	return klog.KRef(p.Namespace, p.Name)
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
		g.Log.Error(err, "PLEG: Write status", "pod", ref(pod))
	} else {
		if before, beforeErr := g.Cache.Get(uid); beforeErr == nil {
			status.IPs = keptIPs(status, before)
		}
		g.Log.V(4).Info("PLEG: Write status", "pod", ref(pod))
		if g.Cache.onlyNewer() {
			at = status.TimeStamp // the relist's start would not compare with the times of the events' statuses
		}
	}
	return g.Cache.Set(uid, status, err, at), err
}

// send puts events into the channel. Events that do not fit are lost, since the record is already updated.
func (g *Generic) send(uid types.UID, events []Event) {
	for _, e := range events {
		if e.Type == ContainerChanged {
			continue
		}
		if !g.put(e) {
			g.Log.Error(nil, "Event channel is full, discard this relist() cycle event")
		}
		if status, err := g.Cache.Get(uid); err == nil && e.Type == ContainerDied {
			for _, c := range status.ContainerStatuses {
				if c.ID.ID == e.Data {
					g.Log.V(2).Info("Generic (PLEG): container finished", "podID", uid, "containerID", e.Data, "exitCode", c.ExitCode)
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

// dropStrayMarks removes the marks of pods that the runtime does not have. A new pod is inspected anyway.
func (g *Generic) dropStrayMarks() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for uid := range g.reinspect {
		if g.records[uid] == nil {
			delete(g.reinspect, uid)
		}
	}
}
