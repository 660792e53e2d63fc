package nodestatus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RuntimeConfig configures a RuntimeState.
type RuntimeConfig struct {
	// Status is the CRI call, not verbose, with its own deadline (2 m in a kubelet).
	Status func(ctx context.Context) (*runtimeapi.RuntimeStatus, error)
	Period time.Duration // between the end of a call and the next: 5 s
	Down   time.Duration // without a good Status for so long the runtime is down: 30 s, maxWaitForContainerRuntime
	// OnReady is called once, when the runtime is first ready and before its clock starts: a kubelet then starts the
	// parts that need the runtime.
	OnReady   func()
	OnFailure func(error) // is called when Status has failed; may be nil
	Log       logr.Logger
}

// RuntimeState is how the syncLoop and the node's Ready condition judge the runtime (pkg/kubelet/runtime.go and
// updateRuntimeUp in kubelet.go upstream). It is safe for use by several goroutines.
type RuntimeState struct {
	cfg    RuntimeConfig
	asking chan struct{} // full during a call; fake time goes on while one waits for it

	mu       sync.RWMutex
	lastSync time.Time // of the last good Status
	runtime  error
	network  error
	checks   []func() error
	once     sync.Once
}

// NewRuntimeState makes a state in which nothing is known yet.
func NewRuntimeState(cfg RuntimeConfig) *RuntimeState {
	return &RuntimeState{cfg: cfg, network: errors.New("network state unknown"), asking: make(chan struct{}, 1)}
}

// AddHealthCheck adds a check whose errors are runtime errors. It is called often and must not wait for the runtime.
func (s *RuntimeState) AddHealthCheck(name string, check func() error) {
	s.set(func() {
		s.checks = append(s.checks, func() error {
			if err := check(); err != nil {
				return fmt.Errorf("%s is not healthy: %w", name, err)
			}
			return nil
		})
	})
}

func (s *RuntimeState) set(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

// RuntimeErrors returns the errors that stop the syncLoop: the 30 s clock, the failing checks in the order in which
// they were added, and the runtime's own error. Several print as [a, b], each text once.
func (s *RuntimeState) RuntimeErrors() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var errs []error
	switch {
	case s.lastSync.IsZero():
		errs = append(errs, errors.New("container runtime status check may not have completed yet"))
	case time.Since(s.lastSync) >= s.cfg.Down:
		errs = append(errs, errors.New("container runtime is down"))
	}
	for _, check := range s.checks {
		errs = append(errs, check())
	}
	return utilerrors.NewAggregate(append(errs, s.runtime))
}

// NetworkErrors returns the error that keeps all pods but those on the host's network from running.
func (s *RuntimeState) NetworkErrors() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.network
}

// Run calls Update at once and then 5 s after the end of each call, until ctx ends.
func (s *RuntimeState) Run(ctx context.Context) error {
	wait.JitterUntilWithContext(ctx, s.Update, s.cfg.Period, 0, true)
	return ctx.Err()
}

// Update calls Status once. Other callers wait for that call and then make their own.
func (s *RuntimeState) Update(ctx context.Context) {
	s.asking <- struct{}{}
	defer func() { <-s.asking }()
	status, err := s.cfg.Status(ctx)
	if ctx.Err() != nil { // the end of the syncLoop, not a failure
		return
	}
	if err != nil {
		s.cfg.Log.Error(err, "Container runtime sanity check failed") // and the 30 s run on
		if s.cfg.OnFailure != nil {
			s.cfg.OnFailure(err)
		}
		return
	}
	s.cfg.Log.V(4).Info("Container runtime status", "status", status)
	var network, notReady error
	if ok, text := condition(status, runtimeapi.NetworkReady); !ok {
		s.cfg.Log.Info("Container runtime network not ready", "networkReady", text)
		network = errors.New("container runtime network not ready: " + text)
	}
	if ok, text := condition(status, runtimeapi.RuntimeReady); !ok {
		s.cfg.Log.Info("Container runtime not ready", "runtimeReady", text)
		notReady = errors.New("container runtime not ready: " + text)
	}
	s.set(func() { s.network, s.runtime = network, notReady })
	if notReady != nil {
		return // the clock is left alone: after 30 s the runtime is down as well as not ready
	}
	s.once.Do(s.cfg.OnReady)
	s.set(func() { s.lastSync = time.Now() })
}

// condition finds a condition and formats it as the kubelet does; one that is missing is false and <nil>.
func condition(status *runtimeapi.RuntimeStatus, kind string) (ok bool, text string) {
	for _, c := range status.GetConditions() {
		if c.GetType() == kind {
			return c.GetStatus(), fmt.Sprintf("%s=%t reason:%s message:%s",
				c.GetType(), c.GetStatus(), c.GetReason(), c.GetMessage())
		}
	}
	return false, "<nil>"
}
