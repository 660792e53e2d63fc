package fault

import (
	"maps"
	"sync"

	"github.com/kdiag/kdiag/crictl/fake"
)

// An Injection reports a fault that is about to be injected into a call.
type Injection struct {
	RPC    string      // short name
	Number int         // of the fault, among those in force, from 0
	Target fake.Target // object of the call, as far as it is cached
}

// A Count counts the calls of one RPC.
type Count struct {
	Calls   int // all
	Faulted int // with a fault; twice where the faults changed while the call waited
}

// stats counts calls by the short name of their RPC.
type stats struct {
	mu    sync.Mutex
	count map[string]Count
}

func (s *stats) add(name string, c Count) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count == nil {
		s.count = map[string]Count{}
	}
	old := s.count[name]
	s.count[name] = Count{Calls: old.Calls + c.Calls, Faulted: old.Faulted + c.Faulted}
}

// Stats returns the counts so far, by the short name of the RPC.
func (p *Proxy) Stats() map[string]Count {
	p.stats.mu.Lock()
	defer p.stats.mu.Unlock()
	return maps.Clone(p.stats.count)
}
