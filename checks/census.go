package checks

import (
	"cmp"
	"slices"
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// A heap is what has piled up under one pod: dead containers of one name, or dead sandboxes.
type heap struct {
	Pod    crictl.Pod
	Name   string // the container's name; empty for sandboxes
	Count  int
	Newest time.Time
}

// A census counts what no longer runs.
type census struct {
	Exited        int
	ExitedBytes   int // of the exited containers' entries
	BeyondNewest  int // exited containers that are not the newest of their pod and name: the kubelet may remove them
	LastHour      int // exited containers created within the last hour
	DeadSandboxes int
	OldSandboxes  int    // dead sandboxes that are not the newest of their pod
	Containers    []heap // the largest first
	Sandboxes     []heap
}

// takeCensus counts the exited containers and dead sandboxes of the newest lists.
func (f *Facts) takeCensus() census {
	var c census
	m := f.Measurement
	if m == nil {
		return c
	}
	if m.Containers != nil {
		f.countContainers(&c, m.Containers.Containers)
	}
	if m.Sandboxes != nil {
		countSandboxes(&c, m.Sandboxes.Sandboxes)
	}
	if f.Summary != nil {
		if s := f.Summary.Containers; s != nil {
			c.Exited = max(c.Exited, s.Exited)
		}
		if s := f.Summary.Sandboxes; s != nil {
			c.DeadSandboxes = max(c.DeadSandboxes, s.NotReady)
		}
		if n := f.Summary.ExitedBeyondNewest; n != nil {
			c.BeyondNewest = *n
		}
	}
	return c
}

// heapKey groups as the kubelet's garbage collection does: by pod UID and container name.
type heapKey struct{ uid, namespace, pod, name string }

func (f *Facts) countContainers(c *census, containers []crictl.Container) {
	heaps := map[heapKey]*heap{}
	hourAgo := f.Now.Add(-time.Hour)
	for i := range containers {
		k := &containers[i]
		if k.State != crictl.ContainerExited {
			continue
		}
		c.Exited++
		c.ExitedBytes += int(k.Size)
		if k.Created().After(hourAgo) {
			c.LastHour++
		}
		pod := podOf(k.Pod)
		if !put(heaps, heapKey{pod.UID, pod.Namespace, pod.Name, k.Name}, pod, k.Name, k.Created()) {
			c.BeyondNewest++
		}
	}
	c.Containers = sorted(heaps)
}

func countSandboxes(c *census, sandboxes []crictl.PodSandbox) {
	heaps := map[heapKey]*heap{}
	for i := range sandboxes {
		s := &sandboxes[i]
		if s.State != crictl.SandboxNotReady {
			continue
		}
		c.DeadSandboxes++
		pod := podOf(s.Pod)
		if !put(heaps, heapKey{pod.UID, pod.Namespace, pod.Name, ""}, pod, "", s.Created()) {
			c.OldSandboxes++
		}
	}
	c.Sandboxes = sorted(heaps)
}

// put counts one object and reports whether it is the first of its heap.
func put(heaps map[heapKey]*heap, key heapKey, pod crictl.Pod, name string, created time.Time) bool {
	h, known := heaps[key]
	if !known {
		heaps[key] = &heap{Pod: pod, Name: name, Count: 1, Newest: created}
		return true
	}
	h.Count++
	if created.After(h.Newest) {
		h.Newest = created
	}
	return false
}

// sorted lists heaps, the largest first; equal ones by name.
func sorted(heaps map[heapKey]*heap) []heap {
	out := make([]heap, 0, len(heaps))
	for _, h := range heaps {
		out = append(out, *h)
	}
	slices.SortFunc(out, func(a, b heap) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Pod.Namespace, b.Pod.Namespace),
			cmp.Compare(a.Pod.Name, b.Pod.Name), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Pod.UID, b.Pod.UID))
	})
	return out
}

// podOf is a pod that may be missing.
func podOf(p *crictl.Pod) crictl.Pod {
	if p == nil {
		return crictl.Pod{}
	}
	return *p
}

// label names a heap: batch/report-28 (job).
func (h heap) label() string {
	kind := kindContainer
	if h.Name == "" {
		kind = kindSandbox
	}
	if h.Pod.Name == "" {
		return "containers that no kubelet made"
	}
	return labelOf(kind, "", h.Pod.Namespace, h.Pod.Name, h.Name)
}
