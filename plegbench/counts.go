package plegbench

import (
	"github.com/kdiag/kdiag/crictl"
)

// size fills in how large the lists are as messages, and how many containers would fill one.
func (s *Summary) size(m *Measurement) {
	var sandboxes, containers response
	if l := m.Sandboxes; l != nil {
		sandboxes = response{bytes: l.Bytes, known: true, part: !l.Complete}
	}
	if l := m.Containers; l != nil {
		containers = response{bytes: l.Bytes, known: true, part: !l.Complete}
		if n := len(l.Containers); n > 0 && entryBytes(l) > 0 {
			mean := float64(entryBytes(l)) / float64(n)
			s.BytesPerContainer = new(mean)
			s.ContainersAtLimit = new(int(float64(s.ResponseLimitBytes) / mean))
		}
	}
	for _, sample := range m.Samples {
		sandboxes.refused(sample.Sandboxes)
		containers.refused(sample.Containers)
	}
	larger, rpc := containers, "ListContainers"
	if !containers.known || sandboxes.known && sandboxes.bytes > containers.bytes {
		larger, rpc = sandboxes, "ListPodSandbox"
	}
	if !larger.known {
		return
	}
	s.ResponseRPC, s.ResponseBytes, s.ResponseTruncated = rpc, new(larger.bytes), larger.part || !containers.known
}

// entryBytes is the size of the containers' entries. A list that is not complete may know the size of the whole, which
// must not be shared out among the part that arrived.
func entryBytes(l *crictl.ContainerList) int {
	n := 0
	for i := range l.Containers {
		n += int(l.Containers[i].Size)
	}
	return n
}

// A response is the size of one list as one message.
type response struct {
	bytes int
	known bool
	part  bool // bytes is a lower bound
}

// refused takes in the size that gRPC states when it refuses a message as too large: it is that of the whole list.
func (r *response) refused(c crictl.Call) {
	if c.Code == crictl.ResourceExhausted && c.Bytes > 0 {
		*r = response{bytes: max(r.bytes, c.Bytes), known: true}
	}
}

// count fills in how many there are of what, from the lists that arrived whole.
func (s *Summary) count(m *Measurement) {
	if l := m.Sandboxes; l != nil && l.Complete {
		s.Sandboxes = &SandboxCounts{}
		for i := range l.Sandboxes {
			if l.Sandboxes[i].State == crictl.SandboxReady {
				s.Sandboxes.Ready++
			} else {
				s.Sandboxes.NotReady++
			}
		}
	}
	if l := m.Containers; l != nil && l.Complete {
		s.Containers = countContainers(l.Containers)
		s.ExitedBeyondNewest = new(exitedBeyondNewest(l.Containers))
	}
}

func countContainers(containers []crictl.Container) *ContainerCounts {
	n := &ContainerCounts{}
	for i := range containers {
		switch containers[i].State {
		case crictl.ContainerCreated:
			n.Created++
		case crictl.ContainerRunning:
			n.Running++
		case crictl.ContainerExited:
			n.Exited++
		default:
			n.Unknown++
		}
	}
	return n
}

// exitedBeyondNewest counts the exited containers that a kubelet's garbage collection would remove, or ought to have
// removed: of each pod and container name it keeps the newest that does not run. This is kuberuntime_gc.go.
func exitedBeyondNewest(containers []crictl.Container) int {
	type instance struct{ uid, name string }
	newest := map[instance]*crictl.Container{}
	exited := 0
	for i := range containers {
		c := &containers[i]
		if c.State == crictl.ContainerRunning {
			continue
		}
		if c.State == crictl.ContainerExited {
			exited++
		}
		key := instance{c.Pod.UID, c.Name}
		if best := newest[key]; best == nil || newer(c, best) {
			newest[key] = c
		}
	}
	for _, c := range newest {
		if c.State == crictl.ContainerExited {
			exited--
		}
	}
	return exited
}

// newer orders instances of one container.
func newer(a, b *crictl.Container) bool {
	if a.CreatedAt != b.CreatedAt {
		return a.CreatedAt > b.CreatedAt
	}
	return a.Attempt > b.Attempt
}
