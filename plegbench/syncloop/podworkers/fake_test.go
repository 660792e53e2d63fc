package podworkers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
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

// A fakeCache answers at once, or not before something is let through.
type fakeCache struct {
	mu     sync.Mutex
	gate   chan struct{} // nil: open
	err    error
	status map[types.UID]*container.PodStatus
	asked  []time.Time
}

func (c *fakeCache) Get(uid types.UID) (*container.PodStatus, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.status[uid]; s != nil {
		return s, c.err
	}
	return &container.PodStatus{UID: uid}, c.err
}

func (c *fakeCache) GetNewerThan(ctx context.Context, uid types.UID, t time.Time) (*container.PodStatus, error) {
	c.mu.Lock()
	gate := c.gate
	c.asked = append(c.asked, t)
	c.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return c.Get(uid)
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
	err      map[string]error // by the step's word and the UID, or "sync" for all
	terminal map[types.UID]bool
}

func newSyncer(t *testing.T) *fakeSyncer {
	return &fakeSyncer{t: t, busy: map[types.UID]bool{}, furthest: map[types.UID]Step{}, err: map[string]error{}, terminal: map[types.UID]bool{}}
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
	takes, err := s.takes, s.err[string(step)+" "+string(uid)]
	if err == nil {
		err = s.err[string(step)]
	}
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

func (s *fakeSyncer) SyncPod(ctx context.Context, t UpdateType, p, mirror *v1.Pod, _ *container.PodStatus) (bool, error) {
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

func (s *fakeSyncer) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.calls
	s.calls = nil
	return out
}

func (s *fakeSyncer) set(change func(s *fakeSyncer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

type bench struct {
	*Workers
	syncer  *fakeSyncer
	cache   *fakeCache
	events  *record.FakeRecorder
	metrics *metrics.Metrics
	stop    context.CancelFunc
	logMu   sync.Mutex
	lines   []string
}

// newBench makes workers that live as long as the bubble's test function.
func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{syncer: newSyncer(t), cache: &fakeCache{status: map[types.UID]*container.PodStatus{}}, events: record.NewFakeRecorder(10000)}
	b.metrics = metrics.New(prometheus.NewRegistry(), prometheus.NewRegistry())
	b.Workers = New(Config{
		Syncer: b.syncer, Cache: b.cache, Recorder: b.events, Metrics: b.metrics,
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

// settled waits until no worker can go on without time or an update, and returns what they did.
func (b *bench) settled() []string {
	synctest.Wait()
	return b.syncer.take()
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

// answers are those of all predicates for a pod that say yes.
func (b *bench) answers(uid types.UID) []string {
	var out []string
	for _, p := range []struct {
		name string
		ask  func(types.UID) bool
	}{
		{"known terminated", b.IsPodKnownTerminated},
		{"could run", b.CouldHaveRunningContainers},
		{"finished", b.ShouldPodBeFinished},
		{"requested", b.IsPodTerminationRequested},
		{"runtime removed", b.ShouldPodRuntimeBeRemoved},
		{"content removed", b.ShouldPodContentBeRemoved},
	} {
		if p.ask(uid) {
			out = append(out, p.name)
		}
	}
	return out
}
