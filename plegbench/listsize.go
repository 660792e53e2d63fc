package plegbench

import (
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/gc"
)

// size sets how large the lists are as messages, and how many containers would fill one.
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

// entryBytes is the size of the containers' entries. An incomplete list may state the size of all, which must not be
// divided among the part that arrived.
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

// refused takes the size that gRPC states when it refuses a message as too large: the size of the whole list.
func (r *response) refused(c crictl.Call) {
	if c.Code == crictl.ResourceExhausted && c.Bytes > 0 {
		*r = response{bytes: max(r.bytes, c.Bytes), known: true}
	}
}

// count sets the numbers of objects by state, from the lists that are complete.
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
		s.ExitedBeyondNewest = new(gc.BeyondNewest(gc.CountExited(l.Containers)))
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
