package plegbench

import (
	"maps"
	"slices"
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// A listPair holds the lists of one complete sample.
type listPair struct {
	at         time.Time
	sandboxes  *crictl.PodSandboxList
	containers *crictl.ContainerList
}

// A series keeps as few pairs as are needed to find the changes of the last relist period, because each may be
// tens of megabytes large. A kubelet compares pairs a period apart.
type series struct {
	anchor listPair // at least a period older than next, or the first
	next   listPair // becomes the anchor once it is a period old
	last   listPair
}

// add takes the next pair.
func (s *series) add(c listPair) {
	switch {
	case s.anchor.at.IsZero():
		s.anchor, s.next = c, c
	case c.at.Sub(s.next.at) >= RelistPeriod:
		s.anchor, s.next = s.next, c
	}
	s.last = c
}

// changed returns the UIDs of the pods that differ between the anchor and the last pair, sorted.
func (s *series) changed() []string {
	if s.anchor.at.Equal(s.last.at) {
		return nil
	}
	return changedPods(s.anchor, s.last)
}

// A podState is the state of a sandbox or container, and its pod.
type podState struct {
	pod   string
	state uint8
}

// changedPods compares two pairs by identifier, as the kubelet compares pod records, for which sandboxes are
// containers.
func changedPods(a, b listPair) []string {
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

// states maps the identifiers of a pair to states, as the PLEG distinguishes them.
func (c listPair) states() map[string]podState {
	all := map[string]podState{}
	for _, t := range listed(c.sandboxes, c.containers) {
		_, id := t.age()
		s := podState{pod: t.pod().UID}
		switch {
		case t.sandbox != nil:
			s.state = uint8(t.sandbox.State)
		case t.container.State == crictl.ContainerCreated: // for the PLEG, created is unknown
			s.state = uint8(crictl.ContainerUnknown)
		default:
			s.state = uint8(t.container.State)
		}
		all[id] = s
	}
	return all
}
