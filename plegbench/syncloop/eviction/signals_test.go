package eviction

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

func quantity(s string) *resource.Quantity {
	q := resource.MustParse(s)
	return &q
}

func TestParse(t *testing.T) {
	got, err := Parse(map[string]string{
		"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "0%", "imagefs.available": "100%",
		"imagefs.inodesFree": "5%", "pid.available": "1k",
	})
	want := []Threshold{
		{Signal: ImageFsAvailable}, // switched off
		{Signal: ImageFsInodesFree, Share: 0.05},
		{Signal: MemoryAvailable, Quantity: quantity("100Mi")},
		{Signal: NodeFsAvailable, Share: 0.1},
		{Signal: NodeFsInodesFree},
		{Signal: pidAvailable, Quantity: quantity("1k")},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	for _, bad := range []string{
		"memory.free=1Gi", "memory.available=much", "memory.available=-1Gi", "memory.available=0",
		"memory.available=101%", "memory.available=-1%", "memory.available=NaN%",
	} {
		signal, text, _ := strings.Cut(bad, "=")
		if got, err := Parse(map[string]string{signal: text}); err == nil {
			t.Errorf("%s: %v without an error", bad, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"100Mi", "10%", "0%", "-5%", "1e3", "NaN%", "+Inf%"} {
		f.Add("memory.available", s)
	}
	f.Fuzz(func(t *testing.T, signal, text string) {
		all, err := Parse(map[string]string{signal: text})
		for _, v := range all {
			if err != nil || v.Quantity == nil && !(v.Share >= 0 && v.Share < 1) || v.Quantity != nil && v.Quantity.Sign() <= 0 {
				t.Errorf("%s=%s: %v, %v", signal, text, v, err)
			}
		}
	})
}

func second(s int) time.Time { return time.Unix(int64(s), 0) }

// summary is that of a node with 1000 bytes of memory and on each disk, and 1000 inodes.
func summary(at, memory, disk uint64, pods ...statsapi.PodStats) *statsapi.Summary {
	when := metav1.NewTime(second(int(at)))
	fs := &statsapi.FsStats{Time: when, AvailableBytes: new(disk), CapacityBytes: new(uint64(1000)), InodesFree: new(uint64(500)), Inodes: new(uint64(1000))}
	return &statsapi.Summary{Pods: pods, Node: statsapi.NodeStats{
		Memory: &statsapi.MemoryStats{Time: when, AvailableBytes: new(memory), WorkingSetBytes: new(1000 - memory)},
		Fs:     fs, Runtime: &statsapi.RuntimeStats{ImageFs: fs, ContainerFs: fs},
	}}
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
		MemoryAvailable: {300, 1000}, NodeFsAvailable: {200, 1000}, ImageFsAvailable: {200, 1000},
		NodeFsInodesFree: {500, 1000}, ImageFsInodesFree: {500, 1000},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if o := observe(&statsapi.Summary{Node: statsapi.NodeStats{Memory: &statsapi.MemoryStats{AvailableBytes: new(uint64(1))}, Fs: &statsapi.FsStats{}}}); len(o) != 0 {
		t.Errorf("observed %v", o)
	}
}

func TestNext(t *testing.T) {
	mem, dsk := []v1.NodeConditionType{v1.NodeMemoryPressure}, []v1.NodeConditionType{v1.NodeDiskPressure}
	both := []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure}
	hard := Threshold{Signal: MemoryAvailable, Quantity: quantity("100")}
	disk := Threshold{Signal: NodeFsAvailable, Share: 0.1}
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
		"the transition": {[]Threshold{hard}, []step{
			{100, 500, 0, "", nil}, {99, 500, 10, "memory.available", mem}, {500, 500, 20, "", mem}, {500, 500, 30, "", mem}, {500, 500, 40, "", nil},
		}},
		"memory before disk": {[]Threshold{disk, hard}, []step{
			{50, 50, 0, "memory.available nodefs.available", both}, {500, 99, 10, "nodefs.available", both}, {500, 100, 20, "", both}, {500, 100, 30, "", dsk},
		}},
		"old figures": {[]Threshold{hard}, []step{{50, 500, 5, "memory.available", mem}, {50, 500, 5, "", mem}, {50, 500, 6, "memory.available", mem}}},
		"not seen":    {[]Threshold{{Signal: pidAvailable, Quantity: quantity("1")}}, []step{{1, 1, 0, "", nil}}},
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
				if got := strings.Join(signals, " "); got != st.starved {
					t.Errorf("step %d: starved of %s, want %s", i, got, st.starved)
				}
				if diff := cmp.Diff(st.conditions, s.conditions(25*time.Second, now)); diff != "" {
					t.Errorf("step %d: %s", i, diff)
				}
			}
		})
	}
}

func testPod(name string, priority int32, memory, disk string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}, Spec: v1.PodSpec{Priority: &priority}}
	list := v1.ResourceList{}
	if memory != "" {
		list[v1.ResourceMemory] = resource.MustParse(memory)
	}
	if disk != "" {
		list[v1.ResourceEphemeralStorage] = resource.MustParse(disk)
	}
	always := v1.ContainerRestartPolicyAlways
	p.Spec.Containers = []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: list}}}
	p.Spec.InitContainers = []v1.Container{{Name: "side", RestartPolicy: &always}, {Name: "init", Resources: v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("9000"), v1.ResourceEphemeralStorage: resource.MustParse("9000")},
	}}}
	return p
}

// figures are of a pod that uses so much memory and disk.
func figures(uid string, memory, disk uint64) statsapi.PodStats {
	return statsapi.PodStats{
		PodRef: statsapi.PodReference{UID: uid}, Memory: &statsapi.MemoryStats{WorkingSetBytes: &memory},
		EphemeralStorage: &statsapi.FsStats{UsedBytes: &disk, InodesUsed: new(1000 - disk)},
	}
}

func TestRank(t *testing.T) {
	pods := []*v1.Pod{
		testPod("guaranteed", 0, "500", "500"), testPod("burst", 0, "100", "100"), testPod("besteffort", 0, "", ""),
		testPod("important", 10, "", ""), testPod("unseen", 1000, "", ""),
	}
	pods[2].Spec.InitContainers[0].Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse("20")} // of the sidecar
	stats := []statsapi.PodStats{figures("guaranteed", 400, 310), figures("burst", 250, 300), figures("besteffort", 200, 110), figures("important", 900, 900)}
	for signal, want := range map[Signal]string{
		MemoryAvailable:   "unseen besteffort burst important guaranteed",
		NodeFsAvailable:   "unseen burst besteffort important guaranteed",
		ImageFsAvailable:  "unseen burst besteffort important guaranteed",
		NodeFsInodesFree:  "unseen besteffort burst guaranteed important",
		ImageFsInodesFree: "unseen besteffort burst guaranteed important",
	} {
		var names []string
		for _, p := range rank(pods, stats, signal) {
			names = append(names, p.Name)
		}
		if diff := cmp.Diff(want, strings.Join(names, " ")); diff != "" {
			t.Errorf("%s: %s", signal, diff)
		}
	}
}

// Whatever the pods, no pair of neighbours is in the wrong order by the rules, and none is lost.
func TestRankPairs(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		var pods []*v1.Pod
		var stats []statsapi.PodStats
		used, asked := map[string]int{}, map[string]int{}
		for i := range 12 {
			name := strconv.Itoa(i)
			asked[name] = r.IntN(4) * 100
			pods = append(pods, testPod(name, int32(r.IntN(3)), strconv.Itoa(asked[name]), ""))
			if r.IntN(5) > 0 {
				used[name] = r.IntN(400)
				stats = append(stats, figures(name, uint64(used[name]), 0))
			}
		}
		ranked := rank(pods, stats, MemoryAvailable)
		if len(ranked) != len(pods) {
			t.Fatalf("%d of %d pods", len(ranked), len(pods))
		}
		worth := func(p *v1.Pod) int { // the larger, the earlier
			n, known := used[p.Name]
			score := 10000 * int(2-*p.Spec.Priority)
			switch {
			case !known:
				return score + 10_000_000
			case n > asked[p.Name]:
				score += 1_000_000
			}
			return score + n - asked[p.Name]
		}
		for i := 1; i < len(ranked); i++ {
			if _, known := used[ranked[i].Name]; known && worth(ranked[i-1]) < worth(ranked[i]) {
				t.Errorf("seed %d: %s before %s", seed, ranked[i-1].Name, ranked[i].Name)
			}
		}
	}
}
