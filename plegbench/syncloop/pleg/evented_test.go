package pleg

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
)

// A stream hands out what is put into it, and ends with each error put into it.
type stream struct {
	events chan *runtimeapi.ContainerEventResponse
	ends   chan error
	opened int
}

func (s *stream) GetContainerEvents(
	ctx context.Context, connected func(), yield func(*runtimeapi.ContainerEventResponse),
) error {
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

const (
	created = runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT
	started = runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT
	stopped = runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
	deleted = runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
)

func event(kind runtimeapi.ContainerEventType, pod, id, owner string) *runtimeapi.ContainerEventResponse {
	return &runtimeapi.ContainerEventResponse{
		ContainerId: id, ContainerEventType: kind, CreatedAt: time.Now().UnixNano(),
		PodSandboxStatus: &runtimeapi.PodSandboxStatus{
			Id: pod + "-sandbox", Metadata: &runtimeapi.PodSandboxMetadata{Uid: pod},
			Labels:      map[string]string{container.OwnerLabel: owner},
			Annotations: map[string]string{"last-applied-configuration": "hidden"},
		},
	}
}

// evented runs a test in a bubble, one second after an Evented has started.
func evented(t *testing.T, play func(*testing.T, *harness, *Evented, *stream)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newHarness(t, 5*time.Minute)
		s := &stream{events: make(chan *runtimeapi.ContainerEventResponse), ends: make(chan error)}
		e := &Evented{
			Generic: b.Generic, Stream: s, Owner: "node", FallbackPeriod: time.Second, FallbackThreshold: time.Minute,
		}
		looptest.Run(t, b.Run)
		looptest.Run(t, e.Run)
		time.Sleep(time.Second)
		play(t, b, e, s)
	})
}

func TestEventedEvents(t *testing.T) {
	for name, tt := range map[string]struct {
		event  *runtimeapi.ContainerEventResponse
		want   []string
		cached string // of the pod, at the end
		log    string
	}{
		"created": {event(created, "p", "a", "node"), nil, "a", "Received Container Created Event"},
		"started": {
			event(started, "p", "a", "node"), []string{"p ContainerStarted a"}, "a", "Received Container Started Event",
		},
		"stopped": {
			event(stopped, "p", "a", "node"), []string{"p ContainerDied a"}, "a", "Received Container Stopped Event",
		},
		"deleted": {
			event(deleted, "p", "a", "node"),
			[]string{"p ContainerDied a", "p ContainerRemoved a"},
			"",
			"Received Container Deleted Event",
		},
		"another owner's": {event(started, "p", "a", "other"), nil, "", ""},
		"gone already":    {event(started, "q", "a", "node"), nil, "", ""},
		"without sandbox": {
			&runtimeapi.ContainerEventResponse{}, nil, "", "received ContainerEventResponse with nil PodSandboxStatus",
		},
	} {
		t.Run(name, func(t *testing.T) {
			evented(t, func(t *testing.T, b *harness, _ *Evented, s *stream) {
				b.runtime.put("p", "a", container.Running)
				s.events <- tt.event
				synctest.Wait()
				b.sent(tt.want...)
				b.cached("p", tt.cached)
				testkit.Equal(t, "lines with annotations", 0, len(b.log.Lines("hidden")))
				b.log.Has(t, tt.log)
				b.Relist(t.Context())
				testkit.Equal(t, "pods that wait to be inspected after a relist", 0, b.State().Uninspected)
			})
		})
	}
}

// The last sandbox of a pod is gone, and with it the pod's status; a pod with another sandbox is inspected instead.
func TestEventedSandboxDeleted(t *testing.T) {
	evented(t, func(_ *testing.T, b *harness, _ *Evented, s *stream) {
		b.runtime.put("other", "a", container.Running)
		for uid, ids := range map[string][]string{"last": {"last-sandbox"}, "other": {"newer", "other-sandbox"}} {
			st := &container.PodStatus{Name: uid}
			for _, id := range ids {
				st.SandboxStatuses = append(st.SandboxStatuses, &runtimeapi.PodSandboxStatus{Id: id})
			}
			b.Cache.Set(types.UID(uid), st, nil, time.Now())
			s.events <- event(deleted, uid, uid+"-sandbox", "node")
		}
		synctest.Wait()
		b.cached("last", "")
		b.cached("other", "a")
	})
}

func TestEventedFallsBack(t *testing.T) {
	evented(t, func(t *testing.T, b *harness, e *Evented, s *stream) {
		start := time.Now()
		_, err := b.Cache.GetNewerThan(t.Context(), "p", start)
		testkit.Must(t, err)
		if got := time.Since(start); got != 4*time.Second { // the cache was refreshed at 0 s, and this began at 1 s
			t.Errorf("waited %v", got)
		}
		testkit.Must(t, e.Healthy())
		seen := looptest.Metric(t, b.Metrics.PLEGLastSeen).GetGauge().GetValue()
		testkit.Equal(t, "last seen", float64(time.Now().Unix()), seen)
		for i := range maxStreamLosses {
			if !b.Cache.onlyNewer.Load() {
				t.Fatalf("fell back after %d losses", i)
			}
			s.ends <- []error{errSick, nil}[i%2] // CRI-O ends without an error
			synctest.Wait()
		}
		testkit.Equal(t, "streams opened", maxStreamLosses, s.opened)
		testkit.Equal(t, "the cache takes only what is newer", false, b.Cache.onlyNewer.Load())
		before := b.State().Relists
		testkit.Equal(t, "relists at first, for each loss, and at the fall back", 1+maxStreamLosses+1, before)
		b.log.Has(t, "Fall back to Generic PLEG relisting since Evented PLEG is not working")
		time.Sleep(10*time.Second + time.Millisecond)
		testkit.Equal(t, "relists in 10 s", 10, b.State().Relists-before)
		b.runtime.lists(0, errSick)
		time.Sleep(time.Minute + 2*time.Second)
		testkit.Contains(t, "health", "threshold is 1m0s", testkit.Text(b.Healthy()))
	})
}
