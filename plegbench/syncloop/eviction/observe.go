package eviction

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// An observation is what is left for a signal.
type observation struct {
	available, capacity *resource.Quantity
	at                  time.Time // zero: not known
}

type observations map[Signal]observation

// observe takes the signals from a summary. What the summary lacks is missing.
func observe(s *statsapi.Summary) observations {
	o := observations{}
	o.memory(MemoryAvailable, s.Node.Memory)
	o.fs(NodeFsAvailable, NodeFsInodesFree, s.Node.Fs)
	if r := s.Node.Runtime; r != nil {
		o.fs(ImageFsAvailable, ImageFsInodesFree, r.ImageFs)
	}
	if r := s.Node.Rlimit; r != nil && r.MaxPID != nil && r.NumOfRunningProcesses != nil {
		o.add(PIDAvailable, *r.MaxPID-*r.NumOfRunningProcesses, *r.MaxPID, resource.DecimalSI, r.Time)
	}
	return o
}

func (o observations) memory(signal Signal, m *statsapi.MemoryStats) {
	if m != nil && m.AvailableBytes != nil && m.WorkingSetBytes != nil {
		o.add(signal, int64(*m.AvailableBytes), int64(*m.AvailableBytes+*m.WorkingSetBytes), resource.BinarySI, m.Time)
	}
}

func (o observations) fs(bytes, files Signal, f *statsapi.FsStats) {
	if f != nil && f.AvailableBytes != nil && f.CapacityBytes != nil {
		o.add(bytes, int64(*f.AvailableBytes), int64(*f.CapacityBytes), resource.BinarySI, f.Time)
	}
	if f != nil && f.InodesFree != nil && f.Inodes != nil {
		o.add(files, int64(*f.InodesFree), int64(*f.Inodes), resource.DecimalSI, f.Time)
	}
}

func (o observations) add(signal Signal, available, capacity int64, format resource.Format, at metav1.Time) {
	o[signal] = observation{resource.NewQuantity(available, format), resource.NewQuantity(capacity, format), at.Time}
}

// met returns the thresholds of which less is left than they ask for, by index. With reclaim their least amount to
// reclaim comes on top.
func met(all []Threshold, o observations, reclaim bool) map[int]bool {
	out := map[int]bool{}
	for i, t := range all {
		seen, ok := o[t.Signal]
		if !ok {
			continue
		}
		limit := t.Value.of(seen.capacity)
		if reclaim && t.MinReclaim != nil {
			limit.Add(t.MinReclaim.of(seen.capacity))
		}
		if limit.Cmp(*seen.available) > 0 {
			out[i] = true
		}
	}
	return out
}

// A state is what a pass leaves for the next. Thresholds are known by their index.
type state struct {
	since    map[int]time.Time                  // when a threshold that is met was found so first
	acting   map[int]bool                       // met for as long as their grace period
	pressure map[v1.NodeConditionType]time.Time // when a condition was last found
	seen     observations
}

// next weighs an observation. It returns the new state, the thresholds that now call for an eviction, memory first,
// and those that are met but not yet for long enough. A threshold whose figures are no newer than those of the last
// pass calls for nothing: what was done then may not show yet.
func (s state) next(all []Threshold, o observations, now time.Time) (n state, starved, early []int) {
	found := met(all, o, false)
	for i := range met(all, o, true) {
		if s.acting[i] {
			found[i] = true
		}
	}
	n = state{map[int]time.Time{}, map[int]bool{}, maps.Clone(s.pressure), o}
	if n.pressure == nil {
		n.pressure = map[v1.NodeConditionType]time.Time{}
	}
	for _, i := range slices.Sorted(maps.Keys(found)) {
		t := all[i]
		since, ok := s.since[i]
		if !ok {
			since = now
		}
		n.since[i] = since
		n.pressure[t.Signal.condition()] = now
		if now.Sub(since) < t.Grace {
			early = append(early, i)
			continue
		}
		n.acting[i] = true
		last, ok := s.seen[t.Signal]
		if at := o[t.Signal].at; !ok || at.IsZero() || at.After(last.at) {
			starved = append(starved, i)
		}
	}
	slices.SortStableFunc(starved, func(a, b int) int {
		return trueFirst(all[a].Signal == MemoryAvailable, all[b].Signal == MemoryAvailable)
	})
	return n, starved, early
}

// conditions are those that were found within the transition period.
func (s state) conditions(period time.Duration, now time.Time) []v1.NodeConditionType {
	var out []v1.NodeConditionType
	for _, c := range []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure} {
		if at, ok := s.pressure[c]; ok && now.Sub(at) < period {
			out = append(out, c)
		}
	}
	return out
}
