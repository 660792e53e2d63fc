package gc

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl"
	planner "github.com/kdiag/kdiag/crictl/gc"
	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// A Policy is what is kept of dead containers.
type Policy struct {
	MinAge          time.Duration // --minimum-container-ttl-duration, 0: since the creation
	MaxPerContainer int           // --maximum-dead-containers-per-container, 1: of one container of one pod; below 0: all
	Max             int           // --maximum-dead-containers, -1: on the node; below 0: all
}

// A unit is all instances of one container of one pod, the kubelet's evict unit.
type unit struct{ uid, name string }

// A dead container is one that does not run and is old enough.
type dead struct {
	unit
	id      string
	created int64 // Unix nanoseconds
	unknown bool  // it may run after all
	listed  *runtimeapi.Container
}

// chooseContainers says which containers go, in the order of their removal. removable is asked for pods that may lose
// all; it is nil as long as not all sources of pods were seen.
//
// The newest of a unit are told by the planner of kdiag gc-exited. The kubelet goes further than that planner, which works
// beside a kubelet and not in its place: it counts created and unknown containers as dead, it takes the last one of a pod
// that is gone and, with MaxPerContainer 0, of any, and it enforces Max.
func chooseContainers(all []*runtimeapi.Container, p Policy, removable func(types.UID) bool, now time.Time) []dead {
	var gone, rest []dead
	for _, c := range deadContainers(all, p.MinAge, now) {
		if removable != nil && removable(types.UID(c.uid)) {
			gone = append(gone, c)
		} else {
			rest = append(rest, c)
		}
	}
	slices.SortFunc(gone, older)
	units := map[unit]bool{}
	for i := range rest {
		units[rest[i].unit] = true
	}
	if p.MaxPerContainer >= 0 {
		var beyond []dead
		beyond, rest = beyondNewest(rest, p.MaxPerContainer, now)
		gone = append(gone, beyond...)
	}
	if p.Max >= 0 && len(rest) > p.Max {
		var beyond []dead
		beyond, rest = beyondNewest(rest, max(1, p.Max/len(units)), now)
		slices.SortFunc(rest, older)
		gone = append(append(gone, beyond...), rest[:max(0, len(rest)-p.Max)]...)
	}
	return gone
}

func deadContainers(all []*runtimeapi.Container, minAge time.Duration, now time.Time) []dead {
	var out []dead
	latest := now.Add(-minAge).UnixNano()
	for _, c := range all {
		if c.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING && c.GetCreatedAt() <= latest {
			out = append(out, dead{
				unit: unit{c.GetLabels()[container.PodUIDLabel], c.GetMetadata().GetName()}, id: c.GetId(), created: c.GetCreatedAt(),
				unknown: c.GetState() == runtimeapi.ContainerState_CONTAINER_UNKNOWN, listed: c,
			})
		}
	}
	return out
}

// older orders by creation, as byCreated of kuberuntime_gc.go does; the id makes the order total.
func older(a, b dead) int {
	return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(a.listed.GetMetadata().GetAttempt(), b.listed.GetMetadata().GetAttempt()),
		cmp.Compare(a.id, b.id))
}

// beyondNewest parts the containers that are not among the newest of their unit, oldest first, from the others. The planner
// is told that each pod has one sandbox that is ready, so that it looks at nothing but the containers.
func beyondNewest(all []dead, keep int, now time.Time) (beyond, rest []dead) {
	if keep == 0 {
		slices.SortFunc(all, older)
		return all, nil
	}
	node := planner.Node{Kubelet: planner.Policy{Keep: keep}}
	pods, byID := map[string]*crictl.Pod{}, make(map[string]*dead, len(all))
	for i := range all {
		c := &all[i]
		byID[c.id] = c
		if pods[c.uid] == nil {
			pods[c.uid] = &crictl.Pod{UID: c.uid}
			node.Sandboxes = append(node.Sandboxes, crictl.PodSandbox{ID: c.uid, Pod: pods[c.uid], State: crictl.SandboxReady})
		}
		node.Containers = append(node.Containers, crictl.Container{
			ID: c.id, SandboxID: c.uid, Name: c.name, Pod: pods[c.uid], CreatedAt: c.created, State: crictl.ContainerExited,
			Attempt: c.listed.GetMetadata().GetAttempt(),
		})
	}
	// The kubelet's age counts from the creation, and has been looked at.
	node.Finished = func(id string) (time.Time, bool) { return time.Unix(0, byID[id].created), true }
	for _, v := range planner.Make(node, planner.Rules{IgnorePodLiveness: true}, now).Remove {
		beyond = append(beyond, *byID[v.ID])
		delete(byID, v.ID)
	}
	for i := range all {
		if byID[all[i].id] != nil {
			rest = append(rest, all[i])
		}
	}
	return beyond, rest
}

// chooseSandboxes says which sandboxes go, oldest first: those that are not ready and hold no container, but for the newest
// of a pod that may not lose all. Ages and numbers do not matter. This is the planner's choice as it is; only the evidence for
// a pod's end is the pod workers' word.
func chooseSandboxes(
	sandboxes []*runtimeapi.PodSandbox, containers []*runtimeapi.Container, removable func(types.UID) bool, now time.Time,
) []string {
	node := planner.Node{}
	alive := planner.Evidence{}
	for _, s := range sandboxes {
		uid := s.GetMetadata().GetUid()
		if !removable(types.UID(uid)) {
			alive.Pods = append(alive.Pods, planner.KubeletPod{UID: uid})
		}
		state := crictl.SandboxNotReady
		if s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			state = crictl.SandboxReady
		}
		node.Sandboxes = append(node.Sandboxes, crictl.PodSandbox{
			ID: s.GetId(), Pod: &crictl.Pod{UID: uid}, ConfigSource: "api", CreatedAt: s.GetCreatedAt(),
			Attempt: s.GetMetadata().GetAttempt(), State: state,
		})
	}
	for _, c := range containers { // whatever their state, they keep their sandbox
		node.Containers = append(node.Containers, crictl.Container{
			ID: c.GetId(), SandboxID: c.GetPodSandboxId(), Pod: &crictl.Pod{}, State: crictl.ContainerRunning,
		})
	}
	node.Pods = planner.NewLiveness(&alive)
	var ids []string
	for _, v := range planner.Make(node, planner.Rules{}, now).Remove {
		ids = append(ids, v.ID)
	}
	return ids
}
