package plegbench

import (
	"maps"
	"slices"
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// A census is what one whole sample saw.
type census struct {
	at         time.Time
	sandboxes  *crictl.PodSandboxList
	containers *crictl.ContainerList
}

// A series remembers as few censuses as it takes to say what changed over the last relist period, because each may be
// tens of megabytes large. A kubelet would compare neighbours a period apart.
type series struct {
	anchor census // at least a period older than next, or the first
	next   census // becomes the anchor once it is a period old
	last   census
}

// add takes the next census.
func (s *series) add(c census) {
	switch {
	case s.anchor.at.IsZero():
		s.anchor, s.next = c, c
	case c.at.Sub(s.next.at) >= RelistPeriod:
		s.anchor, s.next = s.next, c
	}
	s.last = c
}

// changed returns the UIDs of the pods that differ between the anchor and the last census, sorted.
func (s *series) changed() []string {
	if s.anchor.at.Equal(s.last.at) {
		return nil
	}
	return changedPods(s.anchor, s.last)
}

// seen is the state of a sandbox or container and the pod that it belongs to.
type seen struct {
	pod   string
	state uint8
}

// changedPods compares two censuses by identifier, as the kubelet compares pod records, for which sandboxes are
// containers.
func changedPods(a, b census) []string {
	before := a.states()
	pods := map[string]struct{}{}
	for id, now := range b.states() {
		was, ok := before[id]
		if !ok || was.state != now.state {
			pods[now.pod] = struct{}{}
		}
		delete(before, id)
	}
	for _, went := range before {
		pods[went.pod] = struct{}{}
	}
	if len(pods) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(pods))
}

// states maps the identifiers of a census to states, as the PLEG tells them apart.
func (c census) states() map[string]seen {
	m := make(map[string]seen, len(c.sandboxes.Sandboxes)+len(c.containers.Containers))
	for i := range c.sandboxes.Sandboxes {
		s := &c.sandboxes.Sandboxes[i]
		m[s.ID] = seen{pod: s.Pod.UID, state: uint8(s.State)}
	}
	for i := range c.containers.Containers {
		s := &c.containers.Containers[i]
		state := s.State
		if state == crictl.ContainerCreated { // the PLEG knows created as unknown
			state = crictl.ContainerUnknown
		}
		m[s.ID] = seen{pod: s.Pod.UID, state: uint8(state)}
	}
	return m
}
