package plegbench

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// maxOutstanding is how many status calls may be without an answer, under way or given up, before no more are made.
// Each of them occupies a handler in the runtime, whose locks may outlive our deadline.
const maxOutstanding = 32

// inspect requests the status of objects, a few at a time.
func (m *measurer) inspect(ctx context.Context) {
	if m.opts.NoSweep {
		m.out.Sweep.Reach = "not asked for"
		return
	}
	all := targets(m.out.Sandboxes, m.out.Containers, m.hints(ctx), newestExited)
	s := newSweeper(ctx, m, all, order(all, m.opts.Shuffle))
	s.report()
	s.sweep()
	s.giveUp()
	m.out.Sweep = Sweep{Total: len(all), Inspections: s.sorted(), Reach: s.reach(len(all), s.asked, "")}
	m.cut = m.cut || s.cutShort()
}

// A sweeper makes the status calls of one sweep. All of it belongs to one goroutine; calls run in others and send.
type sweeper struct {
	*measurer
	ctx     context.Context
	targets []target
	order   []int // in which they are asked, as indices of targets
	began   time.Time
	checkAt time.Duration // after began, when decided computes again

	asked   []Inspection  // of order[:len(asked)]
	calls   []pendingCall // that have not returned, in the order in which they were made
	results chan result   // has room for every call, so that senders never wait
	stopped stopReason    // why no more calls are made; goOn while they are

	returned int // calls that have returned
	givenUp  int // of those, at their deadline
	stalled  int // calls that stalled since the last one that was answered

	liveness *livenessCall // nil when none is out
}

func newSweeper(ctx context.Context, m *measurer, all []target, order []int) *sweeper {
	return &sweeper{
		measurer: m, ctx: ctx, targets: all, order: order, began: time.Now(), checkAt: sampleTime,
		results: make(chan result, maxOutstanding),
	}
}

// quickCompany is how many times longer than others a call must have been out, half of its deadline at least, to count
// as hung when the end of ctx cuts it short.
const quickCompany = 50

// giveUp counts as hung the calls that the end of the time cut short, where others were far quicker.
func (s *sweeper) giveUp() {
	typical := answersOf(s.asked)
	for i := range s.asked {
		c, others := &s.asked[i].Call, typical[stratumOf(&s.asked[i])]
		if c.Code == crictl.Canceled && errors.Is(s.ctx.Err(), context.DeadlineExceeded) &&
			others.n >= leastAnswers && c.Elapsed >= max(s.opts.RPCTimeout/2, quickCompany*others.mean) {
			c.Code, c.Err = crictl.DeadlineExceeded, context.DeadlineExceeded.Error()
			s.hung++
		}
	}
}

// sorted returns the inspections in the order of the targets, so that equal answers make equal reports.
func (s *sweeper) sorted() []Inspection {
	at := make(map[int]int, len(s.asked))
	for i := range s.asked {
		at[s.order[i]] = i
	}
	sorted := make([]Inspection, 0, len(s.asked))
	for _, target := range slices.Sorted(maps.Keys(at)) {
		sorted = append(sorted, s.asked[at[target]])
	}
	return sorted
}

// A pendingCall is a call that has not returned.
type pendingCall struct {
	index   int // in asked
	since   time.Time
	stalled bool // out for longer than stall, so that it no longer takes a slot
}

// A result is a returned call.
type result struct {
	index int
	call  crictl.Call
}

// sweep runs until everything is inspected or there is a reason to stop, and every call has returned. The client ends
// calls at their deadline at the latest.
func (s *sweeper) sweep() {
	for {
		s.markStalled()
		for s.hasSlot() && s.mayAsk() {
			s.ask()
		}
		s.checkLiveness()
		if len(s.calls) == 0 && s.liveness == nil {
			return
		}
		s.wait()
	}
}

// wait sleeps until something returns or the next call stalls.
func (s *sweeper) wait() {
	var liveness <-chan crictl.Call
	if s.liveness != nil {
		liveness = s.liveness.call
	}
	var stalls <-chan time.Time
	if i := slices.IndexFunc(s.calls, func(f pendingCall) bool { return !f.stalled }); i >= 0 {
		stalls = after(time.Until(s.calls[i].since.Add(s.opts.stall())))
	}
	select {
	case res := <-s.results:
		s.done(res)
	case call := <-liveness:
		s.liveness = nil
		s.stalled = 0
		s.live(call)
	case <-stalls:
	}
}

// markStalled frees the slots of calls that have stalled.
func (s *sweeper) markStalled() {
	for i := range s.calls {
		f := &s.calls[i]
		if !f.stalled && time.Since(f.since) >= s.opts.stall() {
			f.stalled = true
			s.stalled++
			s.report()
		}
	}
}

// hasSlot reports whether another call may be made now. None is made while the liveness is being checked, or is to be.
func (s *sweeper) hasSlot() bool {
	full := s.givenUp < maxOutstanding && s.givenUp+len(s.calls) >= maxOutstanding // else it is time to stop
	if s.liveness != nil || s.stalled >= concurrency || full {
		return false
	}
	return len(s.calls)-s.stalledNow() < concurrency
}

// stalledNow counts the calls out that have stalled.
func (s *sweeper) stalledNow() int {
	n := 0
	for _, f := range s.calls {
		if f.stalled {
			n++
		}
	}
	return n
}

// A stopReason is why a sweep makes no further calls.
type stopReason int

const (
	goOn         stopReason = iota
	stopAll                 // nothing is left
	stopEnded               // ctx is done
	stopGone                // the runtime answers nothing any more
	stopMany                // too many calls hang
	stopBudgeted            // the time for objects that are not a must is up
	stopDecided             // a relist of all pods takes too long, even if the others are fast
)

// mayAsk reports whether the next target is to be inspected, and records why not.
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
	case !s.opts.Deep && s.targets[s.order[next]].turn != must && time.Since(s.began) >= sweepBudget:
		s.stopped = stopBudgeted
	case !s.opts.Deep && s.decided():
		s.stopped = stopDecided
	}
	return s.stopped == goOn
}

// decided reports whether those asked show that a relist of all takes longer than the kubelet allows. It computes
// once a second. A call that hangs keeps the sweep going, to find the others that hang.
func (s *sweeper) decided() bool {
	if time.Since(s.began) < s.checkAt || s.hung > 0 || s.stalledNow() > 0 {
		return false
	}
	s.checkAt += time.Second
	m := *s.out
	m.Sweep.Inspections = s.asked
	p := newProjection(&m, RequestTimeout)
	cold := p.around(p.cold(), p.all())
	return cold != nil && cold.Low > RelistThreshold.Seconds()
}

// ask starts the next target's call.
func (s *sweeper) ask() {
	index := len(s.asked)
	i := s.targets[s.order[index]].inspection()
	s.asked = append(s.asked, i)
	s.calls = append(s.calls, pendingCall{index: index, since: time.Now()})
	client := s.client // the call may outlive s, which holds the lists
	status := func(ctx context.Context) (rep reply) {
		if i.Kind == KindPodSandbox {
			_, rep.call = client.PodSandboxStatus(ctx, i.ID)
		} else {
			_, rep.call = client.ContainerStatus(ctx, i.ID)
		}
		return rep
	}
	go func() {
		s.results <- result{index: index, call: s.call(s.ctx, s.opts.RPCTimeout, statusOf(&i), status).call}
	}()
}

// done takes a returned call.
func (s *sweeper) done(res result) {
	s.asked[res.index].Call = res.call
	s.calls = slices.DeleteFunc(s.calls, func(f pendingCall) bool { return f.index == res.index })
	s.returned++
	switch {
	case res.call.Hung():
		s.givenUp++
		s.hung++
	case res.call.Code == crictl.Canceled:
		// gRPC compares the clock itself and can be slightly ahead of ctx's timer, in which time hundreds of calls
		// would start.
		s.stopped = stopEnded
	default:
		s.stalled = 0
		if s.liveness != nil {
			s.liveness.cancel()
			s.liveness = nil
		}
	}
	s.report()
}

// checkLiveness calls Version when as many calls as there are slots have stalled in a row, or all that are left have:
// either the runtime as a whole stopped answering, and then further calls are useless, or those objects hang.
func (s *sweeper) checkLiveness() {
	if s.liveness != nil || s.gone || s.stalled == 0 || s.ctx.Err() != nil {
		return
	}
	if s.stalled >= concurrency || s.stalledNow() == len(s.calls) {
		s.liveness = s.startLiveness(s.ctx)
	}
}

// report reports how far the sweep is, and which object it waits for.
func (s *sweeper) report() {
	s.waiting = nil
	if i := slices.IndexFunc(s.calls, func(f pendingCall) bool { return f.stalled }); i >= 0 {
		s.waiting = new(s.asked[s.calls[i].index])
	}
	s.progress("inspect", s.returned, len(s.targets))
}

// A livenessCall is a Version call made beside others that stall. Version needs nothing but a server that serves: a
// runtime that hangs on one container's lock answers it, one that was stopped or is deadlocked does not. It is
// cancelled when a stalled call was answered after all.
type livenessCall struct {
	call   <-chan crictl.Call // receives the call when it has ended
	cancel context.CancelFunc
}

// startLiveness calls Version beside the calls in flight.
func (m *measurer) startLiveness(ctx context.Context) *livenessCall {
	ctx, cancel := context.WithCancel(ctx)
	call, client := make(chan crictl.Call, 1), m.client // the call may outlive m
	go func() {
		defer cancel()
		rep := m.call(ctx, m.opts.RPCTimeout, versionCall, func(ctx context.Context) (r reply) {
			_, r.call = client.Version(ctx)
			return r
		})
		call <- rep.call
	}()
	return &livenessCall{call: call, cancel: cancel}
}

// live records a finished liveness call. A runtime that does not even answer Version gets no further calls.
func (m *measurer) live(c crictl.Call) {
	m.out.Liveness = append(m.out.Liveness, c)
	m.note(c)
	m.gone = !c.OK()
}
