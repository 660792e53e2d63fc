package nodestatus

import (
	"errors"
	"fmt"
	"sync"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// RuntimeState is what the syncLoop and the node's Ready condition believe of the runtime (pkg/kubelet/runtime.go
// upstream). It makes no calls: an Updater and the health checks fill it. It is safe for use by several goroutines.
type RuntimeState struct {
	down time.Duration

	mu       sync.RWMutex
	lastSync time.Time // of the last good Status
	runtime  error
	network  error
	checks   []healthCheck
}

type healthCheck struct {
	name  string
	check func() error
}

// NewRuntimeState makes a state in which nothing is known yet. Without a good Status for the time down (30 s in a
// kubelet, maxWaitForContainerRuntime) the runtime is down.
func NewRuntimeState(down time.Duration) *RuntimeState {
	return &RuntimeState{down: down, network: errors.New("network state unknown")}
}

// AddHealthCheck adds a check whose errors are runtime errors. It is called often and must not wait for the runtime.
func (s *RuntimeState) AddHealthCheck(name string, check func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checks = append(s.checks, healthCheck{name, check})
}

// SetRuntimeSync notes when the runtime last gave a good Status.
func (s *RuntimeState) SetRuntimeSync(t time.Time) { s.set(func() { s.lastSync = t }) }

// SetRuntimeState sets the runtime's own error, from its Status; nil clears it.
func (s *RuntimeState) SetRuntimeState(err error) { s.set(func() { s.runtime = err }) }

// SetNetworkState sets the error of the runtime's network, from its Status; nil clears it.
func (s *RuntimeState) SetNetworkState(err error) { s.set(func() { s.network = err }) }

func (s *RuntimeState) set(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

// RuntimeErrors is why the syncLoop must not go on: the 30 s clock, the failing checks in the order in which they were
// added, and the runtime's own error. Several print as [a, b], each text once.
func (s *RuntimeState) RuntimeErrors() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var errs []error
	switch {
	case s.lastSync.IsZero():
		errs = append(errs, errors.New("container runtime status check may not have completed yet"))
	case !s.lastSync.Add(s.down).After(time.Now()):
		errs = append(errs, errors.New("container runtime is down"))
	}
	for _, c := range s.checks {
		if err := c.check(); err != nil {
			errs = append(errs, fmt.Errorf("%s is not healthy: %w", c.name, err))
		}
	}
	return utilerrors.NewAggregate(append(errs, s.runtime))
}

// NetworkErrors is why only pods on the host's network can run.
func (s *RuntimeState) NetworkErrors() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return utilerrors.NewAggregate([]error{s.network})
}
