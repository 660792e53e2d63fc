package gc

import (
	"cmp"
	"slices"
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// countUnits counts exited containers by pod UID and container name, most first. Those without either are left out.
func countUnits(node *Node) []PodCount {
	at := map[unit]int{}
	out := []PodCount{}
	newest := []*crictl.Container{}
	for i := range node.Containers {
		k := &node.Containers[i]
		if k.State != crictl.ContainerExited || k.Pod == nil || k.Pod.UID == "" || k.Name == "" {
			continue
		}
		u := unit{k.Pod.UID, k.Name}
		j, ok := at[u]
		if !ok {
			j = len(out)
			at[u] = j
			out = append(out, PodCount{
				Namespace: k.Pod.Namespace, Pod: k.Pod.Name, PodUID: k.Pod.UID, Container: k.Name, Oldest: k.Created(),
			})
			newest = append(newest, k)
		}
		p := &out[j]
		p.Count++
		p.Bytes += int64(k.Size)
		if k.Created().Before(p.Oldest) {
			p.Oldest = k.Created()
		}
		if olderContainer(newest[j], k) <= 0 {
			newest[j] = k
			p.Newest, p.NewestID = k.Created(), k.ID
		}
	}
	slices.SortFunc(out, func(a, b PodCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod),
			cmp.Compare(a.PodUID, b.PodUID), cmp.Compare(a.Container, b.Container))
	})
	return out
}

// byNamespace and byReason sum up ByPod.
func (c *Census) byNamespace() {
	c.ByNamespace = []NamespaceCount{}
	at := map[string]int{}
	pods := map[string]bool{}
	for i := range c.ByPod {
		u := &c.ByPod[i]
		j, ok := at[u.Namespace]
		if !ok {
			j = len(c.ByNamespace)
			at[u.Namespace] = j
			c.ByNamespace = append(c.ByNamespace, NamespaceCount{Namespace: u.Namespace})
		}
		n := &c.ByNamespace[j]
		n.Count += u.Count
		n.Bytes += u.Bytes
		if !pods[u.PodUID] {
			pods[u.PodUID] = true
			n.Pods++
		}
	}
	c.States.PodsWithExited = len(pods)
	slices.SortFunc(c.ByNamespace, func(a, b NamespaceCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Namespace, b.Namespace))
	})
}

func (c *Census) byReason() {
	type key struct {
		reason string
		code   int32
	}
	at := map[key]int{}
	for i := range c.ByPod {
		u := &c.ByPod[i]
		if u.LastExitCode == nil {
			continue
		}
		k := key{u.LastReason, *u.LastExitCode}
		j, ok := at[k]
		if !ok {
			j = len(c.ByReason)
			at[k] = j
			c.ByReason = append(c.ByReason, ReasonCount{Reason: k.reason, ExitCode: k.code})
		}
		c.ByReason[j].Count++
		c.ByReason[j].Exited += u.Count
	}
	slices.SortFunc(c.ByReason, func(a, b ReasonCount) int {
		return cmp.Or(cmp.Compare(b.Exited, a.Exited), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.ExitCode, b.ExitCode))
	})
}

// gonePods are the pods that no longer exist and of which the lists hold something, in the order of their names.
func gonePods(node *Node, live *Liveness) []GonePod {
	p := newPlanner(&Node{Sandboxes: node.Sandboxes, Containers: node.Containers, Pods: live}, Rules{}, time.Unix(1<<33, 0))
	found := map[string]*GonePod{}
	for i := range node.Sandboxes {
		v := p.views[i]
		if v == nil || !v.gone {
			continue
		}
		g := found[v.pod.UID]
		if g == nil {
			g = &GonePod{Namespace: v.pod.Namespace, Pod: v.pod.Name, PodUID: v.pod.UID}
			found[v.pod.UID] = g
		}
		g.Sandboxes++
	}
	for i := range node.Containers {
		if k := &node.Containers[i]; k.Pod != nil && found[k.Pod.UID] != nil {
			found[k.Pod.UID].Containers++
		}
	}
	out := make([]GonePod, 0, len(found))
	for _, g := range found {
		out = append(out, *g)
	}
	slices.SortFunc(out, func(a, b GonePod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.PodUID, b.PodUID))
	})
	return out
}
