package gc

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// Defaults of Options.
const (
	// DefaultConcurrency is the most removals at a time. Runtimes keep their records in one database, which takes one
	// change after the other; more in flight than this only waits there.
	DefaultConcurrency = 32
	// DefaultRate is the most removals per second, far above what a runtime with real snapshots does.
	DefaultRate = 500
	// DefaultRetries is how often a victim is tried again after an error.
	DefaultRetries = 3
	// DefaultPatience is how long a run stands still for a runtime that does not answer.
	DefaultPatience = 5 * time.Minute
	// DefaultGrace is how long calls in flight may go on after the run was stopped.
	DefaultGrace = 10 * time.Second
)

// Options tune a run. The zero value is good for a real node.
type Options struct {
	Concurrency int     // most removals at a time; 0 means DefaultConcurrency
	Rate        float64 // most removals per second; 0 means DefaultRate
	Retries     int     // of a victim that fails; 0 means DefaultRetries, below 0 none
	Patience    time.Duration
	Grace       time.Duration
	Audit       *Audit         // nil keeps no record; the caller closes it
	Logs        *Logs          // nil leaves the logs
	Progress    func(Progress) // called now and then from one goroutine; must not block
}

func (o *Options) complete() {
	o.Concurrency = orDefault(o.Concurrency, DefaultConcurrency)
	o.Rate = orDefault(o.Rate, DefaultRate)
	o.Retries = max(0, orDefault(o.Retries, DefaultRetries))
	o.Patience = orDefault(o.Patience, DefaultPatience)
	o.Grace = orDefault(o.Grace, DefaultGrace)
}

// orDefault returns v, or fallback if v is zero.
func orDefault[T comparable](v, fallback T) T {
	var zero T
	if v == zero {
		return fallback
	}
	return v
}

// Tuning of a run.
const (
	tick           = 10 * time.Millisecond // of everything that waits for a time
	progressEvery  = 100 * time.Millisecond
	quietProbes    = 12 // of the quiet runtime before the first removal
	quietGap       = 5 * time.Millisecond
	quietRelists   = 3
	mostSandboxes  = 8                      // at a time: stopping one runs CNI plugins, which take locks of the host
	calibrateDrain = 500 * time.Millisecond // how long removals in flight are waited for before the runtime is measured without
	probeEvery     = 50 * time.Millisecond
	probeShare     = 10 // the side probe may be in flight a tenth of the time
	longestBetween = time.Second
	firstBackOff   = 200 * time.Millisecond
	longestBackOff = 5 * time.Second
	freeTries      = 10 // attempts of a victim that fail while the runtime is down, on top of those that count
	lastLooks      = 8  // at a time, when the run ends
	lastLookTime   = time.Second
	writePatience  = time.Second // for the audit file, until nothing more is begun
	burst          = 2 * tick    // by which the rate limit may be ahead after an idle moment
	// enoughRefusals are so many refusals, without a single removal, that the runtime takes no removals at all: a socket
	// for reading, or a proxy.
	enoughRefusals = 8
)

// Run removes what the plan says: the containers, oldest first, then the sandboxes. Each is looked at again right before.
// The error says why nothing could be begun, or that the audit file failed; what became of the victims is in the Result
// in any case.
//
// When ctx is cancelled no new call is made, and the calls in flight are waited for as long as Options.Grace. When ctx has
// a deadline the run ends by it, a little earlier than that so that what was asked for and not answered can be looked at
// once more.
func Run(ctx context.Context, client *crictl.Client, plan Plan, opts Options) (Result, error) {
	opts.complete()
	r := newRun(ctx, client, &plan, opts)
	defer r.cancel()
	if len(plan.Remove) == 0 {
		return r.finish(), nil
	}
	quiet, relist, err := r.quiet(ctx)
	if err != nil {
		r.result.Left = len(plan.Remove)
		return r.finish(), err
	}
	r.pace = newPacer(opts.Concurrency, quiet, relist, time.Now())
	r.loop(ctx)
	r.lastLook()
	r.drain()
	return r.finish(), r.auditErr
}

// A run is the state of one Run. Its loop is the only goroutine that changes it; removals, probes and the audit file's
// writes are goroutines that report to it.
type run struct {
	client *crictl.Client
	plan   *Plan
	opts   Options
	pace   *pacer
	begin  time.Time

	work   context.Context // of the calls: outlives the run's stop, not its end
	cancel context.CancelFunc
	remove remover
	halt   atomic.Bool // asked by the removals in flight

	queue   []*job // not tried yet, in order
	sandbox []*job // follow when no container is left
	waiting []*job // to be tried again
	flying  map[*job]bool
	results chan outcome
	nextDue time.Time // of the rate limit
	lastGo  time.Time

	suspects map[string]*suspect // by pod UID
	aside    int                 // of those in flight that the pace does not count
	lostPods map[string]bool     // UIDs of the pods that did not answer since the last removal that was
	open     []*job              // given up, and to be looked at once more in the end
	usual    time.Duration       // what a removal takes, smoothed
	resumed  time.Time           // end of the last pause

	probes    chan crictl.Call
	probing   bool
	probeAt   time.Time // start of the probe in flight, or when the next is due
	lastProbe time.Duration
	pausedAt  time.Time

	refusals  int
	confirmed []*job     // removed, not yet in the audit file
	writing   []*job     // being written to it
	writeAt   time.Time  // since then
	written   chan error // the end of that
	auditErr  error

	stopped    bool
	stopLate   time.Time // when calls in flight are given up after a stop
	soft, hard time.Time // of a ctx with a deadline: no new removals from soft on, everything ended by hard
	result     Result
	shown      time.Time
}

func newRun(ctx context.Context, client *crictl.Client, plan *Plan, opts Options) *run {
	r := &run{
		client: client, plan: plan, opts: opts, begin: time.Now(),
		results: make(chan outcome, opts.Concurrency), probes: make(chan crictl.Call, 1), written: make(chan error, 1),
		flying: map[*job]bool{}, suspects: map[string]*suspect{}, lostPods: map[string]bool{},
		result: Result{Skipped: []Skipped{}, Failed: []Failed{}},
	}
	r.work, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	r.remove = remover{
		client: client, logs: opts.Logs, stopping: r.halt.Load, minAge: max(plan.Rules.MinAge, plan.Rules.OlderThan),
	}
	if end, ok := ctx.Deadline(); ok {
		reserve := min(max(time.Until(end)/20, 50*time.Millisecond), 2*time.Second)
		r.soft, r.hard = end.Add(-reserve), end
	}
	for i := range plan.Remove {
		j := &job{victim: &plan.Remove[i]}
		if j.victim.Kind == KindSandbox {
			r.sandbox = append(r.sandbox, j)
		} else {
			r.queue = append(r.queue, j)
		}
	}
	return r
}

// probe makes the side call: a list that the runtime must walk through all its containers for, as for a kubelet's
// relist, and whose answer is small.
func (r *run) probe(ctx context.Context) crictl.Call {
	list := r.client.ListContainers(ctx, crictl.Filter{ID: r.plan.Remove[0].ID}, crictl.ModeUnary)
	return list.Calls[len(list.Calls)-1]
}

// quiet measures the runtime before anything is removed: the side probe, and the two lists of a relist, which are what
// another client must not wait for.
func (r *run) quiet(ctx context.Context) (probes []time.Duration, relist time.Duration, err error) {
	for len(probes) < quietProbes {
		call := r.probe(ctx)
		if !call.OK() {
			return nil, 0, fmt.Errorf("asking the runtime for a small list before anything is removed: %s: %s", call.Code, call.Err)
		}
		probes = append(probes, call.Elapsed)
		select {
		case <-ctx.Done():
			return nil, 0, fmt.Errorf("before anything was removed: %w", ctx.Err())
		case <-time.After(quietGap):
		}
	}
	var relists []time.Duration
	for range quietRelists {
		start := time.Now()
		if !r.client.ListPodSandbox(ctx, crictl.Filter{}, crictl.ModeUnary).Complete ||
			!r.client.ListContainers(ctx, crictl.Filter{}, crictl.ModeUnary).Complete {
			return probes, 0, nil // too large for this client, or in trouble: the probe alone says how the runtime is
		}
		relists = append(relists, time.Since(start))
	}
	return probes, median(relists), nil
}

// loop goes on until all is done or the run is stopped and nothing is in flight.
func (r *run) loop(ctx context.Context) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	done := ctx.Done()
	for !r.over() {
		now := time.Now()
		r.watch(now)
		r.start(now)
		r.record()
		r.show(now, false)
		select {
		case out := <-r.results:
			r.landed(out.job)
			r.settle(out)
		case call := <-r.probes:
			r.probed(call)
		case err := <-r.written:
			r.recorded(err)
		case <-ticker.C:
		case <-done:
			done = nil
			r.stop("interrupted")
		}
	}
}

// landed takes a job out of those in flight.
func (r *run) landed(j *job) {
	delete(r.flying, j)
	if j.aside {
		j.aside = false
		r.aside--
	}
}

// over reports whether the loop has nothing left to do or wait for.
func (r *run) over() bool {
	if len(r.flying) > 0 {
		return false
	}
	if r.stopped {
		return true
	}
	return !r.heldBack() && len(r.queue)+len(r.sandbox)+len(r.waiting)+len(r.confirmed)+len(r.writing) == 0
}

// stop lets nothing new begin.
func (r *run) stop(why string) {
	if r.stopped {
		return
	}
	r.stopped = true
	r.result.Stopped = why
	r.halt.Store(true)
	r.stopLate = time.Now().Add(r.opts.Grace)
	if !r.hard.IsZero() {
		// Half of what is kept back is for the calls in flight, half for the last look.
		if late := r.soft.Add(r.hard.Sub(r.soft) / 2); late.Before(r.stopLate) {
			r.stopLate = late
		}
	}
}

// watch acts on everything that becomes due by time alone.
func (r *run) watch(now time.Time) {
	if !r.soft.IsZero() && !now.Before(r.soft) {
		r.stop("the deadline was reached")
	}
	if r.stopped {
		if !now.Before(r.stopLate) {
			r.cancel()
		}
		return
	}
	switch {
	case r.probing && now.Sub(r.probeAt) > r.pace.stall():
		r.pace.pause("the runtime does not answer")
	case r.pace.calibrating && len(r.flying) > r.aside && now.Sub(r.lastGo) < calibrateDrain:
	case !r.probing && !now.Before(r.probeAt):
		r.probing, r.probeAt = true, now
		go func() { r.probes <- r.probe(r.work) }()
	}
	switch {
	case !r.pace.paused():
		if !r.pausedAt.IsZero() {
			r.pausedAt, r.resumed = time.Time{}, now
		}
	case r.pausedAt.IsZero():
		r.pausedAt = now
		r.result.Pauses++
	case now.Sub(r.pausedAt) > r.opts.Patience:
		r.stop(fmt.Sprintf("%s; it was waited for %v", r.pace.reason, r.opts.Patience))
	}
	r.late(now)
}

// probed takes the side probe's answer and sets the time of the next.
func (r *run) probed(call crictl.Call) {
	now := time.Now()
	r.probing = false
	r.lastProbe = call.Elapsed
	r.pace.probed(call.Elapsed, call.OK(), now)
	between := min(max(probeEvery, probeShare*call.Elapsed), longestBetween)
	if r.pace.calibrating {
		between = quietGap
	}
	r.probeAt = now.Add(between)
}
