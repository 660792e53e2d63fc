package syncloop

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kdiag/kdiag/plegbench/syncloop/pleg"
	"github.com/kdiag/kdiag/plegbench/syncloop/podworkers"
)

// A Snapshot is the state of a syncLoop, for a view. Taking one never waits for the runtime.
type Snapshot struct {
	Node    string
	Runtime string // name and version
	Loop    LoopState
	PLEG    pleg.State
	Workers []podworkers.WorkerState
	Pods    []*v1.Pod // with their statuses, by namespace and name
	Foreign int       // pods of other programs in the last relist

	Conditions []v1.NodeCondition // of the node
}

// A LoopState is the syncLoop's own.
type LoopState struct {
	Turns         int64
	LastTurn      time.Time // zero before the first
	SkippingSince time.Time // zero while it does not skip
	Why           string    // the error that makes it skip
	Updates       int       // waiting in the channel from the sources
	Channels      [5]Channel
}

// A Channel is one that syncLoopIteration reads.
type Channel struct {
	Name string // the kubelet's; the channels of the three kinds of probes count as one
	Read int64  // values so far
	Last time.Time
	What string // the last value, in a few words
}

// The channels, by their places in LoopState.
const (
	configCh = iota
	plegCh
	syncCh
	probeCh
	housekeepingCh
)

// channels returns the channels before anything is read from them.
func channels() [5]Channel {
	return [...]Channel{{Name: "configCh"}, {Name: "plegCh"}, {Name: "syncCh"}, {Name: "probes"}, {Name: "housekeepingCh"}}
}

// read counts a value of a channel.
func (s *SyncLoop) read(channel int, what string) {
	s.changeLoop(func(l *LoopState) {
		c := &l.Channels[channel]
		c.Read, c.Last, c.What = c.Read+1, time.Now(), what
	})
}

// Snapshot takes one.
func (s *SyncLoop) Snapshot() Snapshot {
	out := Snapshot{
		Node: s.cfg.NodeName, Runtime: s.name + " " + s.version,
		Loop: s.loopState(), PLEG: s.pleg.State(), Workers: s.workers.States(),
		Pods: s.PodsWithStatus(), Foreign: s.runtime.Foreign(),
	}
	out.Loop.Updates = len(s.podConfig.Updates())
	slices.SortFunc(out.Pods, func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	if n := s.node.Node(); n != nil {
		out.Conditions = n.Status.Conditions
	}
	return out
}
