package syncloop

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/plegbench/syncloop/config"
	"github.com/kdiag/kdiag/plegbench/syncloop/pleg"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
	"github.com/kdiag/kdiag/plegbench/syncloop/prober"
)

// A SyncHandler handles the values that syncLoopIteration reads from its channels (pkg/kubelet/kubelet.go upstream).
// The loop's goroutine calls its methods one after the other.
type SyncHandler interface {
	HandlePodAdditions(pods []*v1.Pod)
	HandlePodUpdates(pods []*v1.Pod)
	HandlePodRemoves(pods []*v1.Pod)
	HandlePodReconcile(pods []*v1.Pod)
	HandlePodSyncs(pods []*v1.Pod)
	HandlePodCleanups(ctx context.Context) error
}

// syncLoop iterates until ctx ends. While the runtime has errors it reads no channel at all, with growing pauses, and
// does not update the monitor: this is how a hung runtime stops a node.
func (s *SyncLoop) syncLoop(ctx context.Context, handler SyncHandler) error {
	s.log.Info("Starting kubelet main sync loop")
	syncTicker := time.NewTicker(s.cfg.Periods.Sync)
	defer syncTicker.Stop()
	housekeepingTicker := time.NewTicker(s.cfg.Periods.Housekeeping)
	defer housekeepingTicker.Stop()
	pause := s.cfg.Periods.SkipFirst
	for ctx.Err() == nil {
		if err := s.state.RuntimeErrors(); err != nil {
			s.log.Error(err, "Skipping pod synchronization")
			s.changeLoop(func(l *LoopState) {
				l.Why = err.Error()
				if l.SkippingSince.IsZero() {
					l.SkippingSince = time.Now()
				}
			})
			s.notify(Event{What: Skipped, Detail: err.Error()})
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
			pause = min(2*pause, s.cfg.Periods.SkipMost)
			continue
		}
		before := s.changeLoop(func(l *LoopState) { l.LastTurn, l.SkippingSince, l.Why = time.Now(), time.Time{}, "" })
		if since := before.SkippingSince; !since.IsZero() {
			s.notify(Event{What: Resumed, Detail: time.Since(since).Round(time.Millisecond).String()})
		}
		pause = s.cfg.Periods.SkipFirst
		s.syncLoopIteration(ctx, handler, syncTicker.C, housekeepingTicker.C)
		s.changeLoop(func(l *LoopState) { l.LastTurn, l.Turns = time.Now(), l.Turns+1 })
	}
	return ctx.Err()
}

// changeLoop changes the state of the loop and returns the state before the change.
func (s *SyncLoop) changeLoop(change func(*LoopState)) (before LoopState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before = s.loop
	change(&s.loop)
	return before
}

// loopState returns the state of the loop.
func (s *SyncLoop) loopState() LoopState { return s.changeLoop(func(*LoopState) {}) }

// syncLoopIteration reads one ready channel, a random one if several are ready.
func (s *SyncLoop) syncLoopIteration(
	ctx context.Context, handler SyncHandler, sync, housekeeping <-chan time.Time,
) {
	select {
	case <-ctx.Done():
	case u := <-s.podConfig.Updates():
		s.read(configCh, fmt.Sprintf("%s from %s, pods: %d", u.Op, u.Source, len(u.Pods)))
		s.handleUpdate(handler, u)
	case e := <-s.pleg.Events():
		s.handleEvent(handler, e)
	case <-sync:
		pods := s.getPodsToSync()
		s.read(syncCh, fmt.Sprintf("pods that are due: %d", len(pods)))
		if len(pods) > 0 {
			s.log.V(4).Info("SyncLoop (SYNC) pods", "total", len(pods), "pods", klog.KObjSlice(pods))
			handler.HandlePodSyncs(pods)
		}
	case u := <-s.liveness.Updates():
		if u.Result == prober.Failure {
			s.handleProbeSync(handler, u, "liveness", "unhealthy")
		}
	case u := <-s.readiness.Updates():
		ready := u.Result == prober.Success
		s.status.SetContainerReadiness(u.PodUID, u.ContainerID, ready)
		s.handleProbeSync(handler, u, "readiness", ifElse(ready, "ready", "not ready"))
	case u := <-s.startup.Updates():
		started := u.Result == prober.Success
		s.status.SetContainerStartup(u.PodUID, u.ContainerID, started)
		s.handleProbeSync(handler, u, "startup", ifElse(started, "started", "unhealthy"))
	case <-housekeeping:
		s.read(housekeepingCh, "")
		s.housekeeping(ctx, handler)
	}
}

func ifElse(condition bool, yes, no string) string {
	if condition {
		return yes
	}
	return no
}

// handleUpdate dispatches an update of a source by its operation.
func (s *SyncLoop) handleUpdate(handler SyncHandler, u config.PodUpdate) {
	log := s.log.V(2)
	if u.Op == config.RECONCILE {
		log = s.log.V(4)
	}
	s.cfg.Trace.sees(u.Pods)
	log.Info("SyncLoop "+u.Op.String(), "source", u.Source, "pods", klog.KObjSlice(u.Pods))
	switch u.Op {
	case config.ADD:
		handler.HandlePodAdditions(u.Pods)
	case config.UPDATE, config.DELETE: // a deleted pod is removed only after it has ended within its grace period
		handler.HandlePodUpdates(u.Pods)
	case config.REMOVE:
		handler.HandlePodRemoves(u.Pods)
	case config.RECONCILE:
		handler.HandlePodReconcile(u.Pods)
	}
	s.addSource(u.Source)
}

// handleEvent syncs the pod of an event of PLEG.
func (s *SyncLoop) handleEvent(handler SyncHandler, e pleg.Event) {
	if e.Type == pleg.ContainerRemoved {
		return
	}
	if e.Type == pleg.ContainerDied {
		defer s.cleanUpContainersInPod(e.ID, e.Data)
	}
	p, ok := s.pods.PodByUID(e.ID)
	if !ok {
		s.log.V(4).Info("SyncLoop (PLEG): pod does not exist, ignore irrelevant event", "event", e)
		return
	}
	s.read(plegCh, fmt.Sprintf("%s of %s", e.Type, pod.Format(p)))
	s.log.V(2).Info("SyncLoop (PLEG): event for pod", "pod", klog.KObj(p), "event", e)
	if e.Type == pleg.ContainerDied {
		s.notify(Event{What: ContainerDied, Detail: e.Data})
	}
	handler.HandlePodSyncs([]*v1.Pod{p})
}

// handleProbeSync syncs the pod of a probe whose result has changed.
func (s *SyncLoop) handleProbeSync(handler SyncHandler, u prober.Update, probe, status string) {
	p, ok := s.pods.PodByUID(u.PodUID)
	if !ok {
		s.log.V(4).Info("SyncLoop (probe): ignore irrelevant update", "probe", probe, "status", status, "podUID",
			u.PodUID)
		return
	}
	s.read(probeCh, strings.TrimSpace(probe+" "+status)+" of "+pod.Format(p))
	s.log.V(1).Info("SyncLoop (probe)", "probe", probe, "status", status, "pod", klog.KObj(p))
	handler.HandlePodSyncs([]*v1.Pod{p})
}

// housekeeping cleans up on the loop's goroutine, with two lists of the runtime: a runtime that hangs stops the loop
// here, before any health check fails.
func (s *SyncLoop) housekeeping(ctx context.Context, handler SyncHandler) {
	if !s.allSourcesReady() {
		s.log.V(4).Info("SyncLoop (housekeeping, skipped): sources aren't ready yet")
		return
	}
	s.log.V(4).Info("SyncLoop (housekeeping)")
	start := time.Now()
	if err := handler.HandlePodCleanups(ctx); err != nil && ctx.Err() == nil {
		s.log.Error(err, "Failed cleaning pods")
	}
	took := time.Since(start)
	if expected := s.cfg.Periods.Housekeeping / 2; took > expected {
		s.log.Error(errors.New("housekeeping took too long"), "Housekeeping took longer than expected", "expected",
			expected, "actual", took)
	}
	s.log.V(4).Info("SyncLoop (housekeeping) end", "duration", took)
}

// syncLoopHealthCheck is the check of /healthz/syncloop. It never fails before the first iteration.
func (s *SyncLoop) syncLoopHealthCheck() error {
	last := s.loopState().LastTurn
	if !last.IsZero() && time.Since(last) > max(2*s.cfg.Periods.Resync, s.cfg.Periods.LoopStuck) {
		return errors.New("sync Loop took longer than expected")
	}
	return nil
}
