package pleg

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// A stream hands out what is put into it, and ends with each error put into it.
type stream struct {
	events chan *runtimeapi.ContainerEventResponse
	ends   chan error
	opened int
}

func newStream() *stream {
	return &stream{events: make(chan *runtimeapi.ContainerEventResponse), ends: make(chan error)}
}

func (s *stream) GetContainerEvents(ctx context.Context, connected func(), yield func(*runtimeapi.ContainerEventResponse)) error {
	s.opened++
	connected()
	for {
		select {
		case e := <-s.events:
			yield(e)
		case err := <-s.ends:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func event(kind runtimeapi.ContainerEventType, pod, id, owner string) *runtimeapi.ContainerEventResponse {
	return &runtimeapi.ContainerEventResponse{
		ContainerId: id, ContainerEventType: kind, CreatedAt: time.Now().UnixNano(),
		PodSandboxStatus: &runtimeapi.PodSandboxStatus{
			Id: pod + "-sandbox", Metadata: &runtimeapi.PodSandboxMetadata{Uid: pod},
			Labels: map[string]string{container.OwnerLabel: owner}, Annotations: map[string]string{"last-applied-configuration": "hidden"},
		},
	}
}

func eventedBench(t *testing.T) (*bench, *Evented, *stream) {
	t.Helper()
	b := newBench(t, func(c *GenericConfig) { c.Period, c.Threshold = 5*time.Minute, 10*time.Minute })
	s := newStream()
	e := NewEvented(EventedConfig{Generic: b.Generic, Stream: s, Log: b.log.logger(), Owner: "node", FallbackPeriod: time.Second, FallbackThreshold: 3 * time.Minute})
	b.start(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
	time.Sleep(time.Second)
	return b, e, s
}

func TestEventedEvents(t *testing.T) {
	const (
		created = runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT
		started = runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT
		stopped = runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
		deleted = runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
	)
	tests := map[string]struct {
		event  *runtimeapi.ContainerEventResponse
		want   []string
		cached bool // the pod's status, at the end
		log    string
	}{
		"created":         {event(created, "p", "a", "node"), nil, true, "Received Container Created Event"},
		"started":         {event(started, "p", "a", "node"), []string{"p ContainerStarted a"}, true, "Received Container Started Event"},
		"stopped":         {event(stopped, "p", "a", "node"), []string{"p ContainerDied a"}, true, "Received Container Stopped Event"},
		"deleted":         {event(deleted, "p", "a", "node"), []string{"p ContainerDied a", "p ContainerRemoved a"}, false, "Received Container Deleted Event"},
		"somebody else's": {event(started, "p", "a", "other"), nil, false, ""},
		"gone already":    {event(started, "q", "a", "node"), nil, false, ""},
		"without sandbox": {&runtimeapi.ContainerEventResponse{}, nil, false, "received ContainerEventResponse with nil PodSandboxStatus"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, _, s := eventedBench(t)
				b.runtime.put("p", "a", container.Running)
				s.events <- tt.event
				synctest.Wait()
				if diff := cmp.Diff(tt.want, b.sent()); diff != "" {
					t.Error(diff)
				}
				if st, err := b.cache.Get("p"); err != nil || (st.Find("a") != nil) != tt.cached {
					t.Errorf("cached %v %v", st, err)
				}
				if lines := strings.Join(b.log.take(), "\n"); !strings.Contains(lines, tt.log) || strings.Contains(lines, "hidden") {
					t.Errorf("no %q in\n%s", tt.log, lines)
				}
			})
		})
	}
}

func TestEventedSandboxDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, s := eventedBench(t)
		now := time.Now()
		for _, uid := range []string{"last", "other"} {
			b.runtime.put("other", "a", container.Running)
			b.cache.Set("last", &container.PodStatus{Name: "x", SandboxStatuses: []*runtimeapi.PodSandboxStatus{{Id: "last-sandbox"}}}, nil, now)
			b.cache.Set("other", &container.PodStatus{Name: "x", SandboxStatuses: []*runtimeapi.PodSandboxStatus{{Id: "newer"}, {Id: "other-sandbox"}}}, nil, now)
			s.events <- event(runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, uid, uid+"-sandbox", "node")
		}
		synctest.Wait()
		if st, err := b.cache.Get("last"); err != nil || st.Name != "" {
			t.Errorf("the pod without a sandbox is still there: %v %v", st, err)
		}
		if st, err := b.cache.Get("other"); err != nil || st.Find("a") == nil {
			t.Errorf("the pod with another sandbox was not inspected: %v %v", st, err)
		}
	})
}

// A relist that began before an event and inspects after it has the newer status; one that inspected before it has not.
func TestEventedAndRelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, _ := eventedBench(t)
		b.sent()
		b.runtime.put("p", "a", container.Running)
		b.runtime.set(func(f *fakeRuntime) { f.listTakes = 10 * time.Second })
		go b.Relist(t.Context())
		time.Sleep(5 * time.Second)
		b.cache.Set("p", &container.PodStatus{Name: "of the event"}, nil, time.Now())
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if s, err := b.cache.Get("p"); err != nil || s.Find("a") == nil {
			t.Errorf("the relist's status was refused: %v %v", s, err)
		}
		b.sent()
		b.cache.Set("p", &container.PodStatus{Name: "of the event"}, nil, time.Now().Add(time.Hour))
		b.runtime.put("p", "a", container.Exited)
		b.Relist(t.Context())
		if s, err := b.cache.Get("p"); err != nil || s.Name != "of the event" || b.sent() != nil {
			t.Errorf("older than the event's, and yet taken: %v %v", s, err)
		}
	})
}

func TestEventedKeepsTheCacheFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, e, _ := eventedBench(t)
		start := time.Now()
		if _, err := b.cache.GetNewerThan(t.Context(), "p", start); err != nil {
			t.Fatal(err)
		}
		if got := time.Since(start); got != 4*time.Second { // refreshed at 0 s, and this began at 1 s
			t.Errorf("waited %v", got)
		}
		if err := e.Healthy(); err != nil {
			t.Error(err)
		}
		if got := value(t, b.metrics.PLEGLastSeen); got != float64(time.Now().Unix()) {
			t.Errorf("last seen %v", got)
		}
	})
}

func TestEventedFallsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, s := eventedBench(t)
		for i := range maxStreamLosses {
			if !b.cache.onlyNewer.Load() {
				t.Fatalf("given up after %d losses", i)
			}
			s.ends <- []error{errSick, nil}[i%2] // CRI-O ends without an error
			synctest.Wait()
		}
		if s.opened != maxStreamLosses || b.cache.onlyNewer.Load() {
			t.Errorf("opened %d, cache takes only what is newer %v", s.opened, b.cache.onlyNewer.Load())
		}
		if got := b.Snapshot().Relists; got != 1+maxStreamLosses+1 {
			t.Errorf("%d relists: want the first, one for each loss, and one at the fall back", got)
		}
		if got := value(t, b.metrics.EventedPLEGErrors); got != maxStreamLosses {
			t.Errorf("%v errors", got)
		}
		if lines := strings.Join(b.log.take(), "\n"); !strings.Contains(lines, "Fall back to Generic PLEG relisting since Evented PLEG is not working") {
			t.Error(lines)
		}
		before := b.Snapshot().Relists
		time.Sleep(10*time.Second + time.Millisecond)
		if got := b.Snapshot().Relists - before; got != 10 {
			t.Errorf("%d relists in 10 s", got)
		}
		b.runtime.set(func(f *fakeRuntime) { f.listErr = errSick })
		time.Sleep(3*time.Minute + 2*time.Second)
		if err := b.Healthy(); err == nil || !strings.HasSuffix(err.Error(), "threshold is 3m0s") {
			t.Error(err)
		}
	})
}
