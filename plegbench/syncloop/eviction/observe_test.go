package eviction

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

func second(s int) time.Time { return time.Unix(int64(s), 0) }

// summary is that of a node with 1000 bytes of memory and on each disk, 1000 inodes and 1000 processes at most.
func summary(at, memory, disk uint64, pods ...statsapi.PodStats) *statsapi.Summary {
	when := metav1.NewTime(second(int(at)))
	fs := &statsapi.FsStats{Time: when, AvailableBytes: new(disk), CapacityBytes: new(uint64(1000)), InodesFree: new(uint64(500)), Inodes: new(uint64(1000))}
	mem := &statsapi.MemoryStats{Time: when, AvailableBytes: new(memory), WorkingSetBytes: new(1000 - memory)}
	return &statsapi.Summary{
		Node: statsapi.NodeStats{
			Memory: mem, Fs: fs, Runtime: &statsapi.RuntimeStats{ImageFs: fs, ContainerFs: fs},
			Rlimit:           &statsapi.RlimitStats{Time: when, MaxPID: new(int64(1000)), NumOfRunningProcesses: new(int64(100))},
			SystemContainers: []statsapi.ContainerStats{{Name: "kubelet"}, {Name: statsapi.SystemContainerPods, Memory: mem}},
		},
		Pods: pods,
	}
}

func TestObserve(t *testing.T) {
	got := map[Signal][2]int64{}
	for signal, o := range observe(summary(7, 300, 200)) {
		got[signal] = [2]int64{o.available.Value(), o.capacity.Value()}
		if !o.at.Equal(second(7)) {
			t.Errorf("%s was seen at %v", signal, o.at)
		}
	}
	want := map[Signal][2]int64{
		MemoryAvailable: {300, 1000}, PIDAvailable: {900, 1000},
		NodeFsAvailable: {200, 1000}, ImageFsAvailable: {200, 1000},
		NodeFsInodesFree: {500, 1000}, ImageFsInodesFree: {500, 1000},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if o := observe(&statsapi.Summary{Node: statsapi.NodeStats{Memory: &statsapi.MemoryStats{AvailableBytes: new(uint64(1))}, Fs: &statsapi.FsStats{}}}); len(o) != 0 {
		t.Errorf("observed %v", o)
	}
}

// A step is one pass over a node with so much memory and disk left.
type step struct {
	memory, disk uint64
	stats        int // when the figures are from, seconds
	starved      []int
	early        []int
	conditions   []v1.NodeConditionType
}

func TestNext(t *testing.T) {
	mem, dsk := []v1.NodeConditionType{v1.NodeMemoryPressure}, []v1.NodeConditionType{v1.NodeDiskPressure}
	both := []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure}
	hard := Threshold{Signal: MemoryAvailable, Value: amount("100")}
	soft := Threshold{Signal: MemoryAvailable, Value: amount("300"), Grace: 20 * time.Second}
	disk := Threshold{Signal: NodeFsAvailable, Value: Value{Share: 0.1}}
	reclaim := Threshold{Signal: MemoryAvailable, Value: amount("100"), MinReclaim: &Value{Share: 0.05}}
	tests := []struct {
		name       string
		thresholds []Threshold
		steps      []step // ten seconds apart, with a transition period of 25 s
	}{
		{"hard, and the transition", []Threshold{hard}, []step{
			{100, 500, 0, nil, nil, nil}, {99, 500, 10, []int{0}, nil, mem}, {500, 500, 20, nil, nil, mem}, {500, 500, 30, nil, nil, mem}, {500, 500, 40, nil, nil, nil},
		}},
		{"soft", []Threshold{soft}, []step{
			{200, 500, 0, nil, []int{0}, mem}, {200, 500, 10, nil, []int{0}, mem}, {200, 500, 20, []int{0}, nil, mem}, {400, 500, 30, nil, nil, mem}, {200, 500, 40, nil, []int{0}, mem},
		}},
		{"memory before disk", []Threshold{disk, hard}, []step{{50, 50, 0, []int{1, 0}, nil, both}, {500, 50, 10, []int{0}, nil, both}, {500, 99, 20, []int{0}, nil, both}, {500, 100, 30, nil, nil, dsk}}},
		{"old figures", []Threshold{hard}, []step{{50, 500, 5, []int{0}, nil, mem}, {50, 500, 5, nil, nil, mem}, {50, 500, 6, []int{0}, nil, mem}}},
		{"least amount", []Threshold{reclaim}, []step{
			{120, 500, 0, nil, nil, nil}, {50, 500, 10, []int{0}, nil, mem}, {149, 500, 20, []int{0}, nil, mem}, {150, 500, 30, nil, nil, mem}, {149, 500, 40, nil, nil, mem}, {149, 500, 50, nil, nil, nil},
		}},
		{"a signal that is not seen", []Threshold{{Signal: "x", Value: amount("1")}}, []step{{1, 1, 0, nil, nil, nil}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var s state
			for i, st := range tt.steps {
				now := second(10 * i)
				var got step
				s, got.starved, got.early = s.next(tt.thresholds, observe(summary(uint64(st.stats), st.memory, st.disk)), now)
				got.conditions = s.conditions(25*time.Second, now)
				st.memory, st.disk, st.stats = 0, 0, 0
				if diff := cmp.Diff(st, got, cmp.AllowUnexported(step{})); diff != "" {
					t.Errorf("step %d: %s", i, diff)
				}
			}
		})
	}
}

// Figures without a time count as new each time.
func TestNextWithoutTimes(t *testing.T) {
	s, o := state{}, observe(&statsapi.Summary{Node: statsapi.NodeStats{Memory: &statsapi.MemoryStats{AvailableBytes: new(uint64(1)), WorkingSetBytes: new(uint64(9))}}})
	for range 3 {
		var starved []int
		if s, starved, _ = s.next([]Threshold{{Signal: MemoryAvailable, Value: amount("5")}}, o, second(1)); len(starved) != 1 {
			t.Errorf("starved: %v", starved)
		}
	}
}
