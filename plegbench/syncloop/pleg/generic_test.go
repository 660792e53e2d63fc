package pleg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
)

func TestRelistSendsEventsAndInspectsWhatChanged(t *testing.T) {
	b := newHarness(t, time.Second)
	b.runtime.put("p", "a", container.Running)
	b.runtime.put("q", "c", container.Created)
	b.runtime.put("r", "d", container.Running)
	b.runtime.put("s", "e", container.Exited) // began and ended between two relists
	b.Relist(t.Context())
	b.sent("p ContainerStarted a", "r ContainerStarted d", "s ContainerDied e") // created is inspected without an event
	b.inspected("p", "q", "r", "s")
	b.runtime.put("q", "c", container.Unknown) // which created is to PLEG, too
	b.Relist(t.Context())
	b.sent()
	b.inspected()
	b.runtime.put("p", "a", container.Exited)
	b.Relist(t.Context())
	b.sent("p ContainerDied a")
	b.log.Has(t, `"level"=2 "msg"="Generic (PLEG): container finished" "podID"="p" "containerID"="a" "exitCode"=7`)
	b.runtime.put("p", "a", "")
	b.runtime.put("q", "c", "")
	b.runtime.put("r", "d", container.Unknown)
	b.runtime.put("s", "e", container.Running)
	b.Relist(t.Context())
	b.sent("p ContainerRemoved a", "q ContainerDied c", "q ContainerRemoved c", "s ContainerStarted e")
	b.inspected("p", "r", "s")
	b.cached("p", "")
	testkit.Equal(t, "records", 2, len(b.records))
}

// A pod cannot be inspected: its error is cached, its events wait, the others go on.
func TestFailedInspectionFreezesRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t, time.Second)
		b.runtime.put("sick", "a", container.Running)
		b.runtime.put("well", "b", container.Running)
		b.runtime.statusErr["sick"] = errSick
		before := time.Now()
		time.Sleep(time.Second)
		for range 2 {
			b.Relist(t.Context())
		}
		b.sent("well ContainerStarted b")
		if _, err := b.Cache.GetNewerThan(t.Context(), "sick", before); !errors.Is(err, errSick) {
			t.Errorf("cached error: %v", err)
		}
		_, err := b.Cache.GetNewerThan(t.Context(), "unknown", before)
		testkit.Must(t, err)
		if n, err := b.State().Uninspected, b.Healthy(); n != 1 || err != nil { // one pod's failure is not PLEG's
			t.Errorf("%d uninspected, %v", n, err)
		}
		b.runtime.put("sick", "a", container.Exited) // it ran and died: only the death is sent
		delete(b.runtime.statusErr, "sick")
		b.Relist(t.Context())
		b.sent("sick ContainerDied a")
		b.RequestReinspect("well")
		b.Relist(t.Context())
		b.sent("well PodSync ")
	})
}

func TestFullChannelLosesEvents(t *testing.T) {
	b := newHarness(t, time.Second)
	for i := range eventCapacity + 1 {
		b.runtime.put("p", fmt.Sprint(i), container.Running)
	}
	b.Relist(t.Context())
	n := b.State()
	testkit.Equal(t, "events that wait, and that were discarded", []int{eventCapacity, 1}, []int{n.Queued, n.Discarded})
	b.log.Has(t, `"msg"="Event channel is full, discard this relist() cycle event"`)
	if err := (&Evented{Generic: b.Generic}).Healthy(); err == nil {
		t.Error("evented PLEG is healthy with a full channel")
	}
	for range eventCapacity {
		<-b.events
	}
	b.Relist(t.Context())
	b.sent() // a lost event does not come back
}

func TestCacheNewerThan(t *testing.T) {
	at := func(s int64) time.Time {
		if s == 0 {
			return time.Time{}
		}
		return time.Unix(s, 0)
	}
	type steps []func(*Cache)
	set := func(uid types.UID, s int64) func(*Cache) {
		return func(c *Cache) { c.Set(uid, &container.PodStatus{UID: uid}, nil, at(s)) }
	}
	relisted := func(s int64) func(*Cache) { return func(c *Cache) { c.UpdateTime(at(s)) } }
	observed := func(s int64) func(*Cache) { return func(c *Cache) { c.SetObservedTime("p", at(s)) } }
	gone := func(c *Cache) { c.Delete("p") }
	for name, tt := range map[string]struct {
		before steps
		wanted int64 // 0: the first sync
		after  steps // nil: it must not block
		blocks bool  // even after after
	}{
		"first sync, nothing relisted":   {nil, 0, steps{}, true},
		"first sync, no entry, relisted": {steps{relisted(1)}, 0, nil, false},
		"equal does not pass at once":    {steps{relisted(5)}, 5, steps{}, true},
		"equal wakes by relist":          {nil, 5, steps{relisted(5)}, false},
		"equal wakes by observation":     {nil, 5, steps{observed(5)}, false},
		"older does not wake":            {nil, 5, steps{set("p", 4), relisted(4)}, true},
		"Delete does not wake":           {steps{set("p", 1)}, 5, steps{gone}, true},
		"observed after":                 {steps{set("p", 1), observed(6)}, 5, nil, false},
	} {
		testkit.Bubble(t, name, func(t *testing.T) {
			c := NewCache()
			for _, f := range tt.before {
				f(c)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				_, err := c.GetNewerThan(ctx, "p", at(tt.wanted))
				done <- err
			}()
			synctest.Wait()
			testkit.Equal(t, "blocks at first", tt.after != nil, len(done) == 0)
			for _, f := range tt.after {
				f(c)
			}
			synctest.Wait()
			cancel()
			if err := <-done; tt.blocks != errors.Is(err, context.Canceled) {
				t.Errorf("blocks at the end: %v, want %v", err, tt.blocks)
			}
		})
	}
}

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
	return slices.Collect(maps.Values(f.pods)), f.listErr
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
	testkit.Equal(b.t, "events", want, lines)
}

// inspected compares the pods that were inspected since the last time.
func (b *harness) inspected(want ...types.UID) {
	b.t.Helper()
	b.runtime.mu.Lock()
	defer b.runtime.mu.Unlock()
	slices.Sort(b.runtime.inspected)
	testkit.Equal(b.t, "inspected", want, b.runtime.inspected)
	b.runtime.inspected = nil
}

// cached compares the name of a container, or else of the pod, in the cached status of a pod: empty if there is none.
func (b *harness) cached(uid types.UID, want string) {
	b.t.Helper()
	st, err := b.Cache.Get(uid)
	testkit.Must(b.t, err)
	got := st.Name
	if len(st.ContainerStatuses) > 0 {
		got = st.ContainerStatuses[0].Name
	}
	testkit.Equal(b.t, "cached status of "+string(uid), want, got)
}
