package eviction

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podresource "k8s.io/component-helpers/resource"
	corev1 "k8s.io/component-helpers/scheduling/corev1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// A Signal is a resource of which a node may run out.
type Signal string

// The signals.
const (
	MemoryAvailable   Signal = "memory.available"
	NodeFsAvailable   Signal = "nodefs.available"
	NodeFsInodesFree  Signal = "nodefs.inodesFree"
	ImageFsAvailable  Signal = "imagefs.available"
	ImageFsInodesFree Signal = "imagefs.inodesFree"
	PIDAvailable      Signal = "pid.available"
)

// Names of resources that only evictions know.
const (
	inodes v1.ResourceName = "inodes"
	pids   v1.ResourceName = "pids"
)

// resource returns the resource of a signal.
func (s Signal) resource() v1.ResourceName {
	switch s {
	case MemoryAvailable:
		return v1.ResourceMemory
	case NodeFsInodesFree, ImageFsInodesFree:
		return inodes
	case PIDAvailable:
		return pids
	}
	return v1.ResourceEphemeralStorage
}

// condition is the node's condition that a signal causes.
func (s Signal) condition() v1.NodeConditionType {
	switch s {
	case MemoryAvailable:
		return v1.NodeMemoryPressure
	case PIDAvailable:
		return v1.NodePIDPressure
	}
	return v1.NodeDiskPressure
}

// A Value is an amount, or a share of the capacity.
type Value struct {
	Quantity *resource.Quantity // nil: Share counts
	Share    float32            // 0 to 1, in the kubelet's single precision
}

// of returns the amount of a capacity.
func (v Value) of(capacity *resource.Quantity) resource.Quantity {
	if v.Quantity != nil {
		return v.Quantity.DeepCopy()
	}
	return *resource.NewQuantity(int64(float64(capacity.Value())*float64(v.Share)), resource.BinarySI)
}

// A Threshold is met when less than its value is left.
type Threshold struct {
	Signal Signal
	Value
	GracePeriod time.Duration // for which a soft threshold must be met before a pod is evicted; 0: a hard one
	MinReclaim  *Value        // what must be left beyond the value until the threshold is resolved; nil: nothing
}

// ParseThresholdConfig reads the thresholds of a KubeletConfiguration, such as memory.available: 100Mi or
// nodefs.available: 10%, with the grace periods of the soft ones, and what is to be reclaimed at least.
func ParseThresholdConfig(hard, soft, gracePeriods, minReclaims map[string]string) ([]Threshold, error) {
	var all []Threshold
	for i, texts := range []map[string]string{hard, soft} {
		for _, signal := range slices.Sorted(maps.Keys(texts)) {
			t, err := parse("eviction threshold", signal, texts[signal], 1)
			if err == nil && i == 1 {
				if t.GracePeriod, err = time.ParseDuration(gracePeriods[signal]); err != nil || t.GracePeriod < 0 {
					err = fmt.Errorf("grace period must be specified for the soft eviction threshold %s: %q is none",
						signal, gracePeriods[signal])
				}
			}
			if err != nil {
				return nil, err
			}
			all = append(all, t)
		}
	}
	for _, signal := range slices.Sorted(maps.Keys(minReclaims)) {
		least, err := parse("eviction minimum reclaim", signal, minReclaims[signal], 0)
		if err != nil {
			return nil, err
		}
		for i := range all {
			if all[i].Signal == least.Signal {
				all[i].MinReclaim = &least.Value
			}
		}
	}
	return all, nil
}

// parse reads a value, whose amount must have at least that sign.
func parse(what, signal, text string, leastSign int) (t Threshold, err error) {
	t.Signal = Signal(signal)
	known := []Signal{
		MemoryAvailable, NodeFsAvailable, NodeFsInodesFree, ImageFsAvailable, ImageFsInodesFree, PIDAvailable,
	}
	share, isShare := strings.CutSuffix(text, "%")
	switch {
	case !slices.Contains(known, t.Signal):
		err = errors.New("there is no such eviction signal")
	case isShare:
		percent, problem := strconv.ParseFloat(share, 32)
		if problem != nil || !(percent >= 0 && percent <= 100) {
			err = errors.New("must be between 0% and 100%")
		}
		if percent < 100 { // 100 % is one of the ways to switch a default off
			t.Share = float32(percent) / 100
		}
	default:
		var q resource.Quantity
		if q, err = resource.ParseQuantity(text); err == nil && q.Sign() < leastSign {
			err = errors.New("must be positive")
		}
		t.Quantity = &q
	}
	if err != nil {
		err = fmt.Errorf("%s %s=%s: %w", what, signal, text, err)
	}
	return t, err
}

// An observation is the available amount of a signal's resource.
type observation struct {
	available, capacity *resource.Quantity
	at                  time.Time
}

type observations map[Signal]observation

// observe takes the signals from a summary. What the summary lacks is missing.
func observe(s *statsapi.Summary) observations {
	o := observations{}
	if m := s.Node.Memory; m != nil && m.AvailableBytes != nil && m.WorkingSetBytes != nil {
		o.add(MemoryAvailable, m.AvailableBytes, new(*m.AvailableBytes+*m.WorkingSetBytes), resource.BinarySI, m.Time)
	}
	if f := s.Node.Fs; f != nil {
		o.add(NodeFsAvailable, f.AvailableBytes, f.CapacityBytes, resource.BinarySI, f.Time)
		o.add(NodeFsInodesFree, f.InodesFree, f.Inodes, resource.DecimalSI, f.Time)
	}
	if r := s.Node.Runtime; r != nil && r.ImageFs != nil {
		o.add(ImageFsAvailable, r.ImageFs.AvailableBytes, r.ImageFs.CapacityBytes, resource.BinarySI, r.ImageFs.Time)
		o.add(ImageFsInodesFree, r.ImageFs.InodesFree, r.ImageFs.Inodes, resource.DecimalSI, r.ImageFs.Time)
	}
	if r := s.Node.Rlimit; r != nil && r.MaxPID != nil && r.NumOfRunningProcesses != nil {
		left := uint64(max(0, *r.MaxPID-*r.NumOfRunningProcesses))
		o.add(PIDAvailable, &left, new(uint64(*r.MaxPID)), resource.DecimalSI, r.Time)
	}
	return o
}

func (o observations) add(signal Signal, available, capacity *uint64, format resource.Format, at metav1.Time) {
	if available != nil && capacity != nil {
		left, all := resource.NewQuantity(int64(*available), format), resource.NewQuantity(int64(*capacity), format)
		o[signal] = observation{left, all, at.Time}
	}
}

// thresholdsMet returns the thresholds of which less is left than they ask for, or, with enforceMinReclaim, than what
// is to be reclaimed at least.
func thresholdsMet(all []Threshold, o observations, enforceMinReclaim bool) (out []Threshold) {
	for _, t := range all {
		seen, ok := o[t.Signal]
		if !ok {
			continue
		}
		limit := t.of(seen.capacity)
		if enforceMinReclaim && t.MinReclaim != nil {
			limit.Add(t.MinReclaim.of(seen.capacity))
		}
		if limit.Cmp(*seen.available) > 0 {
			out = append(out, t)
		}
	}
	return out
}

// A state is passed from one pass to the next.
type state struct {
	pressure map[v1.NodeConditionType]time.Time // when a condition was last found
	first    map[Threshold]time.Time            // when a threshold that is met was first found so
	met      []Threshold                        // for their grace periods
	seen     observations
}

// next weighs an observation. It returns the new state, and the thresholds that call for an eviction, memory first. A
// threshold that was met stays so until its minimum is reclaimed. One whose figures are no newer than those of the last
// pass calls for nothing: the effect of that pass may not show yet.
func (s state) next(all []Threshold, o observations, now time.Time) (n state, starved []Threshold) {
	n = state{pressure: map[v1.NodeConditionType]time.Time{}, first: map[Threshold]time.Time{}, seen: o}
	maps.Copy(n.pressure, s.pressure)
	for _, t := range slices.Concat(thresholdsMet(all, o, false), thresholdsMet(s.met, o, true)) {
		if _, ok := n.first[t]; ok {
			continue
		}
		n.first[t], n.pressure[t.Signal.condition()] = cmp.Or(s.first[t], now), now
		if now.Sub(n.first[t]) < t.GracePeriod {
			continue
		}
		n.met = append(n.met, t)
		if last, ok := s.seen[t.Signal]; !ok || o[t.Signal].at.After(last.at) {
			starved = append(starved, t)
		}
	}
	slices.SortStableFunc(starved, func(a, b Threshold) int {
		return trueFirst(a.Signal == MemoryAvailable, b.Signal == MemoryAvailable)
	})
	return n, starved
}

// conditions returns the conditions that were found within the transition period.
func (s state) conditions(period time.Duration, now time.Time) []v1.NodeConditionType {
	var out []v1.NodeConditionType
	for _, c := range []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure} {
		if at, ok := s.pressure[c]; ok && now.Sub(at) < period {
			out = append(out, c)
		}
	}
	return out
}

// rank puts the pods in the order of their eviction: first those without figures, then those that use more than they
// asked for, then those of lower priority, then those that are further beyond their request. Processes cannot be asked
// for: of those that have more, lower priority goes first.
func rank(pods []*v1.Pod, stats []statsapi.PodStats, signal Signal) []*v1.Pod {
	over := map[types.UID]int64{} // the usage beyond the request; may be negative
	for _, p := range pods {
		if s := statsOf(stats, p); s != nil {
			asked := podresource.PodRequests(p, podresource.PodResourcesOptions{})[signal.resource()]
			over[p.UID] = usage(s, signal) - asked.Value()
		}
	}
	return slices.SortedStableFunc(slices.Values(pods), func(a, b *v1.Pod) int {
		_, knownA := over[a.UID]
		_, knownB := over[b.UID]
		exceeds := cmp.Or(trueFirst(!knownA, !knownB), trueFirst(over[a.UID] > 0, over[b.UID] > 0))
		if signal == PIDAvailable {
			exceeds = 0
		}
		return cmp.Or(exceeds, cmp.Compare(corev1.PodPriority(a), corev1.PodPriority(b)),
			cmp.Compare(over[b.UID], over[a.UID]))
	})
}

// statsOf returns the figures of a pod, or nil.
func statsOf(stats []statsapi.PodStats, p *v1.Pod) *statsapi.PodStats {
	return pod.Find(stats, func(s statsapi.PodStats) bool { return s.PodRef.UID == string(p.UID) })
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

// usage returns a pod's usage of a signal's resource: bytes or inodes on all disks together, or processes.
func usage(s *statsapi.PodStats, signal Signal) int64 {
	disk := cmp.Or(s.EphemeralStorage, &statsapi.FsStats{})
	switch signal.resource() {
	case v1.ResourceMemory:
		return int64(ptr.Deref(cmp.Or(s.Memory, &statsapi.MemoryStats{}).WorkingSetBytes, 0))
	case inodes:
		return int64(ptr.Deref(disk.InodesUsed, 0))
	case pids:
		return int64(ptr.Deref(cmp.Or(s.ProcessStats, &statsapi.ProcessStats{}).ProcessCount, 0))
	}
	return int64(ptr.Deref(disk.UsedBytes, 0))
}
