package syncloop

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/plegbench/syncloop/config"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/pleg"
	"github.com/kdiag/kdiag/plegbench/syncloop/prober"
)

// A handler handles what comes through the loop's channels. The loop's goroutine calls its methods one after the other
// (SyncHandler in pkg/kubelet/kubelet.go upstream).
type handler interface {
	handlePods(op config.Op, pods []*v1.Pod)
	syncPods(pods ...*v1.Pod)
	cleanUpPods(ctx context.Context) error

	runtimeErrors() error
	podByUID(uid types.UID) (*v1.Pod, bool)                       // a desired one
	podsDue() []*v1.Pod                                           // that have to be synced now
	probed(probe string, uid types.UID, id container.ID, ok bool) // takes a result of a readiness or startup probe
	sourcesReady() bool
	sawSource(source string)
	notify(what, detail string) // adds an event to the timeline
}

// A loop is the syncLoop: one goroutine that reads its channels and calls its handler.
type loop struct {
	handler
	log     logr.Logger
	periods Periods

	updates     <-chan config.PodUpdate
	events      <-chan pleg.Event
	livenessCh  <-chan prober.Update
	readinessCh <-chan prober.Update
	startupCh   <-chan prober.Update

	mu    sync.Mutex
	state LoopState // without Updates
}

// run loops until ctx ends. While the runtime has errors it reads no channel at all, with growing pauses, and does not
// update the monitor: this is how a hung runtime stops a node.
func (l *loop) run(ctx context.Context) error {
	l.log.Info("Starting kubelet main sync loop")
	tick := time.NewTicker(l.periods.Sync)
	defer tick.Stop()
	housekeeping := time.NewTicker(l.periods.Housekeeping)
	defer housekeeping.Stop()
	pause := l.periods.SkipFirst
	for ctx.Err() == nil {
		if err := l.runtimeErrors(); err != nil {
			l.log.Error(err, "Skipping pod synchronization")
			if before := l.change(func(s *LoopState) {
				s.Why = err.Error()
				if s.SkippingSince.IsZero() {
					s.SkippingSince = time.Now()
				}
			}); before.SkippingSince.IsZero() {
				l.notify("skip", err.Error())
			}
			sleep(ctx, pause)
			pause = min(2*pause, l.periods.SkipMost)
			continue
		}
		now := func(s *LoopState) { s.LastTurn, s.SkippingSince, s.Why = time.Now(), time.Time{}, "" }
		if before := l.change(now); !before.SkippingSince.IsZero() {
			l.notify("resume", time.Since(before.SkippingSince).Round(time.Millisecond).String())
		}
		pause = l.periods.SkipFirst
		l.iterate(ctx, tick.C, housekeeping.C)
		l.change(func(s *LoopState) { s.LastTurn, s.Turns = time.Now(), s.Turns+1 })
	}
	return ctx.Err()
}

// change changes the state and returns what it was before. f may be nil.
func (l *loop) change(f func(*LoopState)) LoopState {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.state
	if f != nil {
		f(&l.state)
	}
	return before
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// iterate reads one ready channel, a random one if several are ready (syncLoopIteration upstream).
func (l *loop) iterate(ctx context.Context, tick, housekeeping <-chan time.Time) {
	select {
	case <-ctx.Done():
	case u := <-l.updates:
		l.update(u)
	case e := <-l.events:
		l.event(e)
	case <-tick:
		if pods := l.podsDue(); len(pods) > 0 {
			l.log.V(4).Info("SyncLoop (SYNC) pods", "total", len(pods), "pods", klog.KObjSlice(pods))
			l.syncPods(pods...)
		}
	case u := <-l.livenessCh:
		if u.Result == prober.Failure {
			l.syncProbed(u, "liveness", "unhealthy")
		}
	case u := <-l.readinessCh:
		l.probed("readiness", u.PodUID, u.ContainerID, u.Result == prober.Success)
		l.syncProbed(u, "readiness", word(u.Result == prober.Success, "ready", ""))
	case u := <-l.startupCh:
		l.probed("startup", u.PodUID, u.ContainerID, u.Result == prober.Success)
		l.syncProbed(u, "startup", word(u.Result == prober.Success, "started", "unhealthy"))
	case <-housekeeping:
		l.housekeep(ctx)
	}
}

func word(yes bool, ifSo, ifNot string) string {
	if yes {
		return ifSo
	}
	return ifNot
}

func (l *loop) update(u config.PodUpdate) {
	log := l.log.V(2)
	if u.Op == config.Reconcile {
		log = l.log.V(4)
	}
	log.Info("SyncLoop "+u.Op.String(), "source", u.Source, "pods", klog.KObjSlice(u.Pods))
	l.handlePods(u.Op, u.Pods)
	l.sawSource(u.Source)
}

func (l *loop) event(e pleg.Event) {
	if e.Type == pleg.ContainerRemoved {
		return
	}
	if p, ok := l.podByUID(e.ID); ok {
		l.log.V(2).Info("SyncLoop (PLEG): event for pod", "pod", klog.KObj(p), "event", e)
		l.syncPods(p)
	} else {
		l.log.V(4).Info("SyncLoop (PLEG): pod does not exist, ignore irrelevant event", "event", e)
	}
}

func (l *loop) syncProbed(u prober.Update, probe, status string) {
	p, ok := l.podByUID(u.PodUID)
	if !ok {
		l.log.V(4).Info("SyncLoop (probe): ignore irrelevant update", "probe", probe, "status", status, "podUID",
			u.PodUID)
		return
	}
	l.log.V(1).Info("SyncLoop (probe)", "probe", probe, "status", status, "pod", klog.KObj(p))
	l.syncPods(p)
}

// housekeep cleans up on the loop's goroutine, with two lists of the runtime: a runtime that hangs stops the loop here,
// before any health check fails.
func (l *loop) housekeep(ctx context.Context) {
	if !l.sourcesReady() {
		l.log.V(4).Info("SyncLoop (housekeeping, skipped): sources aren't ready yet")
		return
	}
	l.log.V(4).Info("SyncLoop (housekeeping)")
	start := time.Now()
	if err := l.cleanUpPods(ctx); err != nil && ctx.Err() == nil {
		l.log.Error(err, "Failed cleaning pods")
	}
	took := time.Since(start)
	if expected := l.periods.Housekeeping / 2; took > expected {
		l.log.Error(errors.New("housekeeping took too long"), "Housekeeping took longer than expected", "expected",
			expected, "actual", took)
	}
	l.log.V(4).Info("SyncLoop (housekeeping) end", "duration", took)
}

// healthy is the check of /healthz/syncloop. It never fails before the loop's first turn.
func (l *loop) healthy() error {
	last := l.change(nil).LastTurn
	if !last.IsZero() && time.Since(last) > max(2*l.periods.Resync, l.periods.LoopStuck) {
		return errors.New("sync Loop took longer than expected")
	}
	return nil
}
