package facts

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
)

// MostlyNewest reports whether most dead containers are the newest of their pod and name, which the kubelet keeps as
// long as the pod exists. Whether it does, no list of the runtime says.
func (c Census) MostlyNewest() bool {
	return c.BeyondNewest*2 < c.Exited && c.OldSandboxes*2 < max(c.DeadSandboxes, 1)
}

// NewestOf begins the sentence that says so.
func (c Census) NewestOf() string {
	if c.BeyondNewest == 0 && c.OldSandboxes == 0 {
		return "each is the newest"
	}
	return fmt.Sprintf("each but %s is the newest", units.Number(c.BeyondNewest+c.OldSandboxes))
}

// A heap is what has piled up under one pod: dead containers of one name, or dead sandboxes.
type PodCount struct {
	Pod    crictl.Pod
	Name   string // the container's name; empty for sandboxes
	Count  int
	Newest time.Time
}

// A census counts what no longer runs.
type Census struct {
	Exited        int
	ExitedBytes   int // of the exited containers' entries
	BeyondNewest  int // exited containers that are not the newest of their pod and name: the kubelet may remove them
	LastHour      int // exited containers created within the last hour
	DeadSandboxes int
	OldSandboxes  int        // dead sandboxes that are not the newest of their pod
	Containers    []PodCount // the largest first
	Sandboxes     []PodCount
}

// takeCensus counts the exited containers and dead sandboxes of the newest lists.
func takeCensus(f *Facts) Census {
	var c Census
	m := f.Measurement
	if m == nil {
		return c
	}
	if m.Containers != nil {
		countContainers(f, &c, m.Containers.Containers)
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

func countContainers(f *Facts, c *Census, containers []crictl.Container) {
	heaps := map[heapKey]*PodCount{}
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
		pod := PodOf(k.Pod)
		if !put(heaps, heapKey{pod.UID, pod.Namespace, pod.Name, k.Name}, pod, k.Name, k.Created()) {
			c.BeyondNewest++
		}
	}
	c.Containers = sorted(heaps)
}

func countSandboxes(c *Census, sandboxes []crictl.PodSandbox) {
	heaps := map[heapKey]*PodCount{}
	for i := range sandboxes {
		s := &sandboxes[i]
		if s.State != crictl.SandboxNotReady {
			continue
		}
		c.DeadSandboxes++
		pod := PodOf(s.Pod)
		if !put(heaps, heapKey{pod.UID, pod.Namespace, pod.Name, ""}, pod, "", s.Created()) {
			c.OldSandboxes++
		}
	}
	c.Sandboxes = sorted(heaps)
}

// put counts one object and reports whether it is the first of its heap.
func put(heaps map[heapKey]*PodCount, key heapKey, pod crictl.Pod, name string, created time.Time) bool {
	h, known := heaps[key]
	if !known {
		heaps[key] = &PodCount{Pod: pod, Name: name, Count: 1, Newest: created}
		return true
	}
	h.Count++
	if created.After(h.Newest) {
		h.Newest = created
	}
	return false
}

// sorted lists heaps, the largest first; equal ones by name.
func sorted(heaps map[heapKey]*PodCount) []PodCount {
	out := make([]PodCount, 0, len(heaps))
	for _, h := range heaps {
		out = append(out, *h)
	}
	slices.SortFunc(out, func(a, b PodCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Pod.Namespace, b.Pod.Namespace),
			cmp.Compare(a.Pod.Name, b.Pod.Name), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Pod.UID, b.Pod.UID))
	})
	return out
}

// PodOf is a pod that may be missing.
func PodOf(p *crictl.Pod) crictl.Pod {
	if p == nil {
		return crictl.Pod{}
	}
	return *p
}

// Label names a heap: batch/report-28 (job).
func (h PodCount) Label() string {
	kind := KindContainer
	if h.Name == "" {
		kind = KindSandbox
	}
	if h.Pod.Name == "" {
		return "containers that no kubelet made"
	}
	return LabelOf(kind, "", h.Pod.Namespace, h.Pod.Name, h.Name)
}
