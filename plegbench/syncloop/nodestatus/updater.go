package nodestatus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// UpdaterConfig is what an Updater is made of.
type UpdaterConfig struct {
	State *RuntimeState
	// Status is the CRI call, not verbose, with its own deadline (2 m in a kubelet).
	Status func(ctx context.Context) (*runtimeapi.RuntimeStatus, error)
	Period time.Duration // between the end of a call and the next: 5 s
	// OnReady is called once, when the runtime is first ready and before its clock starts: a kubelet starts
	// then what needs the runtime. It may be nil.
	OnReady func(ctx context.Context)
	Log     logr.Logger
}

// An Updater asks the runtime for its Status and keeps a RuntimeState (updateRuntimeUp in pkg/kubelet/kubelet.go).
type Updater struct {
	cfg      UpdaterConfig
	turn     chan struct{} // holds a token during a call
	expected atomic.Bool
	once     sync.Once
}

// NewUpdater makes an Updater that has not asked yet.
func NewUpdater(cfg UpdaterConfig) *Updater { return &Updater{cfg: cfg, turn: make(chan struct{}, 1)} }

// ExpectReady makes the lines about a runtime or network that is not ready visible: until the node has first been
// ready, or 120 s have passed, they are details of a normal start, and logged at V(4).
func (u *Updater) ExpectReady() { u.expected.Store(true) }

// Run asks at once and then 5 s after each answer, until ctx ends.
func (u *Updater) Run(ctx context.Context) error {
	return every(ctx, u.cfg.Period, 0, u.Update)
}

// Update asks once; one call at a time, others wait for it.
func (u *Updater) Update(ctx context.Context) {
	select {
	case u.turn <- struct{}{}:
		defer func() { <-u.turn }()
	case <-ctx.Done():
		return
	}
	status, err := u.cfg.Status(ctx)
	switch {
	case ctx.Err() != nil: // it ends, and that is no news of the runtime
		return
	case err != nil:
		u.cfg.Log.Error(err, "Container runtime sanity check failed") // and the 30 s run on
		return
	case status == nil:
		u.cfg.Log.Error(nil, "Container runtime status is nil")
		return
	}
	u.cfg.Log.V(4).Info("Container runtime status", "status", status)
	log := u.cfg.Log.V(4)
	if u.expected.Load() {
		log = u.cfg.Log
	}
	network, text := condition(status, runtimeapi.NetworkReady)
	if network {
		u.cfg.State.SetNetworkState(nil)
	} else {
		log.Info("Container runtime network not ready", "networkReady", text)
		u.cfg.State.SetNetworkState(errors.New("container runtime network not ready: " + text))
	}
	ready, text := condition(status, runtimeapi.RuntimeReady)
	if !ready {
		// The clock is left alone: after 30 s the runtime is down as well as not ready.
		log.Info("Container runtime not ready", "runtimeReady", text)
		u.cfg.State.SetRuntimeState(errors.New("container runtime not ready: " + text))
		return
	}
	u.cfg.State.SetRuntimeState(nil)
	if u.cfg.OnReady != nil {
		u.once.Do(func() { u.cfg.OnReady(ctx) })
	}
	u.cfg.State.SetRuntimeSync(time.Now())
}

// condition finds a condition and writes it as the kubelet does; one that is missing is false and <nil>.
func condition(status *runtimeapi.RuntimeStatus, kind string) (ok bool, text string) {
	for _, c := range status.GetConditions() {
		if c.GetType() == kind {
			return c.GetStatus(), fmt.Sprintf("%s=%t reason:%s message:%s", c.GetType(), c.GetStatus(), c.GetReason(), c.GetMessage())
		}
	}
	return false, "<nil>"
}
