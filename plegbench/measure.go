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

// timeUp is the reason why a measurement ended at the context's deadline, less the margin.
const timeUp = "the time for the whole command was up"

// Measure measures the runtime behind endpoint, of which client is a client. It always returns, at the latest shortly
// before ctx's deadline, with the measurement so far; every failure of the runtime is data in the Measurement.
//
// A runtime that answers nothing at all costs one RPC deadline, and one that stops answering in the middle another
// and a second.
func Measure(ctx context.Context, endpoint string, client *crictl.Client, opts Options) *Measurement {
	ctx, cancel := withMargin(ctx)
	defer cancel()
	m := &measurer{opts: opts.withDefaults(), client: client, endpoint: endpoint, out: &Measurement{Started: time.Now()}}
	if first, ok := m.probe(ctx); ok {
		m.relist(ctx, first)
		m.inspect(ctx)
	} else {
		m.cut = ctx.Err() != nil
	}
	return m.end(ctx)
}

// A measurer makes one Measurement. Its fields belong to one goroutine; others only send to it.
type measurer struct {
	opts     Options
	client   *crictl.Client
	endpoint string
	out      *Measurement
	monitor  *Monitor // whose calls outlive the Measurement; nil in Measure

	mode    crictl.ListMode // of the samples, as the runtime supports it
	series  series
	gone    bool        // nothing useful is answered, or not any more, so no more calls are made
	hung    int         // calls so far without an answer, for Progress
	waiting *Inspection // for Progress
	cut     bool        // something was left out or abandoned because ctx ended
}

// end ends the measurement.
func (m *measurer) end(ctx context.Context) *Measurement {
	if m.out.Interrupted == "" && m.cut {
		m.out.Interrupted = whyEnded(ctx)
	}
	m.out.Ended = time.Now()
	return m.out
}

// call makes a call. Within a Monitor it awaits the call, which may go on, for a limited time.
func (m *measurer) call(
	ctx context.Context, within time.Duration, k callKey, do func(context.Context) reply,
) reply {
	if m.monitor == nil {
		return do(ctx)
	}
	return m.monitor.await(ctx, within, k, do)
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
	return timeUp
}

// note accounts for a finished call.
func (m *measurer) note(calls ...crictl.Call) {
	for _, c := range calls {
		if c.Hung() {
			m.hung++
		}
		if c.Code == crictl.Canceled {
			m.cut = true
		}
	}
}

func (m *measurer) progress(phase string, done, total int) {
	if m.opts.Progress != nil {
		m.opts.Progress(Progress{Phase: phase, Done: done, Total: total, Hung: m.hung, Waiting: m.waiting})
	}
}

// answered reports whether the call succeeded or its object was not found, which is normal for an object that was
// removed in the meantime.
func answered(c crictl.Call) bool { return c.OK() || c.Code == crictl.NotFound }

// failed reports whether the call was answered with an error, or could not be delivered.
func failed(c crictl.Call) bool {
	return !answered(c) && !c.Hung() && c.Code != crictl.Canceled && c.Method != ""
}
