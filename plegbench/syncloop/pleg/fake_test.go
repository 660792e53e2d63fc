package pleg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
)

var errSick = errors.New("sick")

// A fakeRuntime holds pods and takes its time.
type fakeRuntime struct {
	mu        sync.Mutex
	pods      map[types.UID]*container.Pod
	listErr   error
	statusErr map[types.UID]error
	listTakes time.Duration
	inspected []types.UID
}

// put sets the state of a container; "" removes it, and the pod with its last one.
func (f *fakeRuntime) put(uid types.UID, c string, s container.State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := &container.Pod{UID: uid, Name: string(uid), Namespace: "ns"}
	if old := f.pods[uid]; old != nil {
		next.Containers = slices.DeleteFunc(slices.Clone(old.Containers), func(have *container.Container) bool {
			return have.Name == c
		})
	}
	if s != "" {
		id := container.ID{Type: "fake", ID: c}
		next.Containers = append(next.Containers, &container.Container{ID: id, Name: c, State: s})
	}
	if f.pods[uid] = next; len(next.Containers) == 0 {
		delete(f.pods, uid)
	}
}

// lists sets what happens to the lists from now on.
func (f *fakeRuntime) lists(take time.Duration, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listTakes, f.listErr = take, err
}

func (f *fakeRuntime) GetPods(ctx context.Context, _ bool) ([]*container.Pod, error) {
	f.mu.Lock()
	takes := f.listTakes
	f.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return nil, ctx.Err()
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
	pods, err := f.GetPods(ctx, true)
	for _, p := range pods {
		if p.UID == uid {
			return p, err
		}
	}
	return nil, cmp.Or(err, errors.New("pod sandboxes not found"))
}

func (f *fakeRuntime) GetPodStatus(_ context.Context, p *container.Pod) (*container.PodStatus, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inspected = append(f.inspected, p.UID)
	if err := f.statusErr[p.UID]; err != nil {
		return nil, err
	}
	st := &container.PodStatus{UID: p.UID, Name: p.Name, Namespace: p.Namespace, TimeStamp: time.Now()}
	for _, c := range p.Containers {
		st.ContainerStatuses = append(st.ContainerStatuses,
			&container.Status{ID: c.ID, Name: c.Name, State: c.State, ExitCode: 7})
	}
	return st, nil
}

// A harness is a Generic on a fakeRuntime.
type harness struct {
	*Generic
	t       *testing.T
	runtime *fakeRuntime
	log     looptest.Log
}

func newHarness(t *testing.T, period time.Duration) *harness {
	t.Helper()
	b := &harness{t: t}
	b.runtime = &fakeRuntime{pods: map[types.UID]*container.Pod{}, statusErr: map[types.UID]error{}}
	b.Generic = NewGeneric(GenericConfig{
		Runtime: b.runtime, Cache: NewCache(), Metrics: metrics.New(nil, nil), OnDemand: true,
		Period: period, Threshold: 3 * time.Minute, Log: b.log.Logger(5),
	})
	return b
}

// sent takes all events out of the channel and compares them, sorted by pod, the order within a pod kept.
func (b *harness) sent(want ...string) {
	b.t.Helper()
	out := looptest.Drain(b.events)
	slices.SortStableFunc(out, func(a, b Event) int { return cmp.Compare(a.ID, b.ID) })
	var lines []string
	for _, e := range out {
		lines = append(lines, fmt.Sprintf("%s %s %s", e.ID, e.Type, e.Data))
	}
	looptest.Equal(b.t, "events", want, lines)
}

// inspected compares the pods that were inspected since the last time.
func (b *harness) inspected(want ...types.UID) {
	b.t.Helper()
	b.runtime.mu.Lock()
	defer b.runtime.mu.Unlock()
	slices.Sort(b.runtime.inspected)
	looptest.Equal(b.t, "inspected", want, b.runtime.inspected)
	b.runtime.inspected = nil
}

// cached compares the name of a container, or else of the pod, in the cached status of a pod: empty if there is none.
func (b *harness) cached(uid types.UID, want string) {
	b.t.Helper()
	st, err := b.Cache.Get(uid)
	looptest.Must(b.t, err)
	got := st.Name
	if len(st.ContainerStatuses) > 0 {
		got = st.ContainerStatuses[0].Name
	}
	looptest.Equal(b.t, "cached status of "+string(uid), want, got)
}
