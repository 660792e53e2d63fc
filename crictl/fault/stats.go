package fault

import (
	"maps"
	"sync"

	"github.com/kdiag/kdiag/crictl/fake"
)

// A Strike is a fault that has just struck a call, before it does anything to it.
type Strike struct {
	RPC    string // short name
	Fault  fake.Fault
	Number int         // of the fault, among those in force, from 0
	Target fake.Target // whom the call is about, as far as it is known without asking
}

// A Count is what became of the calls of one RPC.
type Count struct {
	Calls  int // that came
	Struck int // by a fault; a call is judged anew when the faults change while it waits
}

// stats counts calls by the short name of their RPC.
type stats struct {
	mu    sync.Mutex
	count map[string]Count
}

// maxNames bounds the names that are counted apart: a caller may make up any. The others are counted as "...".
const maxNames = 200

func (s *stats) called(name string) { s.add(name, Count{Calls: 1}) }
func (s *stats) struck(name string) { s.add(name, Count{Struck: 1}) }

func (s *stats) add(name string, c Count) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count == nil {
		s.count = map[string]Count{}
	}
	if _, ok := s.count[name]; !ok && len(s.count) >= maxNames {
		name = "..."
	}
	old := s.count[name]
	s.count[name] = Count{Calls: old.Calls + c.Calls, Struck: old.Struck + c.Struck}
}

// Stats returns what has been counted so far, by the short name of the RPC.
func (p *Proxy) Stats() map[string]Count {
	p.stats.mu.Lock()
	defer p.stats.mu.Unlock()
	return maps.Clone(p.stats.count)
}
