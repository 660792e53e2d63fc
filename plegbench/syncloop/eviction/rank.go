package eviction

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// podStats are a summary's pods by UID.
type podStats map[string]*statsapi.PodStats

func statsByUID(s *statsapi.Summary) podStats {
	out := make(podStats, len(s.Pods))
	for i := range s.Pods {
		out[s.Pods[i].PodRef.UID] = &s.Pods[i]
	}
	return out
}

// A standing is what decides a pod's place.
type standing struct {
	pod      *v1.Pod
	known    bool // there are figures for it
	exceeds  bool // it uses more than it asked for
	priority int32
	over     int64 // its usage beyond its request; may be negative
}

// rank puts the pods in the order of their eviction: first those without figures, then those that use more than they
// asked for, then those of lower priority, then those that are further beyond their request. Processes cannot be
// asked for, so for them priority comes first.
func rank(pods []*v1.Pod, stats podStats, signal Signal, dedicatedImageFs bool) []*v1.Pod {
	all := make([]standing, 0, len(pods))
	for _, p := range pods {
		s := standing{pod: p, priority: priority(p)}
		if figures := stats[string(p.UID)]; figures != nil {
			s.known = true
			requested := request(p, signal.resource())
			s.over = usage(p, figures, signal, dedicatedImageFs) - requested.Value()
			s.exceeds = s.over > 0 && signal != PIDAvailable
		}
		all = append(all, s)
	}
	slices.SortStableFunc(all, func(a, b standing) int {
		known, order := trueFirst(!a.known, !b.known), cmp.Compare(a.priority, b.priority)
		if signal == PIDAvailable {
			return cmp.Or(order, known, cmp.Compare(b.over, a.over))
		}
		return cmp.Or(known, trueFirst(a.exceeds, b.exceeds), order, cmp.Compare(b.over, a.over))
	})
	out := make([]*v1.Pod, len(all))
	for i := range all {
		out[i] = all[i].pod
	}
	return out
}

func trueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func priority(p *v1.Pod) int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

// usage is how much of what a signal is about a pod uses: bytes, inodes or processes.
func usage(p *v1.Pod, s *statsapi.PodStats, signal Signal, dedicatedImageFs bool) int64 {
	switch signal.resource() {
	case v1.ResourceMemory:
		return memoryOf(s.Memory)
	case pids:
		if s.ProcessStats == nil || s.ProcessStats.ProcessCount == nil {
			return 0
		}
		return int64(*s.ProcessStats.ProcessCount)
	}
	of := bytesOf
	if signal.resource() == inodes {
		of = inodesOf
	}
	// With images on a file system of their own, the containers' layers are there too, and logs and volumes are not.
	onNodeFs := signal == NodeFsAvailable || signal == NodeFsInodesFree
	layers, rest := !dedicatedImageFs || !onNodeFs, !dedicatedImageFs || onNodeFs
	var total int64
	for i := range s.Containers {
		if layers {
			total += of(s.Containers[i].Rootfs)
		}
		if rest {
			total += of(s.Containers[i].Logs)
		}
	}
	for i := range s.VolumeStats {
		if rest && isLocal(p, s.VolumeStats[i].Name) {
			total += of(&s.VolumeStats[i].FsStats)
		}
	}
	return total
}

func memoryOf(m *statsapi.MemoryStats) int64 {
	if m == nil || m.WorkingSetBytes == nil {
		return 0
	}
	return int64(*m.WorkingSetBytes)
}

func bytesOf(f *statsapi.FsStats) int64 {
	if f == nil || f.UsedBytes == nil {
		return 0
	}
	return int64(*f.UsedBytes)
}

func inodesOf(f *statsapi.FsStats) int64 {
	if f == nil || f.InodesUsed == nil {
		return 0
	}
	return int64(*f.InodesUsed)
}

// isLocal reports whether a volume is on the node's disk.
func isLocal(p *v1.Pod, volume string) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v v1.Volume) bool {
		return v.Name == volume && (v.HostPath != nil || v.ConfigMap != nil || v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault)
	})
}

// request is what a pod asked for: its containers and sidecars together, or more if an init container needs more.
func request(p *v1.Pod, name v1.ResourceName) resource.Quantity {
	var sidecars, starting resource.Quantity
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		now := c.Resources.Requests[name].DeepCopy()
		now.Add(sidecars)
		if pod.IsSidecar(c) {
			sidecars = now.DeepCopy()
		}
		if now.Cmp(starting) > 0 {
			starting = now
		}
	}
	running := sidecars
	for _, c := range p.Spec.Containers {
		running.Add(c.Resources.Requests[name])
	}
	if starting.Cmp(running) > 0 {
		return starting
	}
	return running
}
