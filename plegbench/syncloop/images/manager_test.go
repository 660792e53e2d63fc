package images

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

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
)

// A fakeService is the runtime's images on a disk, and what it may pull.
type fakeService struct {
	mu      sync.Mutex
	images  []*runtimeapi.Image
	used    map[string]bool
	disk    uint64 // what is used apart from images
	size    uint64
	removed []string
	fail    map[string]error // of the removal of an image by its id

	pull          func(ctx context.Context, image string) error
	pullAs        func(auth *runtimeapi.AuthConfig) error // in place of pull, unless nil
	pulls         []string
	running, most int
}

func (s *fakeService) ListImages(context.Context) ([]*runtimeapi.Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.images), nil
}

func (s *fakeService) RemoveImage(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail[id] == nil {
		s.removed = append(s.removed, id)
		s.images = slices.DeleteFunc(s.images, func(i *runtimeapi.Image) bool { return i.GetId() == id })
	}
	return s.fail[id]
}

// ImageStatus has the images of the repository here.
func (s *fakeService) ImageStatus(_ context.Context, image string) (*runtimeapi.Image, error) {
	if strings.HasPrefix(image, "here:") {
		return &runtimeapi.Image{Id: "sha256:" + image}, nil
	}
	return nil, nil
}

func (s *fakeService) PullImage(
	ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig,
) (string, error) {
	if s.pullAs != nil {
		return "sha256:" + image.GetImage(), s.pullAs(auth)
	}
	s.mu.Lock()
	s.pulls = append(s.pulls, image.GetImage())
	s.running++
	s.most = max(s.most, s.running)
	s.mu.Unlock()
	err := s.pull(ctx, image.GetImage())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	return "sha256:" + image.GetImage(), err
}

func (s *fakeService) free(context.Context) (capacity, available uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	used := s.disk
	for _, i := range s.images {
		used += i.GetSize()
	}
	return s.size, s.size - used, nil
}

// newManager makes a Manager; the limits of pulls are those of cfg.
func newManager(s *fakeService, cfg Config) (*Manager, *record.FakeRecorder) {
	recorder := record.NewFakeRecorder(1000)
	cfg.Service, cfg.Recorder, cfg.Log, cfg.NodeName, cfg.Disk = s, recorder, logr.Discard(), "n", s.free
	cfg.BackOff, cfg.MaxBackOff = 10*time.Second, 5*time.Minute
	cfg.High, cfg.Low, cfg.MinAge, cfg.Period = 85, 80, 2*time.Minute, 5*time.Minute
	cfg.InUse = func(context.Context) (map[string]bool, error) { return s.used, nil }
	cfg.Metrics = metrics.New(prometheus.NewRegistry(), prometheus.NewRegistry())
	return New(cfg), recorder
}

func TestEnsureImage(t *testing.T) {
	const (
		present = `Normal Pulled Container image "here:1" already present on machine and can be accessed by the pod`
		absent  = `Container image "x:1" is not present with pull policy of Never`
		invalid = `Failed to apply default image tag "X Y": couldn't parse image name "X Y": invalid reference format`
	)
	for name, tt := range map[string]struct {
		image, policy string
		pull          error
		want          string // ref, reason, message
		events        []string
	}{
		"present": {image: "here:1", want: "sha256:here:1  ", events: []string{present}},
		"always": {
			image: "here", policy: "Always", want: "sha256:here:latest  ", events: []string{
				`Normal Pulling Pulling image "here"`,
				`Normal Pulled Successfully pulled image "here" in 2s, including waiting.`,
			},
		},
		"never": {
			image: "x:1", policy: "Never", want: " ErrImageNeverPull " + absent,
			events: []string{"Warning ErrImageNeverPull " + absent},
		},
		"invalid": {
			image: "X Y", want: " InvalidImageName " + invalid, events: []string{"Warning InspectFailed " + invalid},
		},
		"pull fails": {
			image: "x:1", pull: errors.New("no such image"), want: " ErrImagePull no such image", events: []string{
				`Normal Pulling Pulling image "x:1"`, `Warning Failed Failed to pull image "x:1": no such image`,
			},
		},
	} {
		testkit.Bubble(t, name, func(t *testing.T) {
			s := &fakeService{}
			s.pull = func(context.Context, string) error {
				time.Sleep(2 * time.Second)
				return tt.pull
			}
			m, recorder := newManager(s, Config{})
			c := &v1.Container{Image: tt.image, ImagePullPolicy: v1.PullPolicy(tt.policy)}
			ref, message, reason := m.EnsureImage(t.Context(), looptest.Pod("1"), c, nil)
			got := ref + "  " + message
			if reason != nil {
				got = ref + " " + reason.Error() + " " + message
			}
			testkit.Equal(t, "reference, reason and message", tt.want, got)
			testkit.Equal(t, "events", tt.events, looptest.Drain(recorder.Events))
		})
	}
}

func TestParallelPulls(t *testing.T) {
	for name, tt := range map[string]struct {
		config      Config
		most, pulls int
	}{
		"limited":   {Config{QPS: 1, Burst: 2}, 2, 2},
		"serial":    {Config{Serialize: true, MaxParallel: 3}, 1, 20},
		"unbounded": {Config{}, 20, 20},
	} {
		testkit.Bubble(t, name, func(t *testing.T) {
			r := &fakeService{pull: func(context.Context, string) error { time.Sleep(time.Minute); return nil }}
			m, _ := newManager(r, tt.config)
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					c := &v1.Container{Image: "x"}
					_, _, _ = m.EnsureImage(t.Context(), looptest.Pod(fmt.Sprint(i)), c, nil)
				})
			}
			wg.Wait()
			testkit.Equal(t, "pulls, and at a time", []int{tt.pulls, tt.most}, []int{len(r.pulls), r.most})
		})
	}
}

const digest = "sha256:" + "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

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
		testkit.Must(t, g.CollectNow(t.Context())) // at 79 %
		testkit.Equal(t, "removed", 0, len(s.removed))
		delete(s.used, "was")
		time.Sleep(time.Hour)
		s.images = append(s.images, sized("new", 11))
		testkit.Must(t, g.CollectNow(t.Context()))
		testkit.Equal(t, "removed", []string{"a", "b", "was"}, s.removed)
		testkit.Equal(t, "events", 0, len(looptest.Drain(recorder.Events)))
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
		testkit.Contains(t, "error", "freed 5 bytes space with errors in image deletion: it is stuck", testkit.Text(err))
		testkit.Equal(t, "removed", []string{"tagged"}, s.removed)
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
			testkit.Equal(t, fmt.Sprint("error of step ", i), step.err, testkit.Text(g.CollectNow(t.Context())))
			testkit.Equal(t, fmt.Sprint("removed at step ", i), step.removed, s.removed)
			delete(s.used, step.unusedNow)
		}
	})
}
