package gc

import (
	"slices"
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// ageBounds are the bounds of the age bars: an hour, a day, a week, 30 days.
func ageBounds() []time.Duration {
	const day = 24 * time.Hour
	return []time.Duration{time.Hour, day, 7 * day, 30 * day}
}

// Newest returns the newest exited instance of each pod and container, at most n of them, those of the units
// with the most instances first: whose ends say why containers exit on this node.
func Newest(node Node, n int) []Candidate {
	units := countUnits(&node)
	newest := make([]Candidate, 0, min(n, len(units)))
	for _, u := range units[:min(n, len(units))] {
		newest = append(newest, Candidate{ID: u.NewestID, PodUID: u.PodUID})
	}
	return newest
}

// TakeCensus counts. ends holds the ends that are known, by container id; limit is the largest message, in bytes, that
// the kubelet takes, see crictl.DefaultMessageLimit.
func TakeCensus(node Node, ends map[string]End, limit int64, now time.Time) Census {
	c := Census{LimitBytes: limit, Partial: node.Partial, ByAge: []AgeCount{}, ByReason: []ReasonCount{}}
	live := node.Pods
	if live == nil {
		live = &Liveness{}
	}
	c.LivenessKnown = live.complete
	c.countContainers(&node, now)
	c.countSandboxes(&node)
	c.ByPod = countUnits(&node)
	c.GonePods = gonePods(&node, live)
	gone := map[string]bool{}
	for i := range c.GonePods {
		gone[c.GonePods[i].PodUID] = true
	}
	for i := range c.ByPod {
		u := &c.ByPod[i]
		u.Gone = gone[u.PodUID]
		if end, ok := ends[u.NewestID]; ok {
			code := end.ExitCode
			u.LastReason, u.LastExitCode = end.Reason, &code
		}
	}
	c.States.UnitsWithExited = len(c.ByPod)
	c.byNamespace()
	c.byReason()
	if limit > 0 {
		c.ShareOfLimit = float64(c.Bytes) / float64(limit)
		c.ListOfLimit = float64(c.ListBytes) / float64(limit)
	}
	return c
}

func (c *Census) countContainers(node *Node, now time.Time) {
	bounds := ageBounds()
	ages := make([]AgeCount, len(bounds)+1)
	for i, b := range bounds {
		ages[i].UpToSeconds = b.Seconds()
	}
	for i := range node.Containers {
		k := &node.Containers[i]
		c.ListBytes += int64(k.Size)
		switch k.State {
		case crictl.ContainerCreated:
			c.States.Created++
		case crictl.ContainerRunning:
			c.States.Running++
		case crictl.ContainerExited:
			c.States.Exited++
			c.Bytes += int64(k.Size)
			at, _ := slices.BinarySearch(bounds, now.Sub(k.Created())+1)
			ages[at].Count++
			if k.Pod == nil || k.Pod.UID == "" || k.Name == "" {
				c.Unattributable++
			}
		default:
			c.States.Unknown++
		}
	}
	c.Total = c.States.Exited
	c.ByAge = ages
}

func (c *Census) countSandboxes(node *Node) {
	occupied := make(map[string]bool, len(node.Sandboxes))
	for i := range node.Containers {
		occupied[node.Containers[i].SandboxID] = true
	}
	for i := range node.Sandboxes {
		s := &node.Sandboxes[i]
		if s.State == crictl.SandboxReady {
			c.States.ReadySandboxes++
			continue
		}
		c.States.DeadSandboxes++
		c.SandboxBytes += int64(s.Size)
		if !occupied[s.ID] {
			c.States.EmptySandboxes++
		}
	}
	c.Sandboxes = c.States.DeadSandboxes
}
