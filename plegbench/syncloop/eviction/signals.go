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
	pidAvailable      Signal = "pid.available" // is accepted and never met
)

// inodes is the name of a resource that only evictions know.
const inodes v1.ResourceName = "inodes"

// resource returns the resource of a signal.
func (s Signal) resource() v1.ResourceName {
	switch s {
	case MemoryAvailable:
		return v1.ResourceMemory
	case NodeFsInodesFree, ImageFsInodesFree:
		return inodes
	}
	return v1.ResourceEphemeralStorage
}

// condition is the node's condition that a signal causes.
func (s Signal) condition() v1.NodeConditionType {
	if s == MemoryAvailable {
		return v1.NodeMemoryPressure
	}
	return v1.NodeDiskPressure
}

// A Threshold is met when less than its value is left.
type Threshold struct {
	Signal   Signal
	Quantity *resource.Quantity // nil: Share counts
	Share    float32            // of the capacity, 0 to 1, in the kubelet's single precision
}

// value returns the least amount that must be available.
func (t Threshold) value(capacity *resource.Quantity) resource.Quantity {
	if t.Quantity != nil {
		return t.Quantity.DeepCopy()
	}
	return *resource.NewQuantity(int64(float64(capacity.Value())*float64(t.Share)), resource.BinarySI)
}

// Parse reads the hard thresholds of a KubeletConfiguration, such as memory.available: 100Mi or nodefs.available: 10%.
func Parse(hard map[string]string) ([]Threshold, error) {
	var all []Threshold
	for _, signal := range slices.Sorted(maps.Keys(hard)) {
		t, err := parse(signal, hard[signal])
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

func parse(signal, text string) (t Threshold, err error) {
	t.Signal = Signal(signal)
	known := []Signal{
		MemoryAvailable, NodeFsAvailable, NodeFsInodesFree, ImageFsAvailable, ImageFsInodesFree, pidAvailable,
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
		if q, err = resource.ParseQuantity(text); err == nil && q.Sign() <= 0 {
			err = errors.New("must be positive")
		}
		t.Quantity = &q
	}
	if err != nil {
		err = fmt.Errorf("eviction threshold %s=%s: %w", signal, text, err)
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
	return o
}

func (o observations) add(signal Signal, available, capacity *uint64, format resource.Format, at metav1.Time) {
	if available != nil && capacity != nil {
		left, all := resource.NewQuantity(int64(*available), format), resource.NewQuantity(int64(*capacity), format)
		o[signal] = observation{left, all, at.Time}
	}
}

// met returns the thresholds of which less is left than they ask for, memory first.
func met(all []Threshold, o observations) (out []Threshold) {
	for _, t := range all {
		if seen, ok := o[t.Signal]; ok {
			if limit := t.value(seen.capacity); limit.Cmp(*seen.available) > 0 {
				out = append(out, t)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Threshold) int {
		return trueFirst(a.Signal == MemoryAvailable, b.Signal == MemoryAvailable)
	})
	return out
}

// A state is passed from one pass to the next.
type state struct {
	pressure map[v1.NodeConditionType]time.Time // when a condition was last found
	seen     observations
}

// next weighs an observation. It returns the new state, and the thresholds that call for an eviction. A threshold whose
// figures are no newer than those of the last pass calls for nothing: the effect of that pass may not show yet.
func (s state) next(all []Threshold, o observations, now time.Time) (n state, starved []Threshold) {
	n = state{map[v1.NodeConditionType]time.Time{}, o}
	maps.Copy(n.pressure, s.pressure)
	for _, t := range met(all, o) {
		n.pressure[t.Signal.condition()] = now
		if last, ok := s.seen[t.Signal]; !ok || o[t.Signal].at.After(last.at) {
			starved = append(starved, t)
		}
	}
	return n, starved
}

// conditions are those that were found within the transition period.
func (s state) conditions(period time.Duration, now time.Time) []v1.NodeConditionType {
	var out []v1.NodeConditionType
	for _, c := range []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure} {
		if at, ok := s.pressure[c]; ok && now.Sub(at) < period {
			out = append(out, c)
		}
	}
	return out
}

// rank puts the pods in the order of their eviction: first those without figures, then those that use more than they
// asked for, then those of lower priority, then those that are further beyond their request.
func rank(pods []*v1.Pod, stats []statsapi.PodStats, signal Signal) []*v1.Pod {
	over := map[types.UID]int64{} // the usage beyond the request; may be negative
	for _, s := range stats {
		over[types.UID(s.PodRef.UID)] = usage(&s, signal)
	}
	for _, p := range pods {
		if used, ok := over[p.UID]; ok {
			over[p.UID] = used - request(p, signal.resource())
		}
	}
	return slices.SortedStableFunc(slices.Values(pods), func(a, b *v1.Pod) int {
		_, knownA := over[a.UID]
		_, knownB := over[b.UID]
		return cmp.Or(trueFirst(!knownA, !knownB), trueFirst(over[a.UID] > 0, over[b.UID] > 0),
			cmp.Compare(ptr.Deref(a.Spec.Priority, 0), ptr.Deref(b.Spec.Priority, 0)),
			cmp.Compare(over[b.UID], over[a.UID]))
	})
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

// usage returns a pod's usage of a signal's resource, in bytes or inodes, on all disks together.
func usage(s *statsapi.PodStats, signal Signal) int64 {
	disk := cmp.Or(s.EphemeralStorage, &statsapi.FsStats{})
	switch signal.resource() {
	case v1.ResourceMemory:
		return int64(ptr.Deref(cmp.Or(s.Memory, &statsapi.MemoryStats{}).WorkingSetBytes, 0))
	case inodes:
		return int64(ptr.Deref(disk.InodesUsed, 0))
	}
	return int64(ptr.Deref(disk.UsedBytes, 0))
}

// request sums the requests of a pod's containers and sidecars.
func request(p *v1.Pod, name v1.ResourceName) (sum int64) {
	for _, c := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers) {
		if q := c.Resources.Requests[name]; pod.Container(p.Spec.InitContainers, c.Name) == nil || pod.IsSidecar(&c) {
			sum += q.Value()
		}
	}
	return sum
}
