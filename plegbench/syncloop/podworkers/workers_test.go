package podworkers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
	"github.com/kdiag/kdiag/plegbench/syncloop/pleg"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

func bubble(t *testing.T, f func(t *testing.T, b *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newHarness(t)) })
}

func TestLifeOfAPod(t *testing.T) {
	bubble(t, func(t *testing.T, b *harness) {
		p := looptest.Pod("p")
		p.Spec.TerminationGracePeriodSeconds = new(int64(30))
		b.answers("p", "could run") // before the first housekeeping
		b.create(p)
		b.did("sync p create")
		b.answers("p", "could run")

		done := make(chan struct{})
		b.syncer.set(func(s *fakeSyncer) { s.takes = time.Second })
		b.kill(p, &KillPodOptions{Completed: done})
		b.answers("p", "could run", "requested")
		select {
		case <-done:
			t.Error("completed before its end")
		default:
		}
		<-done
		b.answers("p", "known terminated", "requested", "runtime removed")
		time.Sleep(2 * time.Second)
		b.did("terminating p grace=30", "terminated p")
		b.answers("p", "finished", "known terminated", "requested", "runtime removed")
		b.UpdatePod(UpdatePodOptions{Type: Sync, Pod: p})
		late := make(chan struct{})
		b.kill(p, &KillPodOptions{Completed: late})
		<-late
		b.did()
		b.known([]*v1.Pod{p}, "p") // while it is desired its end is remembered
		b.known(nil)
		b.answers("p", "content removed", "finished", "runtime removed")
		b.wg.Wait() // its goroutine has ended though Run goes on
	})
}

// deleted is a pod that its source deletes with a grace period.
func deleted(uid string, grace int64) *v1.Pod {
	p := looptest.Pod(uid, looptest.Deleted(grace))
	p.Spec.TerminationGracePeriodSeconds = new(int64(60))
	return p
}

// Only a shorter grace period counts, whoever asks for it. The first request cancels the sync, a shorter one the
// termination.
func TestCancellation(t *testing.T) {
	bubble(t, func(t *testing.T, b *harness) {
		b.syncer.takes = time.Hour
		start := time.Now()
		b.create(looptest.Pod("p"))
		synctest.Wait()
		evicted := func(st *v1.PodStatus) { st.Reason = "Evicted" }
		b.kill(looptest.Pod("p"), &KillPodOptions{GraceOverride: new(int64(30)), StatusOverride: evicted})
		synctest.Wait()
		b.kill(looptest.Pod("p"), &KillPodOptions{GraceOverride: new(int64(40))})
		for _, grace := range []int64{35, 20} {
			synctest.Wait()
			b.UpdatePod(UpdatePodOptions{Type: Update, Pod: deleted("p", grace)})
		}
		synctest.Wait()
		b.kill(deleted("p", 20), &KillPodOptions{GraceOverride: new(int64(0))})
		const why = " reason=Evicted"
		b.did("sync p create", "terminating p grace=30"+why, "terminating p grace=20"+why, "terminating p grace=1"+why)
		cancelled := b.log.Lines(`"msg"="Sync exited with context cancellation error" "pod"=`)
		if time.Since(start) != 0 || len(cancelled) == 0 {
			t.Error("not cancelled")
		}
		time.Sleep(4 * time.Hour)
		b.did("terminated p")
	})
}

func TestRequeueAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := func(s int) error {
			return &BackOffError{errors.New("x"), time.Now().Add(time.Duration(s) * time.Second)}
		}
		cfg := &Config{ResyncInterval: time.Minute, BackOff: 10 * time.Second, TransientBackOff: time.Second}
		for name, tt := range map[string]struct {
			moved bool
			err   error
			want  time.Duration
		}{
			"next step":             {true, nil, 0},
			"success":               {false, nil, time.Minute},
			"network":               {false, fmt.Errorf("%w: cni", ErrNetworkNotReady), time.Second},
			"network, by text":      {false, errors.New("x: network is not ready: cni"), time.Second},
			"error":                 {false, errors.New("x"), 10 * time.Second},
			"back-off":              {false, fmt.Errorf("x: %w", in(25)), 25 * time.Second},
			"back-off that is over": {false, in(-5), 0},
			"long back-off":         {false, in(300), time.Minute},
		} {
			testkit.Equal(t, name, tt.want, cfg.requeueAfter(tt.moved, tt.err))
		}
		for range 1000 {
			if d := jitter(time.Minute); d < time.Minute || d > 90*time.Second {
				t.Fatalf("jittered to %v", d)
			}
		}
	})
}

var errSick = errors.New("sick")

// staticPod is one whose name is shared with others of other UIDs.
func staticPod(uid, name string) *v1.Pod {
	p := looptest.Pod(name, looptest.Annotated(pod.ConfigSourceAnnotation, pod.FileSource))
	p.UID = types.UID(uid)
	return p
}

// A fakeSyncer notes each step, takes its time, and fails as set. It fails the test when a pod is synced twice at a
// time, or goes back a step.
type fakeSyncer struct {
	t        *testing.T
	mu       sync.Mutex
	calls    []string
	busy     map[types.UID]bool
	furthest map[types.UID]PodWorkType
	takes    time.Duration
	err      map[string]error // by step
	terminal map[types.UID]bool
}

func (s *fakeSyncer) step(ctx context.Context, uid types.UID, step PodWorkType, line string) error {
	s.mu.Lock()
	if s.busy[uid] {
		s.t.Errorf("%s is in two steps at a time", uid)
	}
	order := []PodWorkType{"", SyncPodWork, TerminatingPodWork, TerminatedPodWork}
	if slices.Index(order, step) < slices.Index(order, s.furthest[uid]) {
		s.t.Errorf("%s went back from %v to %v", uid, s.furthest[uid], step)
	}
	s.busy[uid], s.furthest[uid] = true, step
	s.calls = append(s.calls, line)
	takes, err := s.takes, s.err[string(step)]
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.busy[uid] = false
	}()
	if takes > 0 {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

func (s *fakeSyncer) SyncPod(ctx context.Context, t UpdateType, p, mirror *v1.Pod, _ *container.PodStatus) (bool,
	error,
) {
	line := fmt.Sprintf("sync %s %s", p.UID, t)
	if mirror != nil {
		line += " mirror=" + string(mirror.UID)
	}
	err := s.step(ctx, p.UID, SyncPodWork, line)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.terminal[p.UID] && err == nil, err
}

func (s *fakeSyncer) SyncTerminatingPod(
	ctx context.Context, p *v1.Pod, _ *container.PodStatus, grace *int64, override func(*v1.PodStatus),
) error {
	line := fmt.Sprintf("terminating %s grace=%d", p.UID, *grace)
	if override != nil {
		var st v1.PodStatus
		override(&st)
		line += " reason=" + st.Reason
	}
	return s.step(ctx, p.UID, TerminatingPodWork, line)
}

func (s *fakeSyncer) SyncTerminatingRuntimePod(ctx context.Context, r *container.Pod) error {
	return s.step(ctx, r.UID, TerminatingPodWork, fmt.Sprintf("terminating runtime %s", r.UID))
}

func (s *fakeSyncer) SyncTerminatedPod(ctx context.Context, p *v1.Pod, _ *container.PodStatus) error {
	return s.step(ctx, p.UID, TerminatedPodWork, "terminated "+string(p.UID))
}

func (s *fakeSyncer) set(change func(s *fakeSyncer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// A harness is Workers whose syncer a test sets. Their cache is newer than any sync, unless a test says otherwise.
type harness struct {
	*Workers
	t      *testing.T
	syncer *fakeSyncer
	cache  *pleg.Cache
	log    looptest.Log
}

// always is later than any time of a test.
var always = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)

// newHarness makes workers that live as long as the bubble's test function.
func newHarness(t *testing.T) *harness {
	t.Helper()
	b := &harness{t: t, cache: pleg.NewCache(), syncer: &fakeSyncer{
		t: t, busy: map[types.UID]bool{}, furthest: map[types.UID]PodWorkType{}, err: map[string]error{},
		terminal: map[types.UID]bool{},
	}}
	b.cache.UpdateTime(always)
	b.Workers = New(Config{
		Syncer: b.syncer, Cache: b.cache, Recorder: record.NewFakeRecorder(10000), Metrics: metrics.New(nil, nil),
		ResyncInterval: time.Minute, BackOff: 10 * time.Second, TransientBackOff: time.Second,
		Log: b.log.Logger(4),
	})
	looptest.Run(t, b.Run)
	return b
}

// did waits until no worker can go on without time or an update, and compares the steps since the last time.
func (b *harness) did(want ...string) {
	b.t.Helper()
	synctest.Wait()
	b.syncer.mu.Lock()
	defer b.syncer.mu.Unlock()
	testkit.Equal(b.t, "steps", want, b.syncer.calls)
	b.syncer.calls = nil
}

func (b *harness) create(p *v1.Pod) {
	b.UpdatePod(UpdatePodOptions{Type: Create, Pod: p, StartTime: time.Now()})
}

func (b *harness) kill(p *v1.Pod, k *KillPodOptions) {
	b.UpdatePod(UpdatePodOptions{Type: Kill, Pod: p, Kill: k})
}

// answers compares the predicates that hold for a pod.
func (b *harness) answers(uid types.UID, want ...string) {
	b.t.Helper()
	synctest.Wait()
	var got []string
	for name, holds := range map[string]bool{
		"known terminated": b.IsPodKnownTerminated(uid),
		"could run":        b.CouldHaveRunningContainers(uid),
		"finished":         b.ShouldPodBeFinished(uid),
		"requested":        b.IsPodTerminationRequested(uid),
		"runtime removed":  b.ShouldPodRuntimeBeRemoved(uid),
		"content removed":  b.ShouldPodContentBeRemoved(uid),
	} {
		if holds {
			got = append(got, name)
		}
	}
	slices.Sort(got)
	testkit.Equal(b.t, "predicates of "+string(uid), want, got)
}

// known runs a housekeeping with desired pods and compares the pods that still have a worker.
func (b *harness) known(desired []*v1.Pod, want ...types.UID) {
	b.t.Helper()
	testkit.Equal(b.t, "known", want, slices.Sorted(maps.Keys(b.SyncKnownPods(desired))))
}
