package plegbench

import (
	"context"
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// Options say how much to measure. The zero value is what kdiag pleg does.
type Options struct {
	// Samples is the number of relists, the first of which is the pair of lists among the probes. Default 5, or no
	// bound when For is set.
	Samples int
	// For keeps sampling for that long.
	For time.Duration
	// Pause is the time between two samples. Default 50 ms; a kubelet pauses for RelistPeriod.
	Pause time.Duration
	// Record takes all samples that were asked for, however slow and however alike. Without it, and without For, up to
	// ten samples end as soon as they teach nothing new or eat the time of the status calls.
	Record bool
	// Streaming lists by the streaming RPCs, as a kubelet with the feature gate CRIListStreaming does.
	Streaming bool

	// Concurrency is the number of status calls made at a time. Default 4. A call that has not answered within a second
	// no longer counts, so that hung calls never delay the rest.
	Concurrency int
	// Deep asks for the status of everything until the context's deadline, whatever SweepBudget says.
	Deep bool
	// Newest is how many of the newest exited containers are asked about before SweepBudget matters. Default 50.
	Newest int
	// SweepBudget is the time after which no further object is asked about, running ones and the newest exited
	// excepted. Default 10 s.
	SweepBudget time.Duration
	// NoSweep leaves out all status calls.
	NoSweep bool

	// RPCTimeout bounds Probe, as the client's own bounds each call. Default 5 s.
	RPCTimeout time.Duration
	// Probe knocks at the socket. Default crictl.Probe; something else for a runtime that is not behind a socket.
	Probe func(ctx context.Context, endpoint string) crictl.Connect

	// Hints finds sandboxes and containers without the runtime's help. It is asked when a list fails, and left behind
	// when it takes longer than two seconds. May be nil.
	Hints func(context.Context) []Hint

	// Progress and OnSample are told what happens, from one goroutine at a time. They must not block. May be nil.
	Progress func(Progress)
	OnSample func(Sample)
}

// Defaults of Options.
const (
	defaultSamples     = 5
	defaultPause       = 50 * time.Millisecond
	defaultConcurrency = 4
	defaultNewest      = 50
	defaultSweepBudget = 10 * time.Second
	defaultRPCTimeout  = 5 * time.Second
)

// withDefaults fills in what was left zero.
func (o Options) withDefaults() Options {
	if o.Samples <= 0 && o.For <= 0 {
		o.Samples = defaultSamples
	}
	o.Pause = orDefault(o.Pause, defaultPause)
	o.Concurrency = min(orDefault(o.Concurrency, defaultConcurrency), maxOutstanding)
	o.Newest = orDefault(o.Newest, defaultNewest)
	o.SweepBudget = orDefault(o.SweepBudget, defaultSweepBudget)
	o.RPCTimeout = orDefault(o.RPCTimeout, defaultRPCTimeout)
	if o.Probe == nil {
		o.Probe = crictl.Probe
	}
	return o
}

// orDefault returns v, or def when v is not positive.
func orDefault[T int | time.Duration](v, def T) T {
	if v <= 0 {
		return def
	}
	return v
}

// stall is the time after which a call counts as not answering for the purpose of going on without it: short of the
// deadline, so that the runtime's pulse is taken before a call is given up.
func (o Options) stall() time.Duration { return min(stallAfter, o.RPCTimeout/2) }

// A smallSeries is at most this many samples without For: somebody waits for an answer, so sampling stops early when it
// would learn nothing new or eat the time of the status calls. A longer series is a recording, which goes on.
const smallSeries = 10

// brief reports whether the samples are a small series.
func (o Options) brief() bool { return !o.Record && o.For <= 0 && o.Samples <= smallSeries }
