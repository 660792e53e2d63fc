package pleg

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/kdiag/kdiag/plegbench/syncloop/container"
)

// A state is the state of a container for PLEG (plegContainerState in pkg/kubelet/pleg/generic.go).
type state string

const (
	running     state = "running"
	exited      state = "exited"
	unknown     state = "unknown" // or created
	nonExistent state = "non-existent"
)

// A record is one pod as of its last events, and as it was last listed. Either may be nil. While a pod cannot be
// inspected old does not change, so that the next relist finds the same difference again.
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

// computeEvents returns the events of one container's change of state.
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
			return []Event{removed} // its end was sent before
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

// keptIPs are the addresses of a new status. A pod without a ready sandbox keeps those of its last status.
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
