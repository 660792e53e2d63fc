package eviction

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

func testPod(name string, priority int32, memory, disk string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}, Spec: v1.PodSpec{Priority: &priority}}
	list := v1.ResourceList{}
	if memory != "" {
		list[v1.ResourceMemory] = resource.MustParse(memory)
	}
	if disk != "" {
		list[v1.ResourceEphemeralStorage] = resource.MustParse(disk)
	}
	p.Spec.Containers = []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: list}}}
	p.Spec.Volumes = []v1.Volume{
		{Name: "local", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		{Name: "memory", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}},
	}
	return p
}

// figures are of a pod that uses so much memory, so many processes, and as much of its layer, logs and volume.
func figures(uid string, memory, processes, layer, logs, volume uint64) statsapi.PodStats {
	fs := func(n uint64) *statsapi.FsStats { return &statsapi.FsStats{UsedBytes: new(n), InodesUsed: new(n / 10)} }
	return statsapi.PodStats{
		PodRef: statsapi.PodReference{UID: uid}, Memory: &statsapi.MemoryStats{WorkingSetBytes: new(memory)},
		ProcessStats:     &statsapi.ProcessStats{ProcessCount: new(processes)},
		EphemeralStorage: &statsapi.FsStats{UsedBytes: new(layer + logs + volume)},
		Containers:       []statsapi.ContainerStats{{Name: "c", Memory: &statsapi.MemoryStats{WorkingSetBytes: new(memory)}, Rootfs: fs(layer), Logs: fs(logs)}},
		VolumeStats:      []statsapi.VolumeStats{{Name: "local", FsStats: *fs(volume)}, {Name: "memory", FsStats: *fs(9999)}, {Name: "pvc", FsStats: *fs(9999)}},
	}
}

func podNames(pods []*v1.Pod) string {
	var names []string
	for _, p := range pods {
		names = append(names, p.Name)
	}
	return strings.Join(names, " ")
}

func TestRank(t *testing.T) {
	pods := []*v1.Pod{
		testPod("guaranteed", 0, "500", "500"), testPod("burst", 0, "100", "100"), testPod("besteffort", 0, "", ""),
		testPod("important", 10, "", ""), testPod("unseen", 1000, "", ""),
	}
	s := &statsapi.Summary{Pods: []statsapi.PodStats{
		figures("guaranteed", 400, 90, 10, 200, 100), figures("burst", 250, 5, 300, 0, 0), figures("besteffort", 200, 7, 0, 110, 0), figures("important", 900, 99, 0, 0, 900),
	}}
	stats := statsByUID(s)
	for _, tt := range []struct {
		signal    Signal
		dedicated bool
		want      string
	}{
		{MemoryAvailable, false, "unseen besteffort burst important guaranteed"},
		{PIDAvailable, false, "guaranteed besteffort burst important unseen"},
		{NodeFsAvailable, false, "unseen burst besteffort important guaranteed"},
		{NodeFsAvailable, true, "unseen besteffort important burst guaranteed"},
		{ImageFsAvailable, true, "unseen burst besteffort guaranteed important"},
		{NodeFsInodesFree, false, "unseen guaranteed burst besteffort important"},
		{ImageFsInodesFree, true, "unseen burst guaranteed besteffort important"},
	} {
		if diff := cmp.Diff(tt.want, podNames(rank(pods, stats, tt.signal, tt.dedicated))); diff != "" {
			t.Errorf("%s, dedicated %v: %s", tt.signal, tt.dedicated, diff)
		}
	}
}

// Whatever the pods, no pair of neighbours is in the wrong order by the rules, and none is lost.
func TestRankPairs(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		var pods []*v1.Pod
		s := &statsapi.Summary{}
		used, asked := map[string]int{}, map[string]int{}
		for i := range 12 {
			name := strconv.Itoa(i)
			asked[name] = r.IntN(4) * 100
			pods = append(pods, testPod(name, int32(r.IntN(3)), strconv.Itoa(asked[name]), ""))
			if r.IntN(5) > 0 {
				used[name] = r.IntN(400)
				s.Pods = append(s.Pods, figures(name, uint64(used[name]), 1, 0, 0, 0))
			}
		}
		ranked := rank(pods, statsByUID(s), MemoryAvailable, false)
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
			if worth(ranked[i-1]) < worth(ranked[i]) {
				t.Errorf("seed %d: %s before %s", seed, ranked[i-1].Name, ranked[i].Name)
			}
		}
	}
}

func TestRequest(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	c := func(memory string, restart *v1.ContainerRestartPolicy) v1.Container {
		return v1.Container{RestartPolicy: restart, Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse(memory)}}}
	}
	for name, tt := range map[string]struct {
		spec v1.PodSpec
		want int64
	}{
		"sum":                  {v1.PodSpec{Containers: []v1.Container{c("10", nil), c("20", nil)}}, 30},
		"large init":           {v1.PodSpec{Containers: []v1.Container{c("10", nil)}, InitContainers: []v1.Container{c("50", nil), c("40", nil)}}, 50},
		"sidecar":              {v1.PodSpec{Containers: []v1.Container{c("10", nil)}, InitContainers: []v1.Container{c("5", &always)}}, 15},
		"init beside sidecars": {v1.PodSpec{Containers: []v1.Container{c("10", nil)}, InitContainers: []v1.Container{c("5", &always), c("30", nil), c("1", &always)}}, 35},
	} {
		for range 2 { // it must not change what it reads
			if got := request(&v1.Pod{Spec: tt.spec}, v1.ResourceMemory); got.Value() != tt.want {
				t.Errorf("%s: %d, want %d", name, got.Value(), tt.want)
			}
		}
	}
}
