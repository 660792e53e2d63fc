package podworkers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

var errSick = errors.New("sick")

func testPod(uid string) *v1.Pod {
	p := &v1.Pod{}
	p.UID, p.Name, p.Namespace = types.UID(uid), uid, "ns"
	return p
}

// staticPod is one whose name is shared with others of other UIDs.
func staticPod(uid, name string) *v1.Pod {
	p := testPod(uid)
	p.Name = name
	p.Annotations = map[string]string{pod.ConfigSourceAnnotation: pod.FileSource}
	return p
}

// A fakeCache answers at once, or once its gate is closed.
type fakeCache struct {
	gate chan struct{} // nil: open
	mu   sync.Mutex
	err  error
}

func (c *fakeCache) GetNewerThan(ctx context.Context, uid types.UID, _ time.Time) (*container.PodStatus, error) {
	if c.gate != nil {
		select {
		case <-c.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return &container.PodStatus{UID: uid}, c.err
}

// A fakeSyncer notes each step, takes its time, and fails as set. It fails the test when a pod is synced twice at a
// time, or goes back a step.
type fakeSyncer struct {
	t        *testing.T
	mu       sync.Mutex
	calls    []string
	busy     map[types.UID]bool
	furthest map[types.UID]Step
	takes    time.Duration
	err      map[string]error // by step
	terminal map[types.UID]bool
}

func newSyncer(t *testing.T) *fakeSyncer {
	return &fakeSyncer{
		t: t, busy: map[types.UID]bool{}, furthest: map[types.UID]Step{}, err: map[string]error{},
		terminal: map[types.UID]bool{},
	}
}

func (s *fakeSyncer) step(ctx context.Context, uid types.UID, step Step, line string) error {
	s.mu.Lock()
	if s.busy[uid] {
		s.t.Errorf("%s is in two steps at a time", uid)
	}
	order := []Step{"", Syncing, Terminating, Terminated}
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
	err := s.step(ctx, p.UID, Syncing, line)
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
	return s.step(ctx, p.UID, Terminating, line)
}

func (s *fakeSyncer) SyncTerminatingRuntimePod(ctx context.Context, r *container.Pod) error {
	return s.step(ctx, r.UID, Terminating, fmt.Sprintf("terminating runtime %s", r.UID))
}

func (s *fakeSyncer) SyncTerminatedPod(ctx context.Context, p *v1.Pod, _ *container.PodStatus) error {
	return s.step(ctx, p.UID, Terminated, "terminated "+string(p.UID))
}

func (s *fakeSyncer) set(change func(s *fakeSyncer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

type bench struct {
	*Workers
	t      *testing.T
	syncer *fakeSyncer
	cache  *fakeCache
	stop   context.CancelFunc
	logMu  sync.Mutex
	lines  []string
}

// newBench makes workers that live as long as the bubble's test function.
func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, syncer: newSyncer(t), cache: &fakeCache{}}
	b.Workers = New(Config{
		Syncer: b.syncer, Cache: b.cache, Recorder: record.NewFakeRecorder(10000), Metrics: metrics.New(nil, nil),
		ResyncInterval: time.Minute, BackOff: 10 * time.Second, TransientBackOff: time.Second,
		Log: funcr.New(func(_, line string) {
			b.logMu.Lock()
			defer b.logMu.Unlock()
			b.lines = append(b.lines, line)
		}, funcr.Options{Verbosity: 4}),
	})
	var ctx context.Context
	ctx, b.stop = context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	t.Cleanup(func() {
		b.stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
	return b
}

// did waits until no worker can go on without time or an update, and compares the steps since the last time.
func (b *bench) did(want ...string) {
	b.t.Helper()
	synctest.Wait()
	b.syncer.mu.Lock()
	defer b.syncer.mu.Unlock()
	if diff := cmp.Diff(want, b.syncer.calls); diff != "" {
		b.t.Error(diff)
	}
	b.syncer.calls = nil
}

func (b *bench) create(p *v1.Pod) {
	b.UpdatePod(UpdateOptions{Type: Create, Pod: p, StartTime: time.Now()})
}

func (b *bench) kill(p *v1.Pod, k *KillOptions) {
	b.UpdatePod(UpdateOptions{Type: Kill, Pod: p, Kill: k})
}

func (b *bench) logged(part string) bool {
	b.logMu.Lock()
	defer b.logMu.Unlock()
	return slices.ContainsFunc(b.lines, func(l string) bool { return strings.Contains(l, part) })
}

// answers compares the predicates that hold for a pod.
func (b *bench) answers(uid types.UID, want ...string) {
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
	if diff := cmp.Diff(want, got); diff != "" {
		b.t.Error(diff)
	}
}

// known runs a housekeeping with desired pods and compares the pods that still have a worker.
func (b *bench) known(desired []*v1.Pod, want ...types.UID) {
	b.t.Helper()
	got := slices.Sorted(maps.Keys(b.SyncKnownPods(desired)))
	if diff := cmp.Diff(want, got); diff != "" {
		b.t.Error(diff)
	}
}
