package images

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A registry is the runtime's image service with what it may pull.
type registry struct {
	Service
	mu      sync.Mutex
	present map[string]*runtimeapi.Image
	inspect error
	pull    func(ctx context.Context, image string) error
	pulls   []string
	running int
	most    int
}

func (r *registry) ImageStatus(_ context.Context, image string) (*runtimeapi.Image, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.present[image], r.inspect
}

func (r *registry) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, _ *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	r.mu.Lock()
	r.pulls = append(r.pulls, image.GetImage())
	r.running++
	r.most = max(r.most, r.running)
	r.mu.Unlock()
	var err error
	if r.pull != nil {
		err = r.pull(ctx, image.GetImage())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running--
	if err != nil {
		return "", err
	}
	r.present[image.GetImage()] = &runtimeapi.Image{Id: "sha256:" + image.GetImage(), Size: 20 << 20}
	return "sha256:" + image.GetImage(), nil
}

func newRegistry(present ...string) *registry {
	r := &registry{present: map[string]*runtimeapi.Image{}}
	for _, image := range present {
		r.present[image] = &runtimeapi.Image{Id: "sha256:" + image, Size: 1}
	}
	return r
}

func newManager(r *registry, change func(*Config)) (*Manager, *record.FakeRecorder) {
	recorder := record.NewFakeRecorder(1000)
	cfg := Config{Service: r, Recorder: recorder, Log: logr.Discard(), BackOff: 10 * time.Second, MaxBackOff: 5 * time.Minute}
	if change != nil {
		change(&cfg)
	}
	return New(cfg), recorder
}

func drain(recorder *record.FakeRecorder) []string {
	var events []string
	for len(recorder.Events) > 0 {
		events = append(events, <-recorder.Events)
	}
	return events
}

func testPod(uid string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p" + uid, UID: types.UID(uid)}}
}

func TestEnsureImage(t *testing.T) {
	refused := errors.New("no such image")
	tests := []struct {
		name    string
		c       v1.Container
		inspect error
		pull    error
		want    []string // ref, reason, message
		pulls   []string
		events  []string
	}{
		{
			name: "present", c: v1.Container{Image: "here:1"}, want: []string{"sha256:here:1", "", ""},
			events: []string{`Normal Pulled Container image "here:1" already present on machine and can be accessed by the pod`},
		},
		{
			name: "absent", c: v1.Container{Image: "x:1"}, want: []string{"sha256:x:1", "", ""}, pulls: []string{"x:1"},
			events: []string{`Normal Pulling Pulling image "x:1"`, `Normal Pulled Successfully pulled image "x:1" in 2s, including waiting.`},
		},
		{
			name: "always", c: v1.Container{Image: "here", ImagePullPolicy: v1.PullAlways}, want: []string{"sha256:here:latest", "", ""}, pulls: []string{"here:latest"},
			events: []string{`Normal Pulling Pulling image "here"`, `Normal Pulled Successfully pulled image "here" in 2s, including waiting.`},
		},
		{
			name: "never", c: v1.Container{Image: "x:1", ImagePullPolicy: v1.PullNever},
			want:   []string{"", "ErrImageNeverPull", `Container image "x:1" is not present with pull policy of Never`},
			events: []string{`Warning ErrImageNeverPull Container image "x:1" is not present with pull policy of Never`},
		},
		{
			name: "never but present", c: v1.Container{Image: "here:1", ImagePullPolicy: v1.PullNever}, want: []string{"sha256:here:1", "", ""},
			events: []string{`Normal Pulled Container image "here:1" already present on machine and can be accessed by the pod`},
		},
		{
			name: "invalid", c: v1.Container{Image: "X Y"},
			want:   []string{"", "InvalidImageName", `Failed to apply default image tag "X Y": couldn't parse image name "X Y": invalid reference format`},
			events: []string{`Warning InspectFailed Failed to apply default image tag "X Y": couldn't parse image name "X Y": invalid reference format`},
		},
		{
			name: "cannot look", c: v1.Container{Image: "x:1"}, inspect: errors.New("down"),
			want:   []string{"", "ImageInspectError", `Failed to inspect image "x:1": down`},
			events: []string{`Warning InspectFailed Failed to inspect image "x:1": down`},
		},
		{
			name: "pull fails", c: v1.Container{Image: "x:1"}, pull: refused, pulls: []string{"x:1"},
			want:   []string{"", "ErrImagePull", "no such image"},
			events: []string{`Normal Pulling Pulling image "x:1"`, `Warning Failed Failed to pull image "x:1": no such image`},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry("here:1", "here:latest")
				r.inspect = tt.inspect
				r.pull = func(context.Context, string) error { time.Sleep(2 * time.Second); return tt.pull }
				m, recorder := newManager(r, nil)
				ref, message, reason := m.EnsureImage(t.Context(), testPod("1"), &tt.c, nil)
				got := []string{ref, "", message}
				if reason != nil {
					got[1] = reason.Error()
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Error(diff)
				}
				if diff := cmp.Diff(tt.pulls, r.pulls); diff != "" {
					t.Error(diff)
				}
				if diff := cmp.Diff(tt.events, drain(recorder)); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// A sync each second meets the pulls at 0, 10, 30, 70, 150, 310 and from then on every 300 s; each pod and image by
// itself.
func TestBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry()
		r.pull = func(context.Context, string) error { return errors.New("no") }
		m, recorder := newManager(r, nil)
		start, pulled := time.Now(), []int{}
		for second := range 1000 {
			before := len(r.pulls)
			_, message, reason := m.EnsureImage(t.Context(), testPod("1"), &v1.Container{Image: "x:1"}, nil)
			switch {
			case len(r.pulls) > before:
				pulled = append(pulled, int(time.Since(start).Seconds()))
			case !errors.Is(reason, ErrImagePullBackOff) || message != `Back-off pulling image "x:1"`:
				t.Fatalf("after %d s: %v: %s", second, reason, message)
			case !slices.Contains(drain(recorder), `Normal BackOff Back-off pulling image "x:1"`):
				t.Fatalf("no event of back-off after %d s", second)
			}
			drain(recorder)
			time.Sleep(time.Second)
		}
		if diff := cmp.Diff([]int{0, 10, 30, 70, 150, 310, 610, 910}, pulled); diff != "" {
			t.Error(diff)
		}
		if _, _, reason := m.EnsureImage(t.Context(), testPod("2"), &v1.Container{Image: "x:1"}, nil); !errors.Is(reason, ErrImagePull) {
			t.Errorf("another pod is held back: %v", reason)
		}
	})
}

func TestParallelPulls(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Config)
		most   int
	}{
		"limited":   {func(c *Config) { c.QPS, c.Burst = 1, 2 }, 2},
		"serial":    {func(c *Config) { c.Serialize, c.MaxParallel = true, 3 }, 1},
		"bounded":   {func(c *Config) { c.MaxParallel = 3 }, 3},
		"unbounded": {nil, 20},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry()
				r.pull = func(context.Context, string) error { time.Sleep(time.Minute); return nil }
				m, _ := newManager(r, tt.change)
				var wg sync.WaitGroup
				for i := range 20 {
					wg.Go(func() {
						if _, message, reason := m.EnsureImage(t.Context(), testPod(string(rune('a'+i))), &v1.Container{Image: "x"}, nil); reason != nil && message != "pull QPS exceeded" {
							t.Error(reason, message)
						}
					})
				}
				wg.Wait()
				if r.most != tt.most || name != "limited" && len(r.pulls) != 20 {
					t.Errorf("%d pulls, %d at a time, want %d", len(r.pulls), r.most, tt.most)
				}
			})
		})
	}
}

// One pull that hangs stops all that come later, in the serial queue, until its pod's worker is told to give up.
func TestStuckPullBlocksLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry()
		r.pull = func(ctx context.Context, image string) error {
			if image == "stuck:1" {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		m, _ := newManager(r, func(c *Config) { c.Serialize = true })
		stuck, cancel := context.WithCancel(t.Context())
		waiting, giveUp := context.WithCancel(t.Context())
		var ended []string
		var mu sync.Mutex
		pull := func(ctx context.Context, image string) {
			_, _, reason := m.EnsureImage(ctx, testPod(image), &v1.Container{Image: image}, nil)
			mu.Lock()
			defer mu.Unlock()
			text := image
			if reason != nil {
				text += " " + reason.Error()
			}
			ended = append(ended, text)
		}
		go pull(stuck, "stuck:1")
		synctest.Wait()
		for _, image := range []string{"b:1", "c:1"} {
			go pull(t.Context(), image)
			synctest.Wait()
		}
		go pull(waiting, "d:1")
		time.Sleep(time.Hour)
		if len(ended) != 0 || len(r.pulls) != 1 {
			t.Errorf("ended %v, pulls %v while one hangs", ended, r.pulls)
		}
		giveUp()
		synctest.Wait()
		cancel()
		synctest.Wait()
		if diff := cmp.Diff([]string{"stuck:1", "b:1", "c:1"}, r.pulls); diff != "" {
			t.Error(diff)
		}
		if ended[0] != "d:1 ErrImagePull" || len(ended) != 4 {
			t.Errorf("ended: %v", ended)
		}
	})
}

const digest = "sha256:" + "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestWithTag(t *testing.T) {
	for image, want := range map[string]string{
		"busybox": "busybox:latest", "busybox:1": "busybox:1", "busybox@" + digest: "busybox@" + digest, "a/b": "a/b:latest", "localhost/b": "localhost/b:latest",
		"registry.k8s.io/pause:3.6": "registry.k8s.io/pause:3.6", "127.0.0.1:5000/x/y:v_1@" + digest: "127.0.0.1:5000/x/y:v_1@" + digest,
		"[::1]:5000/x:1": "[::1]:5000/x:1", "HOST/x:1": "HOST/x:1", "a__b/c--d.e": "a__b/c--d.e:latest",
	} {
		if got, err := withTag(image); err != nil || got != want {
			t.Errorf("withTag(%q) = %q, %v", image, got, err)
		}
	}
	for _, bad := range []string{
		"", "Busybox", "a/B", "busybox:", ":1", "a b", "a//b", "a/", "/a", "busybox@sha256:12", "x:" + strings.Repeat("t", 129), "https://a/b", "a___b",
	} {
		if got, err := withTag(bad); err == nil {
			t.Errorf("withTag(%q) = %q without an error", bad, got)
		}
	}
}

// A name that is accepted gives one that is accepted again and does not change.
func FuzzWithTag(f *testing.F) {
	for _, s := range []string{"busybox", "a/b:1", "h:5/x@" + digest, "[::1]:5000/x:1", "index.docker.io/b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, image string) {
		name, err := withTag(image)
		if err != nil {
			return
		}
		if again, err := withTag(name); err != nil || again != name || !strings.HasPrefix(name, image) {
			t.Errorf("withTag(%q) = %q, again %q, %v", image, name, again, err)
		}
	})
}
