package pleg

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// A state is that of a container between two relists, coarser than the runtime's (plegContainerState in
// pkg/kubelet/pleg/generic.go).
type state string

const (
	running     state = "running"
	exited      state = "exited"
	unknown     state = "unknown" // created, too
	nonExistent state = "non-existent"
)

// A record is one pod as it was when its events were last sent, and as it was listed last. Either may be nil. While a pod
// cannot be inspected old stays as it is, so that the next relist finds the same difference again.
type record struct {
	old, current *container.Pod
}

// stateOf is the state of the container or sandbox with that id in a listed pod, which may be nil.
func stateOf(pod *container.Pod, id string) state {
	if pod == nil {
		return nonExistent
	}
	for _, list := range [][]*container.Container{pod.Containers, pod.Sandboxes} {
		for _, c := range list {
			if c.ID.ID != id {
				continue
			}
			switch c.State {
			case container.Running:
				return running
			case container.Exited:
				return exited
			default:
				return unknown
			}
		}
	}
	return nonExistent
}

// computeEvents is what follows from one container's step from one state to another.
func computeEvents(uid types.UID, id string, from, to state) []Event {
	if from == to {
		return nil
	}
	switch to {
	case running:
		return []Event{{ID: uid, Type: ContainerStarted, Data: id}}
	case exited:
		return []Event{{ID: uid, Type: ContainerDied, Data: id}}
	case nonExistent:
		removed := Event{ID: uid, Type: ContainerRemoved, Data: id}
		if from == exited {
			return []Event{removed} // its death was told before
		}
		return []Event{{ID: uid, Type: ContainerDied, Data: id}, removed}
	default:
		return []Event{{ID: uid, Type: ContainerChanged, Data: id}}
	}
}

// ids are those of all containers and sandboxes in either half of a record, each once.
func (r *record) ids() []string {
	var out []string
	seen := map[string]bool{}
	for _, pod := range []*container.Pod{r.old, r.current} {
		if pod == nil {
			continue
		}
		for _, list := range [][]*container.Container{pod.Containers, pod.Sandboxes} {
			for _, c := range list {
				if !seen[c.ID.ID] {
					seen[c.ID.ID] = true
					out = append(out, c.ID.ID)
				}
			}
		}
	}
	return out
}

// keptIPs are the addresses that a new status shall have. A pod that was torn down has none any more, but its owner still
// wants to know which it had.
func keptIPs(status, before *container.PodStatus) []string {
	if len(status.IPs) > 0 || before == nil {
		return status.IPs
	}
	for _, sb := range status.SandboxStatuses {
		if container.SandboxState(sb.GetState()) == container.Running {
			return nil
		}
	}
	return before.IPs
}
