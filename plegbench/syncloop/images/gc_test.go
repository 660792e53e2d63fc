package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	gocmp "github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
)

// A store is the runtime's images on a disk.
type store struct {
	Service
	mu      sync.Mutex
	images  []*runtimeapi.Image
	used    map[string]bool
	disk    uint64 // what is used apart from images
	size    uint64
	stuck   map[string]bool // cannot be removed
	removed []string
	listErr error
	usedErr error
}

func (s *store) ListImages(context.Context) ([]*runtimeapi.Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.images), s.listErr
}

func (s *store) RemoveImage(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stuck[id] {
		return errors.New("cannot remove " + id)
	}
	s.removed = append(s.removed, id)
	s.images = slices.DeleteFunc(s.images, func(i *runtimeapi.Image) bool { return i.GetId() == id })
	return nil
}

func (s *store) free(context.Context) (capacity, available uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	used := s.disk
	for _, i := range s.images {
		used += i.GetSize()
	}
	return s.size, s.size - used, nil
}

func (s *store) change(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

func sized(id string, size uint64) *runtimeapi.Image { return &runtimeapi.Image{Id: id, Size: size} }

func newGC(t *testing.T, s *store, change func(*Config)) (*Manager, *record.FakeRecorder, *[]string) {
	t.Helper()
	recorder, lines, mu := record.NewFakeRecorder(100), &[]string{}, &sync.Mutex{}
	cfg := Config{
		Service: s, InUse: func(context.Context) (map[string]bool, error) { return s.used, s.usedErr }, Disk: s.free, High: 85, Low: 80,
		MinAge: 2 * time.Minute, Period: 5 * time.Minute, NodeName: "n", Recorder: recorder, Metrics: metrics.New(prometheus.NewRegistry(), prometheus.NewRegistry()),
		Log: funcr.New(func(_, line string) { mu.Lock(); defer mu.Unlock(); *lines = append(*lines, line) }, funcr.Options{}),
	}
	if change != nil {
		change(&cfg)
	}
	return New(cfg), recorder, lines
}

// detect has a GC see the images that there are.
func detect(t *testing.T, g *Manager) {
	t.Helper()
	_, _ = g.detect(t.Context()) // which fails in some tests
}

// At 90 of 100 the longest unused go until 80 is reached; what is used, pinned or new stays.
func TestCollect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{
			size: 100, disk: 50, used: map[string]bool{"used": true, "docker.io/tagged:1": true},
			images: []*runtimeapi.Image{sized("used", 5), {Id: "tagged", RepoTags: []string{"docker.io/tagged:1"}, Size: 5}, {Id: "pinned", Size: 5, Pinned: true}, sized("was", 5), sized("b", 5), sized("a", 4)},
		}
		g, recorder, lines := newGC(t, s, nil)
		s.used["was"] = true
		detect(t, g)
		time.Sleep(time.Hour)
		delete(s.used, "was")
		if err := g.CollectNow(t.Context()); err != nil || len(s.removed) != 0 {
			t.Fatalf("at 79 %%: %v, removed %v", err, s.removed)
		}
		time.Sleep(time.Hour)
		s.images = append(s.images, sized("new", 11))
		if err := g.CollectNow(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff([]string{"a", "b", "was"}, s.removed); diff != "" {
			t.Error(diff)
		}
		want := []string{
			`"level"=0 "msg"="Disk usage on image filesystem is over the high threshold, trying to free bytes down to the low threshold" "usage"=90 "highThreshold"=85 "amountToFree"=10 "lowThreshold"=80`,
			`"level"=0 "msg"="Removing image to free bytes" "imageID"="a" "size"=4 "runtimeHandler"=""`,
			`"level"=0 "msg"="Removing image to free bytes" "imageID"="b" "size"=5 "runtimeHandler"=""`,
			`"level"=0 "msg"="Removing image to free bytes" "imageID"="was" "size"=5 "runtimeHandler"=""`,
		}
		if diff := gocmp.Diff(want, *lines); diff != "" {
			t.Error(diff)
		}
		if events := drain(recorder); events != nil {
			t.Error(events)
		}
	})
}

func TestCollectFails(t *testing.T) {
	full := func() *store {
		return &store{size: 10 << 30, disk: 9 << 30, images: []*runtimeapi.Image{sized("a", 1<<20), sized("b", 1<<20)}}
	}
	tests := []struct {
		name   string
		change func(*store, *Config)
		want   string
		events []string
	}{
		{"not enough", func(*store, *Config) {}, "Insufficient free disk space on the node's image filesystem (91% of 10.0 GiB used). " +
			"Failed to free sufficient space by deleting unused images (freed 2097152 bytes). " +
			"Investigate disk usage, as it could be used by active images, logs, volumes, or other data.", []string{"FreeDiskSpaceFailed"}},
		{
			"no removal", func(s *store, _ *Config) { s.stuck = map[string]bool{"a": true} },
			"wanted to free 1075838976 bytes, but freed 1048576 bytes space with errors in image deletion: cannot remove a", nil,
		},
		{
			"no capacity", func(_ *store, c *Config) {
				c.Disk = func(context.Context) (uint64, uint64, error) { return 0, 0, nil }
			},
			"invalid capacity 0 on image filesystem", nil,
		},
		{"no list", func(s *store, _ *Config) { s.listErr = errors.New("list") }, "list", nil},
		{"one container's status", func(s *store, _ *Config) { s.usedErr = errors.New("not found") }, "not found", nil},
		{"more free than there is", func(_ *store, c *Config) {
			c.Disk = func(context.Context) (uint64, uint64, error) { return 10, 20, nil }
		}, "", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := full()
				g, recorder, _ := newGC(t, s, func(c *Config) { tt.change(s, c) })
				detect(t, g)
				time.Sleep(time.Hour)
				got := ""
				if err := g.CollectNow(t.Context()); err != nil {
					got = err.Error()
				}
				if got != tt.want {
					t.Errorf("error %s\nwant  %s", got, tt.want)
				}
				events := drain(recorder)
				if len(events) != len(tt.events) || len(events) > 0 && !strings.HasPrefix(events[0], "Warning "+tt.events[0]+" "+tt.want) {
					t.Errorf("events %q, want %q", events, tt.events)
				}
			})
		})
	}
}

// A run collects each 5 m, reports a second failure in a row by an event, and ends with its context.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{size: 100, disk: 95, images: []*runtimeapi.Image{sized("a", 1)}}
		g, recorder, lines := newGC(t, s, nil)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- g.Run(ctx) }()
		time.Sleep(time.Second)
		if events := drain(recorder); len(events) != 1 || len(s.removed) != 1 { // FreeDiskSpaceFailed
			t.Errorf("the first failure: events %q, removed %v", events, s.removed)
		}
		time.Sleep(5 * time.Minute)
		if events := drain(recorder); len(events) != 2 || !strings.HasPrefix(events[1], "Warning ImageGCFailed Insufficient") {
			t.Errorf("the second failure: %q", events)
		}
		s.change(func() { s.disk, s.images = 0, []*runtimeapi.Image{sized("b", 1)} })
		time.Sleep(5 * time.Minute)
		if got := g.Images(); len(got) != 1 || got[0].GetId() != "b" {
			t.Errorf("images %v", got)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for _, want := range []string{"Image garbage collection failed once.", "Image garbage collection failed multiple times in a row"} {
			if !slices.ContainsFunc(*lines, func(l string) bool { return strings.Contains(l, want) }) {
				t.Errorf("no line %q in %q", want, *lines)
			}
		}
	})
}

// The choice against a plain statement of it, over random histories of a node's images.
func TestChoiceAgainstNaive(t *testing.T) {
	type history struct{ first, used int }
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			s := &store{size: 1000}
			g, _, _ := newGC(t, s, nil)
			g.settled = true
			plain := map[string]*history{}
			for minute := 1; minute < 12; minute++ {
				time.Sleep(time.Minute)
				s.images, s.used, s.removed = nil, map[string]bool{}, nil
				for i := range 8 {
					id := fmt.Sprint(i)
					if r.IntN(4) == 0 {
						delete(plain, id)
						continue
					}
					s.images = append(s.images, &runtimeapi.Image{Id: id, Size: uint64(i + 1), Pinned: i == 7})
					if plain[id] == nil {
						plain[id] = &history{first: minute}
					}
					if r.IntN(3) == 0 {
						s.used[id] = true
						plain[id].used = minute
					}
				}
				if r.IntN(4) > 0 {
					detect(t, g)
					continue
				}
				var want []string
				for id, h := range plain {
					if !s.used[id] && id != "7" && minute-h.first >= 2 {
						want = append(want, id)
					}
				}
				slices.SortFunc(want, func(a, b string) int {
					return cmp.Or(cmp.Compare(plain[a].used, plain[b].used), cmp.Compare(plain[a].first, plain[b].first), cmp.Compare(a, b))
				})
				if err := g.DeleteUnused(t.Context()); err != nil {
					t.Fatal(err)
				}
				if diff := gocmp.Diff(want, s.removed); diff != "" {
					t.Fatalf("seed %d, minute %d (-want +got):\n%s", seed, minute, diff)
				}
				for _, id := range want {
					delete(plain, id)
				}
			}
		})
	}
}
