package images

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
)

func sized(id string, size uint64) *runtimeapi.Image { return &runtimeapi.Image{Id: id, Size: size} }

// TestCollect removes, at 90 of 100, the longest unused images until 80 is reached. What is used, pinned or new stays.
func TestCollect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tagged := &runtimeapi.Image{Id: "tagged", RepoTags: []string{"docker.io/tagged:1"}, Size: 5}
		s := &fakeService{
			size: 100, disk: 50, used: map[string]bool{"used": true, "docker.io/tagged:1": true, "was": true},
			images: []*runtimeapi.Image{
				sized("used", 5), tagged,
				{Id: "pinned", Size: 5, Pinned: true},
				sized("was", 5), sized("b", 5), sized("a", 4),
			},
		}
		g, recorder := newManager(s, Config{})
		s.disk += 11
		err := g.CollectNow(t.Context())
		if err == nil || len(s.removed) != 0 || len(looptest.Drain(recorder.Events)) != 1 {
			t.Fatalf("at the first look, at 90 %%: %v, removed %v", err, s.removed)
		}
		s.disk -= 11
		looptest.Must(t, g.CollectNow(t.Context())) // at 79 %
		looptest.Equal(t, "removed", 0, len(s.removed))
		delete(s.used, "was")
		time.Sleep(time.Hour)
		s.images = append(s.images, sized("new", 11))
		looptest.Must(t, g.CollectNow(t.Context()))
		looptest.Equal(t, "removed", []string{"a", "b", "was"}, s.removed)
		looptest.Equal(t, "events", 0, len(looptest.Drain(recorder.Events)))
		// For an eviction all goes that is not used, but what was pulled again meanwhile is new.
		time.Sleep(time.Minute)
		again := s.images[len(s.images)-1]
		s.images[len(s.images)-1] = sized("a", 4)
		_, _ = g.detect(t.Context())
		time.Sleep(2*time.Minute - time.Second)
		s.images, s.used = append(s.images, again), map[string]bool{"docker.io/tagged:1": true}
		_, _ = g.detect(t.Context())
		s.used, s.removed = nil, nil
		s.fail = map[string]error{"used": errors.New("it is stuck")}
		err = g.DeleteUnused(t.Context())
		looptest.Contains(t, "error", "freed 5 bytes space with errors in image deletion: it is stuck", looptest.Text(err))
		looptest.Equal(t, "removed", []string{"tagged"}, s.removed)
	})
}

// TestMaxAge removes what was not used for an hour, however much space there is, once the collector has run for so
// long.
func TestMaxAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeService{
			size: 100, disk: 10, used: map[string]bool{"used": true, "was": true},
			images: []*runtimeapi.Image{
				sized("used", 1), {Id: "pinned", Pinned: true}, sized("never", 1), sized("was", 1), sized("stuck", 1),
			},
			fail: map[string]error{"stuck": errors.New("it is stuck")},
		}
		g, _ := newManager(s, Config{MaxAge: time.Hour})
		g.High = 100
		const stuck = "wanted to free images older than 1h0m0s, encountered errors in image deletion: it is stuck"
		for i, step := range []struct {
			after     time.Duration
			err       string
			removed   []string
			unusedNow string
		}{
			{0, "", nil, ""},
			{time.Hour, "", nil, "was"},
			{time.Minute, stuck, []string{"never"}, ""},
			{time.Hour, stuck, []string{"never", "was"}, ""},
		} {
			time.Sleep(step.after)
			looptest.Equal(t, fmt.Sprint("error of step ", i), step.err, looptest.Text(g.CollectNow(t.Context())))
			looptest.Equal(t, fmt.Sprint("removed at step ", i), step.removed, s.removed)
			delete(s.used, step.unusedNow)
		}
	})
}
