package pleg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kdiag/kdiag/plegbench/syncloop/metrics"
)

// Numbers of pkg/kubelet/kubelet.go and pkg/kubelet/pleg/generic.go.
const (
	defaultCapacity = 1000
	requestCapacity = 200
)

// A GenericConfig configures a Generic.
type GenericConfig struct {
	Runtime   Runtime
	Cache     *Cache
	Log       logr.Logger
	Metrics   *metrics.Metrics
	Period    time.Duration // from the end of a relist to the next: 1 s
	Threshold time.Duration // it is unhealthy without a relist for longer: 3 minutes
	Capacity  int           // of the event channel; 0 is 1000
	OnDemand  bool          // honour RequestRelist, as from Kubernetes 1.36 on
}

// A Generic finds changes by listing all pods again and again.
type Generic struct {
	GenericConfig
	events   chan Event
	requests chan request
	rearm    chan struct{} // signals a changed period: relist now

	relisting sync.Mutex // held during a relist; guards records
	records   map[types.UID]*record

	mu        sync.Mutex // guards the rest; never held during a call to the runtime
	period    time.Duration
	threshold time.Duration
	reinspect map[types.UID]bool
	seen      Snapshot // without the fields that Snapshot computes
}

// A request is one for the relist of one pod.
type request struct {
	uid types.UID
	at  time.Time
}

// NewGeneric makes a Generic.
func NewGeneric(cfg GenericConfig) *Generic {
	return &Generic{
		GenericConfig: cfg,
		events:        make(chan Event, cmp.Or(cfg.Capacity, defaultCapacity)),
		requests:      make(chan request, requestCapacity),
		rearm:         make(chan struct{}, 1),
		records:       map[types.UID]*record{},
		period:        cfg.Period,
		threshold:     cfg.Threshold,
		reinspect:     map[types.UID]bool{},
	}
}

// Events is the channel of events, the same one for a Generic and the Evented above it. Nobody closes it.
func (g *Generic) Events() <-chan Event { return g.events }

// Run relists at once and then each period, counted from the end of a relist, until ctx ends. A relist of all pods that
// is due goes before requests for single pods.
func (g *Generic) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-timer.C:
			g.Relist(ctx)
			timer.Reset(g.currentPeriod())
			continue
		default:
		}
		select {
		case <-ctx.Done():
		case <-timer.C:
			g.Relist(ctx)
			timer.Reset(g.currentPeriod())
		case <-g.rearm:
			timer.Reset(0)
		case r := <-g.requests:
			if r.at.After(g.lastRelist()) {
				g.relistPod(ctx, r.uid)
			}
		}
	}
	return ctx.Err()
}

// RequestRelist requests a relist of one pod. It never blocks: if 200 requests wait, it is dropped.
func (g *Generic) RequestRelist(uid types.UID) {
	if !g.OnDemand {
		return
	}
	select {
	case g.requests <- request{uid, time.Now()}:
	default:
		g.Log.Error(nil, "Relist request channel full; dropping relist request", "podUID", uid)
	}
}

// RequestReinspect makes the next relist inspect a pod even if nothing in the lists has changed.
func (g *Generic) RequestReinspect(uid types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reinspect[uid] = true
}

// errNoRelist has the kubelet's text for a PLEG without any successful lists.
var errNoRelist = errors.New("pleg has yet to be successful")

// Healthy returns nil, or an error with the kubelet's text. It depends on the start of the last relist whose two lists
// succeeded; slow inspections only delay the next one. As in the kubelet, kubelet_pleg_last_seen_seconds is set here
// and nowhere else.
func (g *Generic) Healthy() error {
	g.mu.Lock()
	last, threshold := g.seen.LastRelist, g.threshold
	g.mu.Unlock()
	if last.IsZero() {
		return errNoRelist
	}
	g.Metrics.PLEGLastSeen.Set(float64(last.Unix()))
	if age := time.Since(last); age > threshold {
		return fmt.Errorf("pleg was last seen active %v ago; threshold is %v", age, threshold)
	}
	return nil
}

// Snapshot returns the present state.
func (g *Generic) Snapshot() Snapshot {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.seen
	s.Uninspected = len(g.reinspect)
	s.Queued = len(g.events)
	return s
}

// setPeriod changes the period and threshold and relists at once, like a Generic that is stopped and started again.
func (g *Generic) setPeriod(period, threshold time.Duration) {
	g.mu.Lock()
	g.period, g.threshold = period, threshold
	g.mu.Unlock()
	select {
	case g.rearm <- struct{}{}:
	default:
	}
}

func (g *Generic) currentPeriod() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.period
}

func (g *Generic) lastRelist() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.seen.LastRelist
}
