package gc

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	gocmp "github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
)

// A runtime holds containers and sandboxes, and fails on what it is told to.
type runtime struct {
	mu         sync.Mutex
	containers []*runtimeapi.Container
	sandboxes  []*runtimeapi.PodSandbox
	logs       map[string]string // by container id
	fail       map[string]bool   // calls, as they are in calls
	calls      []string
	takes      time.Duration // of ContainerStatus
}

func (r *runtime) call(parts ...string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	call := strings.Join(parts, " ")
	r.calls = append(r.calls, call)
	if r.fail[call] {
		return errors.New("refused: " + call)
	}
	return nil
}

func (r *runtime) ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	err := r.call("ListContainers")
	return slices.Clone(r.containers), err
}

func (r *runtime) ListPodSandbox(context.Context, *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	err := r.call("ListPodSandbox")
	return slices.Clone(r.sandboxes), err
}

func (r *runtime) ContainerStatus(_ context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	if err := r.call("ContainerStatus", id); err != nil {
		return nil, err
	}
	time.Sleep(r.takes)
	i := slices.IndexFunc(r.containers, func(c *runtimeapi.Container) bool { return c.Id == id })
	if i < 0 {
		return nil, errors.New("not found: " + id)
	}
	return &runtimeapi.ContainerStatus{Id: id, State: r.containers[i].State, Labels: r.containers[i].Labels, LogPath: r.logs[id]}, nil
}

func (r *runtime) StopContainer(_ context.Context, id string, grace time.Duration) error {
	return r.call("StopContainer", id, grace.String())
}

func (r *runtime) RemoveContainer(_ context.Context, id string) error {
	if err := r.call("RemoveContainer", id); err != nil {
		return err
	}
	r.containers = slices.DeleteFunc(r.containers, func(c *runtimeapi.Container) bool { return c.Id == id })
	return nil
}

func (r *runtime) StopPodSandbox(_ context.Context, id string) error {
	return r.call("StopPodSandbox", id)
}

func (r *runtime) RemovePodSandbox(_ context.Context, id string) error {
	return r.call("RemovePodSandbox", id)
}

// pods are the UIDs of pods that may lose all, and of those that have merely terminated.
type pods struct{ gone, terminated []string }

func (p pods) ShouldPodContentBeRemoved(uid types.UID) bool {
	return slices.Contains(p.gone, string(uid))
}

func (p pods) ShouldPodRuntimeBeRemoved(uid types.UID) bool {
	return slices.Contains(p.terminated, string(uid))
}

func collector(r *runtime, p pods, change func(*Config)) (*Collector, *record.FakeRecorder, func() []string) {
	recorder := record.NewFakeRecorder(100)
	var mu sync.Mutex
	var lines []string
	cfg := Config{
		CRI: r, Pods: p, Keep: 1, LogDir: "/nonexistent", SourcesReady: func() bool { return true }, NodeName: "n", Period: time.Minute, Recorder: recorder,
		Metrics: metrics.New(prometheus.NewRegistry(), prometheus.NewRegistry()),
		Log:     funcr.New(func(_, line string) { mu.Lock(); defer mu.Unlock(); lines = append(lines, line) }, funcr.Options{}),
	}
	if change != nil {
		change(&cfg)
	}
	return New(cfg), recorder, func() []string { mu.Lock(); defer mu.Unlock(); return slices.Clone(lines) }
}

func foreign(c *runtimeapi.Container) *runtimeapi.Container {
	c.Labels[container.OwnerLabel] = "other"
	return c
}

// A pass removes one at a time, in the order of the kubelet's calls, and only what is this node's.
func TestCollect(t *testing.T) {
	strange := sandbox("x1", "x", false, 1)
	strange.Labels = nil
	r := &runtime{
		containers: []*runtimeapi.Container{
			listed("a1", "p", "a", exited, 1), listed("a0", "p", "a", exited, 0), listed("g0", "gone", "a", exited, 0),
			foreign(listed("f1", "gone", "f", exited, 1)), foreign(listed("f0", "gone", "f", exited, 0)),
		},
		sandboxes: []*runtimeapi.PodSandbox{sandbox("s-p", "p", true, 3), sandbox("old", "p", false, 1), sandbox("s-gone", "gone", false, 1), sandbox("g2", "gone", false, 2), strange},
	}
	c, _, lines := collector(r, pods{gone: []string{"gone", "x"}}, nil)
	if err := c.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"ListContainers", "ContainerStatus g0", "ContainerStatus g0", "RemoveContainer g0", "ContainerStatus a0", "ContainerStatus a0", "RemoveContainer a0",
		"ListContainers", "ListPodSandbox", "StopPodSandbox old", "RemovePodSandbox old", "StopPodSandbox g2", "RemovePodSandbox g2",
	}
	if diff := gocmp.Diff(want, r.calls); diff != "" {
		t.Error(diff) // s-gone holds containers of another owner
	}
	if l := lines(); l != nil {
		t.Error(l)
	}
}

func TestCollectBeforeAllSourcesAreSeen(t *testing.T) {
	r := &runtime{containers: []*runtimeapi.Container{listed("g1", "gone", "a", exited, 1), listed("g0", "gone", "a", exited, 0)}}
	c, _, _ := collector(r, pods{gone: []string{"gone"}}, func(c *Config) { c.SourcesReady = func() bool { return false } })
	if err := c.Collect(t.Context()); err != nil || len(r.containers) != 1 {
		t.Errorf("%v, left %v", err, r.containers)
	}
}

// What has only terminated goes in an eviction, not in a usual pass.
func TestDeleteAllUnused(t *testing.T) {
	r := &runtime{containers: []*runtimeapi.Container{listed("a", "p", "a", exited, 1)}, sandboxes: []*runtimeapi.PodSandbox{sandbox("s", "p", false, 1)}}
	c, _, lines := collector(r, pods{terminated: []string{"p"}}, nil)
	if err := c.Collect(t.Context()); err != nil || len(r.containers) != 1 {
		t.Errorf("%v, left %v", err, r.containers)
	}
	r.calls = nil
	if err := c.DeleteAllUnused(t.Context()); err != nil {
		t.Error(err)
	}
	want := []string{"ListContainers", "ContainerStatus a", "ContainerStatus a", "RemoveContainer a", "ListContainers", "ListPodSandbox", "StopPodSandbox s", "RemovePodSandbox s"}
	if diff := gocmp.Diff(want, r.calls); diff != "" {
		t.Error(diff)
	}
	if diff := gocmp.Diff([]string{`"level"=0 "msg"="Attempting to delete unused containers"`}, lines()); diff != "" {
		t.Error(diff)
	}
}

// An unknown container may run: it is stopped first, within its own grace period, and kept if that fails.
func TestCollectUnknown(t *testing.T) {
	mayRun := listed("u2", "gone", "c", unknown, 0)
	mayRun.Annotations = map[string]string{container.TerminationGracePeriodAnnotation: "30"}
	deleted := listed("u3", "gone", "d", unknown, 0)
	deleted.Annotations = map[string]string{container.TerminationGracePeriodAnnotation: "30", container.DeletionGracePeriodAnnotation: "1"}
	r := &runtime{
		containers: []*runtimeapi.Container{listed("u0", "gone", "a", unknown, 0), listed("u1", "gone", "b", unknown, 0), mayRun, deleted},
		fail:       map[string]bool{"StopContainer u1 2s": true, "RemoveContainer u2": true},
	}
	c, _, lines := collector(r, pods{gone: []string{"gone"}}, nil)
	if err := c.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"ListContainers", "StopContainer u0 2s", "ContainerStatus u0", "ContainerStatus u0", "RemoveContainer u0", "StopContainer u1 2s",
		"StopContainer u2 30s", "ContainerStatus u2", "ContainerStatus u2", "RemoveContainer u2", "StopContainer u3 2s", "ContainerStatus u3", "ContainerStatus u3", "RemoveContainer u3",
		"ListContainers", "ListPodSandbox",
	}
	if diff := gocmp.Diff(want, r.calls); diff != "" {
		t.Error(diff)
	}
	wantLines := []string{
		`"msg"="Failed to stop container" "error"="refused: StopContainer u1 2s" "containerID"="u1"`,
		`"msg"="Failed to remove container" "error"="refused: RemoveContainer u2" "containerID"="u2"`,
	}
	if diff := gocmp.Diff(wantLines, lines()); diff != "" {
		t.Error(diff)
	}
}

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

// files lists what is below a directory.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			out = append(out, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestCollectLogs(t *testing.T) {
	dir := t.TempDir()
	logs, links := filepath.Join(dir, "pods"), filepath.Join(dir, "containers")
	inPod := func(name string) string { return filepath.Join(logs, "ns_p_p", "a", name) }
	for _, f := range []string{"0.log", "1.log", "10.log"} {
		write(t, inPod(f))
	}
	write(t, filepath.Join(logs, "ns_gone_gone", "a", "0.log"))
	write(t, filepath.Join(logs, "other"))
	write(t, filepath.Join(dir, "elsewhere"))
	write(t, filepath.Join(links, "unrelated.txt"))
	link(t, inPod("0.log"), filepath.Join(links, "p_ns_a-deadbeef0.log"))
	link(t, inPod("1.log"), filepath.Join(links, "p_ns_a-deadbeef1.log"))
	link(t, inPod("7.log"), filepath.Join(links, "p_ns_a-deadbeef7.log")) // its log is gone
	labelled := func(c *runtimeapi.Container) *runtimeapi.Container {
		c.Labels[container.PodNameLabel], c.Labels[container.PodNamespaceLabel] = "p", "ns"
		return c
	}
	r := &runtime{
		containers: []*runtimeapi.Container{
			labelled(listed("deadbeef1", "p", "a", exited, 1)), labelled(listed("deadbeef0", "p", "a", exited, 0)),
			listed("e1", "p", "e", exited, 1), listed("e0", "p", "e", exited, 0),
		},
		logs: map[string]string{"deadbeef0": inPod("0.log"), "deadbeef1": inPod("1.log"), "e0": filepath.Join(dir, "elsewhere")},
	}
	c, _, _ := collector(r, pods{gone: []string{"gone", "other"}}, func(c *Config) { c.LogDir = dir })
	if err := c.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{"containers/p_ns_a-deadbeef1.log", "containers/unrelated.txt", "elsewhere", "pods/ns_p_p/a/1.log", "pods/ns_p_p/a/10.log", "pods/other"}
	if diff := gocmp.Diff(want, files(t, dir)); diff != "" {
		t.Error(diff)
	}
}

// A run tells of failures by an event each, and of the recovery, and ends with its context.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &runtime{fail: map[string]bool{"ListContainers": true}}
		c, recorder, lines := collector(r, pods{}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- c.Run(ctx) }()
		time.Sleep(time.Second)
		if e := <-recorder.Events; e != "Warning ContainerGCFailed refused: ListContainers" || len(recorder.Events) != 0 {
			t.Errorf("event %q, and %d more", e, len(recorder.Events))
		}
		r.mu.Lock()
		r.fail = nil
		r.mu.Unlock()
		time.Sleep(2 * time.Minute)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		want := []string{`"msg"="Container garbage collection failed" "error"="refused: ListContainers"`}
		if diff := gocmp.Diff(want, lines()); diff != "" {
			t.Error(diff)
		}
	})
}
