package pleg

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
)

func id(s string) container.ID { return container.ID{Type: "fake", ID: s} }

var errSick = errors.New("sick")

// A fakeRuntime holds pods and takes its time.
type fakeRuntime struct {
	mu        sync.Mutex
	pods      map[types.UID]*container.Pod
	listErr   error
	statusErr map[types.UID]error
	listTakes time.Duration
	inspected []types.UID
	lists     int
	exit      int
	ips       []string
}

func newRuntime() *fakeRuntime {
	return &fakeRuntime{pods: map[types.UID]*container.Pod{}, statusErr: map[types.UID]error{}}
}

// put sets the state of a container; "" removes it, and the pod with its last one.
func (f *fakeRuntime) put(uid types.UID, c string, s container.State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := &container.Pod{UID: uid, Name: string(uid), Namespace: "ns"}
	if old := f.pods[uid]; old != nil {
		for _, have := range old.Containers {
			if have.ID.ID != c {
				next.Containers = append(next.Containers, have)
			}
		}
	}
	if s != "" {
		next.Containers = append(next.Containers, &container.Container{ID: id(c), Name: c, State: s})
	}
	if len(next.Containers) == 0 {
		delete(f.pods, uid)
		return
	}
	f.pods[uid] = next
}

func (f *fakeRuntime) set(change func(f *fakeRuntime)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fakeRuntime) wait(ctx context.Context) error {
	f.mu.Lock()
	d := f.listTakes
	f.lists++
	f.mu.Unlock()
	if d == 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *fakeRuntime) GetPods(ctx context.Context, _ bool) ([]*container.Pod, error) {
	if err := f.wait(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []*container.Pod
	for _, p := range f.pods {
		out = append(out, p)
	}
	return out, f.listErr
}

func (f *fakeRuntime) GetPod(ctx context.Context, uid types.UID) (*container.Pod, error) {
	if err := f.wait(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pods[uid] == nil && f.listErr == nil {
		return nil, errors.New("pod sandboxes not found")
	}
	return f.pods[uid], f.listErr
}

func (f *fakeRuntime) GetPodStatus(_ context.Context, p *container.Pod) (*container.PodStatus, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inspected = append(f.inspected, p.UID)
	if err := f.statusErr[p.UID]; err != nil {
		return nil, err
	}
	st := &container.PodStatus{UID: p.UID, Name: p.Name, Namespace: p.Namespace, IPs: f.ips, TimeStamp: time.Now()}
	for _, c := range p.Containers {
		st.ContainerStatuses = append(st.ContainerStatuses, &container.Status{ID: c.ID, Name: c.Name, State: c.State, ExitCode: f.exit})
	}
	return st, nil
}

func (f *fakeRuntime) takeInspected() []types.UID {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.inspected
	f.inspected = nil
	slices.Sort(out)
	return out
}

// A logBook collects lines: level or E, message, err and keys.
type logBook struct {
	mu    sync.Mutex
	lines []string
}

func (b *logBook) logger() logr.Logger {
	return funcr.New(func(_, args string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.lines = append(b.lines, args)
	}, funcr.Options{Verbosity: 5})
}

func (b *logBook) take() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.lines
	b.lines = nil
	return out
}

type bench struct {
	*Generic
	runtime *fakeRuntime
	cache   *Cache
	log     *logBook
	metrics *metrics.Metrics
}

func newBench(t *testing.T, change func(*GenericConfig)) *bench {
	t.Helper()
	b := &bench{runtime: newRuntime(), cache: NewCache(), log: &logBook{}}
	b.metrics = metrics.New(prometheus.NewRegistry(), prometheus.NewRegistry())
	cfg := GenericConfig{Runtime: b.runtime, Cache: b.cache, Log: b.log.logger(), Metrics: b.metrics, OnDemand: true, Period: time.Second, Threshold: 3 * time.Minute}
	if change != nil {
		change(&cfg)
	}
	b.Generic = NewGeneric(cfg)
	return b
}

// start runs the Generic until the test's end.
func (b *bench) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
}

// sent takes all events out of the channel, sorted by pod, the order within a pod kept.
func (b *bench) sent() []string {
	var out []Event
	for {
		select {
		case e := <-b.Events():
			out = append(out, e)
			continue
		default:
		}
		slices.SortStableFunc(out, func(a, b Event) int { return slices.Compare([]byte(a.ID), []byte(b.ID)) })
		var lines []string
		for _, e := range out {
			lines = append(lines, fmt.Sprintf("%s %s %s", e.ID, e.Type, e.Data))
		}
		return lines
	}
}

func value(t *testing.T, m prometheus.Metric) float64 {
	t.Helper()
	var out dto.Metric
	if err := m.Write(&out); err != nil {
		t.Fatal(err)
	}
	switch {
	case out.Gauge != nil:
		return out.GetGauge().GetValue()
	case out.Counter != nil:
		return out.GetCounter().GetValue()
	}
	return float64(out.GetHistogram().GetSampleCount())
}
