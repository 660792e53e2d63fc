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
	At      time.Time
	Node    string
	Runtime string // name and version
	Sources []SourceState
	Loop    LoopState
	PLEG    pleg.Snapshot
	Workers []podworkers.WorkerState
	Pods    []*v1.Pod // with their statuses, by namespace and name
	Foreign int       // pods of other programs in the last relist

	Conditions []v1.NodeCondition // of the node
}

// A SourceState is one source of pods.
type SourceState struct {
	Name string
	Seen bool // the loop has handled one of its updates
}

// A LoopState is the syncLoop's own.
type LoopState struct {
	Turns         int64
	LastTurn      time.Time // zero before the first
	SkippingSince time.Time // zero while it does not skip
	Why           string    // the error that makes it skip
	Updates       int       // waiting in the channel from the sources
}

// Snapshot takes one.
func (s *SyncLoop) Snapshot() Snapshot {
	out := Snapshot{
		At: time.Now(), Node: s.cfg.NodeName, Runtime: s.name + " " + s.version,
		Loop: s.loop.state(), PLEG: s.pleg.Snapshot(), Workers: s.workers.Snapshot(),
		Pods: s.PodsWithStatus(), Foreign: s.runtime.Foreign(),
	}
	s.mu.Lock()
	for _, source := range s.sources {
		out.Sources = append(out.Sources, SourceState{source.name, s.seen[source.name]})
	}
	s.mu.Unlock()
	slices.SortFunc(out.Pods, func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	if n := s.node.Node(); n != nil {
		out.Conditions = n.Status.Conditions
	}
	return out
}

func (l *loop) state() LoopState {
	at := func(nanoseconds int64) time.Time {
		if nanoseconds == 0 {
			return time.Time{}
		}
		return time.Unix(0, nanoseconds)
	}
	out := LoopState{
		Turns: l.turns.Load(), LastTurn: at(l.lastTurn.Load()), SkippingSince: at(l.skippingSince.Load()),
		Updates: len(l.updates),
	}
	if !out.SkippingSince.IsZero() {
		if err := l.runtimeErrors(); err != nil {
			out.Why = err.Error()
		}
	}
	return out
}
