package plegbench

import (
	"context"
	"slices"
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// maxOutstanding is how many status calls may be without an answer, under way or given up, before no more are made.
// Each of them holds a handler in the runtime, whose locks may outlive our deadline, and the thirty-third would tell
// nothing that thirty-two do not.
const maxOutstanding = 32

// inspect asks for the status of objects one by one, a few at a time.
func (r *run) inspect(ctx context.Context) {
	if r.opts.NoSweep {
		r.m.Sweep.Reach = "not asked for"
		return
	}
	var hints []Hint
	if !r.gone && ctx.Err() == nil {
		hints = r.hints(ctx)
	}
	s := &sweeper{
		run:     r,
		ctx:     ctx,
		targets: targets(r.m.Sandboxes, r.m.Containers, hints, r.opts.Newest),
		began:   time.Now(),
		results: make(chan result, maxOutstanding),
	}
	s.tell()
	s.sweep()
	r.m.Sweep = Sweep{Total: len(s.targets), Inspections: s.asked, Reach: s.reach()}
	r.cut = r.cut || s.cutShort()
}

// A sweeper makes the status calls of one sweep. All of it belongs to one goroutine; calls run in others and send.
type sweeper struct {
	*run
	ctx     context.Context
	targets []target
	began   time.Time

	asked   []Inspection // of targets[:len(asked)]
	flights []flight     // calls that have not returned, in the order in which they were made
	results chan result  // has room for every flight, so that senders never wait
	stopped stopReason   // why no more is asked; goOn while more is

	returned int // calls that have returned
	givenUp  int // of those, at their deadline
	silent   int // calls that stalled since the last one that was answered

	pulse *pulse // nil when none is out
}

// A flight is a call that has not returned.
type flight struct {
	index   int // in asked
	since   time.Time
	stalled bool // out for longer than stall, so that it no longer takes a slot
}

// A result is a returned call.
type result struct {
	index int
	call  crictl.Call
}

// sweep runs until everything is asked or a reason to stop comes up, and every call has returned. Calls return at their
// deadline at the latest, which is the client's business.
func (s *sweeper) sweep() {
	timer := time.NewTimer(s.opts.stall())
	defer timer.Stop()
	for {
		s.markStalled()
		for s.hasSlot() && s.mayAsk() {
			s.ask()
		}
		s.takePulse()
		if len(s.flights) == 0 && s.pulse == nil {
			return
		}
		s.wait(timer)
	}
}

// wait sleeps until something returns or the next call stalls.
func (s *sweeper) wait(timer *time.Timer) {
	var pulse <-chan crictl.Call
	if s.pulse != nil {
		pulse = s.pulse.call
	}
	var stalls <-chan time.Time
	if i := slices.IndexFunc(s.flights, func(f flight) bool { return !f.stalled }); i >= 0 {
		timer.Reset(time.Until(s.flights[i].since.Add(s.opts.stall())))
		stalls = timer.C
	}
	select {
	case res := <-s.results:
		s.land(res)
	case call := <-pulse:
		s.pulse = nil
		s.silent = 0
		s.beat(call)
	case <-stalls:
	}
}

// markStalled takes the slots from calls that have been out for long.
func (s *sweeper) markStalled() {
	for i := range s.flights {
		f := &s.flights[i]
		if !f.stalled && time.Since(f.since) >= s.opts.stall() {
			f.stalled = true
			s.silent++
		}
	}
}

// hasSlot reports whether another call may be out now. None is made while the pulse is being taken, or ought to be.
func (s *sweeper) hasSlot() bool {
	if s.pulse != nil || s.silent >= s.opts.Concurrency || len(s.flights) >= maxOutstanding {
		return false
	}
	young := 0
	for _, f := range s.flights {
		if !f.stalled {
			young++
		}
	}
	return young < s.opts.Concurrency
}

// stalledNow counts the calls out that have stalled.
func (s *sweeper) stalledNow() int {
	n := 0
	for _, f := range s.flights {
		if f.stalled {
			n++
		}
	}
	return n
}

// A stopReason says why a sweep asks nothing more.
type stopReason int

const (
	goOn         stopReason = iota
	stopAll                 // nothing is left
	stopEnded               // ctx is done
	stopGone                // the runtime answers nothing any more
	stopMany                // too many calls hang
	stopBudgeted            // the time for what is not a must is up
)

// mayAsk reports whether the next target is to be asked about, and records why not.
func (s *sweeper) mayAsk() bool {
	next := len(s.asked)
	switch {
	case s.stopped != goOn:
	case next == len(s.targets):
		s.stopped = stopAll
	case s.ctx.Err() != nil:
		s.stopped = stopEnded
	case s.gone:
		s.stopped = stopGone
	case s.givenUp+s.stalledNow() >= maxOutstanding:
		s.stopped = stopMany
	case !s.opts.Deep && !s.targets[next].must && time.Since(s.began) >= s.opts.SweepBudget:
		s.stopped = stopBudgeted
	}
	return s.stopped == goOn
}

// ask sends the next target's call on its way.
func (s *sweeper) ask() {
	index := len(s.asked)
	i := s.targets[index].inspection()
	s.asked = append(s.asked, i)
	s.flights = append(s.flights, flight{index: index, since: time.Now()})
	go func() {
		var call crictl.Call
		if i.Kind == KindPodSandbox {
			_, call = s.client.PodSandboxStatus(s.ctx, i.ID)
		} else {
			_, call = s.client.ContainerStatus(s.ctx, i.ID)
		}
		s.results <- result{index: index, call: call}
	}()
}

// land takes in a returned call.
func (s *sweeper) land(res result) {
	s.asked[res.index].Call = res.call
	s.flights = slices.DeleteFunc(s.flights, func(f flight) bool { return f.index == res.index })
	s.returned++
	switch {
	case res.call.Hung():
		s.givenUp++
		s.hung++
	case res.call.Code == crictl.Canceled:
		// gRPC looks at the clock and can be ahead of ctx's timer by a moment, in which hundreds of calls would be made.
		s.stopped = stopEnded
	default:
		s.silent = 0
		if s.pulse != nil {
			s.pulse.cancel()
			s.pulse = nil
		}
	}
	s.tell()
}

// takePulse asks for the version when as many calls as there are slots have stalled in a row, or when all that is left
// has: either the runtime as a whole fell silent, and then nothing is gained by asking on, or those objects hang.
func (s *sweeper) takePulse() {
	if s.pulse != nil || s.gone || s.silent == 0 || s.ctx.Err() != nil {
		return
	}
	if s.silent >= s.opts.Concurrency || s.stalledNow() == len(s.flights) {
		s.pulse = s.startPulse(s.ctx)
	}
}

func (s *sweeper) tell() {
	s.progress("inspect", s.returned, len(s.targets))
}
