package plegbench

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// Options control how much is measured. kdiag pleg uses the zero value.
type Options struct {
	// Samples is the number of relists, the first of which is the pair of lists among the probes. Default 5, or no
	// bound when For is set.
	Samples int
	// For keeps sampling for that long.
	For time.Duration
	// Pause is the time between two samples. Default 50 ms; a kubelet pauses for RelistPeriod.
	Pause time.Duration
	// Record takes all samples, however slow. Without it a series ends early when further ones would fail the same way
	// or take the time of the status calls.
	Record bool
	// Streaming uses the streaming RPCs, as a kubelet with the feature gate CRIListStreaming does.
	Streaming bool

	// Deep inspects everything until the context's deadline, regardless of sweepBudget and sampleTime.
	Deep bool
	// NoSweep leaves out all status calls.
	NoSweep bool

	// RPCTimeout bounds Probe, as the client's own bounds each call. Default 5 s.
	RPCTimeout time.Duration
	// Probe probes the socket. Default crictl.Probe; another function for a runtime that is not behind a socket.
	Probe func(ctx context.Context, endpoint string) crictl.Connect

	// Hints finds sandboxes and containers on the host. It is called when a list fails, and abandoned when it takes
	// longer than two seconds. May be nil.
	Hints func(context.Context) []Hint

	// Shuffle puts the status calls into a random order. Default rand.Shuffle.
	Shuffle func(n int, swap func(i, j int))

	// Progress is called from one goroutine at a time. It must not block. May be nil.
	Progress func(Progress)
}

const (
	defaultSamples = 5
	defaultPause   = 50 * time.Millisecond
	// concurrency is the number of status calls made at a time. A call that has not answered within a second no longer
	// counts, so that hung calls never delay the rest.
	concurrency = 4
	// newestExited is how many of the newest exited containers are inspected regardless of sweepBudget.
	newestExited = 50
	// sweepBudget is the time after which no further object is inspected, except running ones and the newest exited.
	sweepBudget = 10 * time.Second
	// sampleTime is the time after which no further object is inspected if those asked show that a relist of all takes
	// longer than RelistThreshold: with slow calls, hours of asking would only make the figure more exact. Until then
	// the sweep also looks for calls that hang.
	sampleTime = 4 * time.Second
)

// withDefaults replaces zero values by defaults.
func (o Options) withDefaults() Options {
	if o.Samples <= 0 && o.For <= 0 {
		o.Samples = defaultSamples
	}
	o.Pause = cmp.Or(o.Pause, defaultPause)
	o.RPCTimeout = cmp.Or(o.RPCTimeout, crictl.DefaultRPCTimeout)
	if o.Probe == nil {
		o.Probe = crictl.Probe
	}
	if o.Shuffle == nil {
		o.Shuffle = rand.Shuffle
	}
	return o
}

// stall is the time after which a call no longer holds up the next ones. It is shorter than the RPC timeout, so that
// the runtime's liveness is checked before the call is given up.
func (o Options) stall() time.Duration { return min(stallAfter, o.RPCTimeout/2) }
