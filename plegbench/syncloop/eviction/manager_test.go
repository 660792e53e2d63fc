package eviction

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
)

// A node has so much memory and disk left, and runs pods.
type node struct {
	mu           sync.Mutex
	memory, disk uint64
	seen         uint64 // seconds, one more with each summary
	err          error
	pods         []*v1.Pod
	stats        []statsapi.PodStats
	killErr      error
	reclaimed    []string
	free         uint64 // disk that a reclaim frees
	killed       []string
	status       v1.PodStatus // of the last that was killed
	dirty        bool         // killed pods are not cleaned up
	lines        []string
}

func (n *node) change(do func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	do()
}

func (n *node) summary(context.Context) (*statsapi.Summary, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seen++
	return summary(n.seen, n.memory, n.disk, n.stats...), n.err
}

func (n *node) kill(_ context.Context, p *v1.Pod, evict bool, grace *int64, override func(*v1.PodStatus)) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !evict {
		return errors.New("not an eviction")
	}
	n.killed = append(n.killed, p.Name+" "+(time.Duration(*grace)*time.Second).String())
	n.status = *p.Status.DeepCopy()
	override(&n.status)
	n.pods = slices.DeleteFunc(slices.Clone(n.pods), func(o *v1.Pod) bool { return o == p })
	return n.killErr
}

func (n *node) reclaim(what string) func(context.Context) error {
	return func(context.Context) error {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.reclaimed = append(n.reclaimed, what)
		n.disk += n.free
		return errors.New("cannot free all")
	}
}

func (n *node) manager(change func(*Config)) (*Manager, *record.FakeRecorder) {
	recorder := record.NewFakeRecorder(100)
	cfg := Config{
		Summary: n.summary, Kill: n.kill, Recorder: recorder, NodeName: "n", TransitionPeriod: 5 * time.Minute, Period: 10 * time.Second,
		Pods:      func() []*v1.Pod { n.mu.Lock(); defer n.mu.Unlock(); return n.pods },
		CleanedUp: func(*v1.Pod) bool { n.mu.Lock(); defer n.mu.Unlock(); return !n.dirty },
		Reclaim:   []func(context.Context) error{n.reclaim("containers"), n.reclaim("images")},
		Thresholds: []Threshold{
			{Signal: MemoryAvailable, Quantity: quantity("100")}, {Signal: NodeFsAvailable, Share: 0.1},
		},
		Log:     funcr.New(func(_, line string) { n.mu.Lock(); defer n.mu.Unlock(); n.lines = append(n.lines, line) }, funcr.Options{}),
		Metrics: metrics.New(prometheus.NewRegistry(), prometheus.NewRegistry()),
	}
	if change != nil {
		change(&cfg)
	}
	return New(cfg), recorder
}

func (n *node) said(text string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.ContainsFunc(n.lines, func(l string) bool { return strings.Contains(l, text) })
}

// two pods, of which the large one goes first.
func twoPods() *node {
	return &node{
		memory: 500, disk: 500, pods: []*v1.Pod{testPod("small", 0, "", ""), testPod("large", 0, "", "")},
		stats: []statsapi.PodStats{figures("small", 100, 10), figures("large", 700, 20)},
	}
}

// run runs a manager for so long.
func run(t *testing.T, m *Manager, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if err := m.Run(ctx); err != nil {
		t.Error(err)
	}
}

func events(recorder *record.FakeRecorder) []string {
	var out []string
	for len(recorder.Events) > 0 {
		out = append(out, <-recorder.Events)
	}
	return out
}

func TestEvictsForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := twoPods()
		m, recorder := n.manager(nil)
		run(t, m, time.Minute)
		if n.killed != nil || m.Conditions() != nil {
			t.Fatalf("killed %v, conditions %v of a node that has enough", n.killed, m.Conditions())
		}
		n.memory = 50
		run(t, m, 500*time.Millisecond)
		if diff := cmp.Diff([]string{"large 1s"}, n.killed); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]v1.NodeConditionType{v1.NodeMemoryPressure}, m.Conditions()); diff != "" {
			t.Error(diff)
		}
		message := "The node was low on resource: memory. Threshold quantity: 100, available: 50. "
		if n.status.Phase != v1.PodFailed || n.status.Reason != "Evicted" || n.status.Message != message {
			t.Errorf("status %+v", n.status)
		}
		if c := n.status.Conditions; len(c) != 1 || c[0].Type != v1.DisruptionTarget || c[0].Reason != "TerminationByKubelet" || c[0].Message != message {
			t.Errorf("conditions %+v", c)
		}
		got := events(recorder)
		if len(got) != 2 || got[0] != "Warning EvictionThresholdMet Attempting to reclaim memory" || !strings.HasPrefix(got[1], "Warning Evicted "+message) {
			t.Errorf("events %q", got)
		}
		if n.reclaimed != nil {
			t.Errorf("reclaimed %v for memory", n.reclaimed)
		}
	})
}

// After an eviction the next pass waits for the pod's end, at most 30 s, and then does not wait.
func TestCleanup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := twoPods()
		n.memory, n.dirty = 50, true
		m, _ := n.manager(nil)
		go func() {
			time.Sleep(30*time.Second + 500*time.Millisecond)
			n.change(func() { n.dirty = false })
		}()
		run(t, m, 29*time.Second)
		if diff := cmp.Diff([]string{"large 1s"}, n.killed); diff != "" || !n.said("timed out waiting for pods to be cleaned up") {
			t.Error(diff, n.lines) // the end of the run is the end of the wait
		}
		n.lines = nil
		run(t, m, 2500*time.Millisecond)
		if diff := cmp.Diff([]string{"large 1s", "small 1s"}, n.killed); diff != "" || !n.said("pods successfully cleaned up") {
			t.Error(diff, n.lines)
		}
	})
}

// A full disk is first emptied of what belongs to nobody; pods are evicted only if that was not enough.
func TestReclaimsDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tt := range map[string]struct {
			free   uint64
			killed []string
		}{
			"enough":     {100, nil},
			"not enough": {1, []string{"large 1s"}},
		} {
			n := twoPods()
			n.disk, n.free = 50, tt.free
			m, _ := n.manager(nil)
			run(t, m, 500*time.Millisecond)
			if diff := cmp.Diff([]string{"containers", "images"}, n.reclaimed); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
			if diff := cmp.Diff(tt.killed, n.killed); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
			if able := n.said("able to reduce resource pressure without evicting pods."); able != (tt.killed == nil) {
				t.Errorf("%s: said %v", name, n.lines)
			}
		}
	})
}

// While the runtime hangs there are no figures, and nobody is evicted.
func TestBlind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := twoPods()
		n.memory, n.err = 1, errors.New("deadline exceeded")
		m, _ := n.manager(nil)
		run(t, m, time.Minute)
		if n.killed != nil || !n.said("Eviction manager: failed to synchronize") {
			t.Errorf("killed %v, said %v", n.killed, n.lines)
		}
	})
}

// Critical pods are passed over; a pod that does not end counts as evicted; one pod goes each pass.
func TestWhoIsEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := twoPods()
		n.memory, n.killErr = 1, errors.New("timeout waiting to kill pod")
		n.pods[1].Spec.Priority = new(int32(2_000_000_000))
		m, _ := n.manager(nil)
		run(t, m, 500*time.Millisecond)
		if diff := cmp.Diff([]string{"small 1s"}, n.killed); diff != "" {
			t.Error(diff)
		}
		if !n.said("Eviction manager: pod failed to evict") || n.said("unable to evict any pods") {
			t.Error(n.lines)
		}
		run(t, m, 500*time.Millisecond)
		if len(n.killed) != 1 || !n.said("cannot evict a critical pod") || !n.said("unable to evict any pods from the node") {
			t.Error(n.killed, n.lines)
		}
	})
}

func TestAdmit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bestEffort, burstable, critical := testPod("p", 0, "", ""), testPod("p", 0, "1Mi", ""), testPod("p", 2_000_000_000, "", "")
		bestEffort.Spec.InitContainers = nil // whose requests count
		for name, tt := range map[string]struct {
			memory, disk uint64
			pod          *v1.Pod
			message      string
		}{
			"no pressure":         {500, 500, bestEffort, ""},
			"best effort, memory": {1, 500, bestEffort, "The node had condition: [MemoryPressure]. "},
			"burstable, memory":   {1, 500, burstable, ""},
			"burstable, disk":     {500, 1, burstable, "The node had condition: [DiskPressure]. "},
			"burstable, both":     {1, 1, burstable, "The node had condition: [MemoryPressure DiskPressure]. "},
			"critical, both":      {1, 1, critical, ""},
		} {
			n := twoPods()
			n.memory, n.disk = tt.memory, tt.disk
			m, _ := n.manager(nil)
			if ok, _, _ := m.Admit(tt.pod); !ok {
				t.Errorf("%s: not admitted before anything was seen", name)
			}
			run(t, m, 500*time.Millisecond)
			if ok, reason, message := m.Admit(tt.pod); ok != (tt.message == "") || message != tt.message || !ok && reason != "Evicted" {
				t.Errorf("%s: %v %s %s", name, ok, reason, message)
			}
		}
	})
}
