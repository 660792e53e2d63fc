package eviction

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
)

// A harness is the Manager of a node that has so much memory and disk left, of 1000 each, and runs two pods, of which
// large uses more of both.
type harness struct {
	*Manager
	recorder *record.FakeRecorder
	log      looptest.Log

	mu           sync.Mutex
	memory, disk uint64
	free         uint64 // disk that a reclaim frees
	err, killErr error
	dirty        bool   // killed pods are not cleaned up
	volume       uint64 // bytes in a volume of small
	pods         []*v1.Pod

	seen      uint64 // seconds, one more with each summary
	last      *statsapi.Summary
	lastAt    time.Time
	reclaimed []string
	killed    []string
	status    v1.PodStatus // of the last that was killed
}

func newHarness(memory, disk uint64) *harness {
	n := &harness{memory: memory, disk: disk, recorder: record.NewFakeRecorder(100)}
	n.pods = []*v1.Pod{testPod("small", 0, "100"), testPod("large", 0, "0")}
	n.pods[0].Spec.TerminationGracePeriodSeconds = new(int64(7))
	n.pods[0].Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
		EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: quantity("50")},
	}}}
	reclaim := func(what string) func(context.Context) error {
		return func(context.Context) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.reclaimed = append(n.reclaimed, what)
			n.disk += n.free
			return errors.New("cannot free all")
		}
	}
	n.Manager = New(Config{
		Summary: n.summary, Kill: n.kill, Recorder: n.recorder, NodeName: "n", Metrics: metrics.New(nil, nil),
		TransitionPeriod: 5 * time.Minute, Period: 10 * time.Second,
		Pods:      func() []*v1.Pod { return n.pods },
		CleanedUp: func(*v1.Pod) bool { n.mu.Lock(); defer n.mu.Unlock(); return !n.dirty },
		Reclaim:   []func(context.Context) error{reclaim("containers"), reclaim("images")},
		Thresholds: []Threshold{
			{Signal: MemoryAvailable, Value: Value{Quantity: quantity("100")}},
			{Signal: NodeFsAvailable, Value: Value{Share: 0.1}},
		},
		Log: n.log.Logger(3),
	})
	return n
}

// summary keeps a summary for ten seconds, as package stats does, unless a fresh one is asked for.
func (n *harness) summary(_ context.Context, fresh bool) (*statsapi.Summary, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if fresh || n.last == nil || time.Since(n.lastAt) >= 10*time.Second {
		n.seen++
		small, large := figures("small", 100, 10), figures("large", 700, 20)
		small.VolumeStats = []statsapi.VolumeStats{{Name: "v", FsStats: statsapi.FsStats{UsedBytes: &n.volume}}}
		large.Containers = []statsapi.ContainerStats{{
			Name: "c", Memory: large.Memory, Logs: &statsapi.FsStats{UsedBytes: new(uint64(5))},
		}}
		n.last = summary(n.seen, n.memory, n.disk, small, large)
		n.lastAt = time.Now()
	}
	return n.last, n.err
}

func (n *harness) kill(_ context.Context, p *v1.Pod, grace int64, override func(*v1.PodStatus)) error {
	n.killed = append(n.killed, fmt.Sprintf("%s %d", p.Name, grace))
	n.status = v1.PodStatus{}
	override(&n.status)
	n.pods = slices.DeleteFunc(slices.Clone(n.pods), func(o *v1.Pod) bool { return o == p })
	return n.killErr
}

func TestOnePass(t *testing.T) {
	critical := new(int32(2_000_000_000))
	for name, tt := range map[string]struct {
		memory, disk uint64
		change       func(n *harness)
		killed       string
		reclaimed    string // of what belongs to no pod
		log          string
	}{
		"enough": {500, 500, nil, "", "", ""},
		"memory": {50, 500, nil, "large 1", "", "pods ranked for eviction"},
		"a disk, and a reclaim frees enough": {
			500, 50, func(n *harness) { n.free = 100 }, "", "containers images",
			"able to reduce resource pressure without evicting pods.",
		},
		"a disk, and a reclaim frees too little": {
			500, 50, func(n *harness) { n.free = 1 }, "large 1", "containers images", "",
		},
		"a soft threshold gives the pod its grace period, within a limit": {
			500, 500, func(n *harness) {
				soft := Threshold{Signal: MemoryAvailable, Value: Value{Share: 0.6}, GracePeriod: time.Nanosecond}
				n.cfg.Thresholds, n.cfg.MaxGrace = []Threshold{soft}, 20
				n.state.first = map[Threshold]time.Time{soft: time.Now().Add(-time.Second)}
				n.pods = n.pods[:1]
			}, "small 7", "", "",
		},
		"processes": {
			500, 500, func(n *harness) {
				n.cfg.Thresholds = []Threshold{{Signal: PIDAvailable, Value: Value{Quantity: quantity("91")}}}
			}, "large 1", "", `attempting to reclaim" "resourceName"="pids"`,
		},
		"an emptyDir over its limit, before a threshold": {
			50, 500, func(n *harness) { n.volume = 51 }, "small 1", "",
			`Usage of EmptyDir volume \"v\" exceeds the limit \"50\". `,
		},
		"a container over its limit": {
			500, 500, func(n *harness) { n.limit("4", "100") }, "large 1", "",
			`Container c exceeded its local ephemeral storage limit \"4\". `,
		},
		"the runtime hangs": {
			1, 500, func(n *harness) { n.err = errors.New("deadline exceeded") }, "", "",
			"Eviction manager: failed to synchronize",
		},
		"a critical pod is passed over": {
			1, 500, func(n *harness) { n.pods[1].Spec.Priority = critical }, "small 1", "", "cannot evict a critical pod",
		},
		"a pod that does not end counts as evicted": {
			1, 500, func(n *harness) { n.killErr = errors.New("timeout waiting to kill pod") }, "large 1", "",
			"Eviction manager: pod failed to evict",
		},
	} {
		testkit.Bubble(t, name, func(t *testing.T) {
			n := newHarness(tt.memory, tt.disk)
			if tt.change != nil {
				tt.change(n)
			}
			looptest.RunFor(t, n.Run, 500*time.Millisecond)
			got := []string{strings.Join(n.killed, " "), strings.Join(n.reclaimed, " ")}
			testkit.Equal(t, "killed and reclaimed", []string{tt.killed, tt.reclaimed}, got)
			n.log.Has(t, tt.log)
		})
	}
}

// limit adds a container to large, and gives both containers limits on local storage; empty is none.
func (n *harness) limit(limits ...string) {
	containers := append(n.pods[1].Spec.Containers, v1.Container{Name: "d"})
	for i, text := range limits {
		if text != "" {
			containers[i].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse(text)}
		}
	}
	n.pods[1].Spec.Containers = containers
}

// After an eviction the next pass waits for the pod's end, at most 30 s.
func TestCleanup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newHarness(50, 500)
		n.dirty = true
		looptest.RunFor(t, n.Run, 29*time.Second)
		testkit.Equal(t, "killed", []string{"large 1"}, n.killed)
		const why = "The node was low on resource: memory. Threshold quantity: 100, available: 50. " +
			"Container c was using 700, request is 0, has larger consumption of memory. "
		s := n.status
		if len(s.Conditions) != 1 || s.Conditions[0].Type != v1.DisruptionTarget || s.Phase != v1.PodFailed ||
			s.Message != why {
			t.Errorf("status %+v", s)
		}
		n = newHarness(50, 500)
		n.dirty = true
		looptest.RunFor(t, n.Run, 31*time.Second)
		testkit.Equal(t, "killed", []string{"large 1", "small 1"}, n.killed)
		n.log.Has(t, "timed out waiting")
	})
}

func quantity(s string) *resource.Quantity {
	q := resource.MustParse(s)
	return &q
}

func TestParse(t *testing.T) {
	got, err := ParseThresholdConfig(map[string]string{
		"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "0%", "imagefs.available": "100%",
		"imagefs.inodesFree": "5%", "pid.available": "1k",
	}, map[string]string{"memory.available": "1Gi"}, map[string]string{"memory.available": "1m30s"},
		map[string]string{"nodefs.available": "5%", "memory.available": "0Mi"})
	none := &Value{Quantity: quantity("0Mi")}
	want := []Threshold{
		{Signal: ImageFsAvailable}, // switched off
		{Signal: ImageFsInodesFree, Value: Value{Share: 0.05}},
		{Signal: MemoryAvailable, Value: Value{Quantity: quantity("100Mi")}, MinReclaim: none},
		{Signal: NodeFsAvailable, Value: Value{Share: 0.1}, MinReclaim: &Value{Share: 0.05}},
		{Signal: NodeFsInodesFree},
		{Signal: PIDAvailable, Value: Value{Quantity: quantity("1k")}},
		{
			Signal: MemoryAvailable, Value: Value{Quantity: quantity("1Gi")}, GracePeriod: 90 * time.Second,
			MinReclaim: none,
		},
	}
	testkit.Must(t, err)
	testkit.Equal(t, "thresholds", want, got)
	for _, bad := range []struct{ hard, soft, grace, least string }{
		{"memory.available=-1Gi", "", "", ""},
		{"memory.available=NaN%", "", "", ""},
		{"", "memory.available=1Gi", "", ""},
		{"", "memory.available=1Gi", "memory.available=soon", ""},
		{"", "", "", "memory.available=-1"},
	} {
		one := func(text string) map[string]string {
			if signal, value, ok := strings.Cut(text, "="); ok {
				return map[string]string{signal: value}
			}
			return nil
		}
		got, err := ParseThresholdConfig(one(bad.hard), one(bad.soft), one(bad.grace), one(bad.least))
		if err == nil {
			t.Errorf("%v: %v without an error", bad, got)
		}
	}
}

func second(s int) time.Time { return time.Unix(int64(s), 0) }

// summary is that of a node with 1000 bytes of memory and on each disk, and 1000 inodes.
func summary(at, memory, disk uint64, pods ...statsapi.PodStats) *statsapi.Summary {
	when := metav1.NewTime(second(int(at)))
	fs := &statsapi.FsStats{
		Time: when, AvailableBytes: new(disk), CapacityBytes: new(uint64(1000)), InodesFree: new(uint64(500)),
		Inodes: new(uint64(1000)),
	}
	return &statsapi.Summary{Pods: pods, Node: statsapi.NodeStats{
		Memory: &statsapi.MemoryStats{Time: when, AvailableBytes: new(memory), WorkingSetBytes: new(1000 - memory)},
		Fs:     fs, Runtime: &statsapi.RuntimeStats{ImageFs: fs, ContainerFs: fs},
		Rlimit: &statsapi.RlimitStats{Time: when, MaxPID: new(int64(100)), NumOfRunningProcesses: new(int64(10))},
	}}
}

func TestNext(t *testing.T) {
	mem, dsk := []v1.NodeConditionType{v1.NodeMemoryPressure}, []v1.NodeConditionType{v1.NodeDiskPressure}
	both := []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure}
	hard := Threshold{Signal: MemoryAvailable, Value: Value{Quantity: quantity("100")}}
	disk := Threshold{Signal: NodeFsAvailable, Value: Value{Share: 0.1}}
	soft := Threshold{Signal: MemoryAvailable, Value: Value{Quantity: quantity("200")}, GracePeriod: 20 * time.Second}
	least := Threshold{Signal: MemoryAvailable, Value: Value{Share: 0.1}, MinReclaim: &Value{Quantity: quantity("50")}}
	inodes := Threshold{Signal: NodeFsInodesFree, Value: Value{Share: 0.6}}
	all := []Threshold{
		inodes,
		{Signal: ImageFsInodesFree, Value: Value{Share: 0.6}},
		disk,
		{Signal: ImageFsAvailable, Value: Value{Share: 1}},
		hard,
	}
	memory := &statsapi.MemoryStats{AvailableBytes: new(uint64(1))}
	if o := observe(&statsapi.Summary{Node: statsapi.NodeStats{Memory: memory, Fs: &statsapi.FsStats{}}}); len(o) != 0 {
		t.Errorf("observed %v", o)
	}
	// A step is one pass over a node with so much memory and disk left.
	type step struct {
		memory, disk uint64
		at           uint64 // when the figures are from, seconds
		starved      string // signals
		conditions   []v1.NodeConditionType
	}
	for name, tt := range map[string]struct {
		thresholds []Threshold
		steps      []step // ten seconds apart, with a transition period of 25 s
	}{
		"memory before disk": {[]Threshold{disk, hard}, []step{
			{50, 50, 0, "memory.available nodefs.available", both},
			{500, 99, 10, "nodefs.available", both},
			{500, 100, 20, "", both},
			{500, 100, 30, "", dsk},
		}},
		"old figures": {[]Threshold{hard}, []step{
			{50, 500, 5, "memory.available", mem}, {50, 500, 5, "", mem}, {50, 500, 6, "memory.available", mem},
		}},
		"all signals": {all, []step{{
			50, 50, 0,
			"memory.available nodefs.inodesFree imagefs.inodesFree nodefs.available imagefs.available", both,
		}}},
		"a soft threshold": {[]Threshold{soft}, []step{
			{150, 500, 0, "", mem},
			{150, 500, 10, "", mem},
			{150, 500, 20, "memory.available", mem},
			{200, 500, 30, "", mem},
			{150, 500, 40, "", mem},
			{150, 500, 50, "", mem},
			{150, 500, 60, "memory.available", mem},
		}},
		"the minimum to reclaim": {[]Threshold{least}, []step{
			{149, 500, 0, "", nil},
			{99, 500, 10, "memory.available", mem},
			{149, 500, 20, "memory.available", mem},
			{150, 500, 30, "", mem},
			{149, 500, 40, "", mem},
			{149, 500, 50, "", nil},
		}},
		"processes": {[]Threshold{{Signal: PIDAvailable, Value: Value{Quantity: quantity("91")}}}, []step{
			{500, 500, 0, "pid.available", []v1.NodeConditionType{v1.NodePIDPressure}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var s state
			for i, st := range tt.steps {
				var starved []Threshold
				now := second(10 * i)
				s, starved = s.next(tt.thresholds, observe(summary(st.at, st.memory, st.disk)), now)
				var signals []string
				for _, t := range starved {
					signals = append(signals, string(t.Signal))
				}
				testkit.Equal(t, fmt.Sprint("starved of at step ", i), st.starved, strings.Join(signals, " "))
				what := "conditions of step " + strconv.Itoa(i)
				testkit.Equal(t, what, st.conditions, s.conditions(25*time.Second, now))
			}
		})
	}
}

// testPod is a pod that requests so much memory and disk.
func testPod(name string, priority int32, asked string) *v1.Pod {
	return looptest.Pod(name, func(p *v1.Pod) {
		p.Spec.Priority, p.Spec.Containers[0].Name = &priority, "c"
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{
			v1.ResourceMemory: resource.MustParse(asked), v1.ResourceEphemeralStorage: resource.MustParse(asked),
		}
	})
}

// figures are of a pod that uses so much memory and disk.
func figures(uid string, memory, disk uint64) statsapi.PodStats {
	return statsapi.PodStats{
		PodRef: statsapi.PodReference{UID: uid}, Memory: &statsapi.MemoryStats{WorkingSetBytes: &memory},
		EphemeralStorage: &statsapi.FsStats{UsedBytes: &disk, InodesUsed: new(1000 - disk)},
		ProcessStats:     &statsapi.ProcessStats{ProcessCount: new(2 * disk)},
	}
}

// TestRank has a pod without figures, one that uses more than it asked for, one that uses more but not more than that,
// and one of a higher priority. There are no requests for inodes and processes.
func TestRank(t *testing.T) {
	pods := []*v1.Pod{
		testPod("urgent", 5, "0"), testPod("within", 0, "500"), testPod("over", 0, "100"), testPod("unseen", 1, "0"),
	}
	stats := []statsapi.PodStats{figures("over", 300, 300), figures("within", 400, 400), figures("urgent", 350, 350)}
	for signal, want := range map[Signal]string{
		MemoryAvailable: "unseen over urgent within", ImageFsAvailable: "unseen over urgent within",
		NodeFsInodesFree: "unseen over within urgent", PIDAvailable: "within over unseen urgent",
	} {
		var got []string
		for _, p := range rank(pods, stats, signal) {
			got = append(got, p.Name)
		}
		testkit.Equal(t, string(signal), want, strings.Join(got, " "))
	}
}

const (
	before      = "6,2,2,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,"
	inContainer = before + "oom_memcg=/kubepods/pod1,task_memcg=/kubepods/pod1/c1,task=stress,pid=42,uid=0"
	inSystem    = before + "global_oom,task_memcg=/user.slice,task=my, app,pid=77,uid=1000"
	atRoot      = before + "oom_memcg=/,task_memcg=/a,task=b,pid=5,uid=0"
)

func TestParseKill(t *testing.T) {
	for record, want := range map[string]kill{
		inContainer: {"/kubepods/pod1", "stress", 42},
		inSystem:    {"", "my, app", 77},
		atRoot:      {"/", "b", 5},
		"4,1,1,-;stress invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0": {},
		"": {},
		strings.Replace(inSystem, "pid=77", "pid=99999999999999999999", 1): {},
	} {
		got, ok := parseKill(record)
		if !ok {
			got = kill{}
		}
		if got != want || ok != (want.PID != 0) || ok && got.global() != (want.Memcg != "/kubepods/pod1") {
			t.Errorf("%q: %+v, %v", record, got, ok)
		}
	}
}

func TestWatchOOM(t *testing.T) {
	n := newHarness(500, 500)
	err := n.WatchOOM(t.Context(), filepath.Join(t.TempDir(), "kmsg"))
	testkit.Contains(t, "without a log", "the kernel's log", testkit.Text(err))
	n.reportKill(kill{"/kubepods/pod1", "stress", 42}) // only kills of the system are reported
	n.reportKill(kill{"", "my, app", 77})
	want := []string{"Warning SystemOOM System OOM encountered, victim process: my, app, pid: 77"}
	testkit.Equal(t, "events", want, looptest.Drain(n.recorder.Events))
}
