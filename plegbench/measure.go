package plegbench

import (
	"context"
	"errors"
	"time"

	"github.com/kdiag/kdiag/crictl"
)

const (
	// stallAfter is the time after which a call no longer holds up the next ones. It is far
	// above a healthy answer (tens of microseconds to 20 ms) and well below any deadline.
	stallAfter = time.Second

	// endMargin is left at the end of the context, for judging and printing; a tenth of short contexts.
	endMargin = 500 * time.Millisecond
)

// errTimeUp is the cause of the end when the context's deadline, less the margin, comes.
var errTimeUp = errors.New("the time for the whole command was up")

// Measure measures the runtime behind endpoint, of which client is a client. It always returns, at the latest shortly
// before ctx's deadline, with what it has measured; every failure of the runtime is data in the Measurement.
//
// A runtime that answers nothing at all costs one RPC deadline, and one that stops answering in the middle another
// and a second.
func Measure(ctx context.Context, endpoint string, client *crictl.Client, opts Options) *Measurement {
	ctx, cancel := withMargin(ctx)
	defer cancel()
	r := &run{opts: opts.withDefaults(), client: client, endpoint: endpoint, m: &Measurement{Started: time.Now()}}
	if r.probe(ctx) {
		r.relist(ctx)
		r.inspect(ctx)
	} else {
		r.cut = ctx.Err() != nil
	}
	return r.end(ctx)
}

// A run is the state of one Measure or Look. Its fields belong to one goroutine; others only send to it.
type run struct {
	opts     Options
	client   *crictl.Client
	endpoint string
	m        *Measurement
	monitor  *Monitor // of a Look, else nil

	mode    crictl.ListMode // of the samples, once the first has shown what the runtime has
	history series          // snapshots to compare
	gone    bool            // nothing useful is answered, or not any more, so no more calls are made
	hung    int             // calls so far without an answer, for Progress
	waiting *Inspection     // for Progress
	cut     bool            // something was left out or abandoned because ctx ended
}

// end ends the measurement.
func (r *run) end(ctx context.Context) *Measurement {
	if r.m.Interrupted == "" && r.cut {
		r.m.Interrupted = whyEnded(ctx)
	}
	r.m.Ended = time.Now()
	return r.m
}

// through makes a call: at once, or, in a Look, as its Monitor does. patient is ctx, or for a list what it may take.
func (r *run) through(ctx, patient context.Context, k callKey, do func(context.Context) reply) reply {
	if r.monitor == nil {
		return do(patient)
	}
	return r.monitor.hold(ctx, patient, k, do)
}

// withMargin returns ctx with a deadline a little earlier.
func withMargin(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	margin := min(endMargin, time.Until(deadline)/10)
	return context.WithDeadline(ctx, deadline.Add(-margin))
}

// whyEnded returns why ctx is done, or is about to be: calls that compare the clock themselves can end slightly before
// ctx's timer fires.
func whyEnded(ctx context.Context) string {
	if errors.Is(ctx.Err(), context.Canceled) {
		return "interrupted"
	}
	return errTimeUp.Error()
}

// note accounts for a finished call.
func (r *run) note(calls ...crictl.Call) {
	for _, c := range calls {
		if c.Hung() {
			r.hung++
		}
		if c.Code == crictl.Canceled {
			r.cut = true
		}
	}
}

func (r *run) progress(phase string, done, total int) {
	if r.opts.Progress != nil {
		r.opts.Progress(Progress{Phase: phase, Done: done, Total: total, Hung: r.hung, Waiting: r.waiting})
	}
}

// answered reports whether the call succeeded or its object was not found, which is normal for what was removed in the
// meantime.
func answered(c crictl.Call) bool { return c.OK() || c.Code == crictl.NotFound }

// failed reports whether the call was answered with an error, or could not be delivered.
func failed(c crictl.Call) bool {
	return !answered(c) && !c.Hung() && c.Code != crictl.Canceled && c.Method != ""
}
