package plegbench

import (
	"context"
	"sync"
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// noDeadline is the deadline of calls that need none. A call that hangs for a year is made again.
const noDeadline = 365 * 24 * time.Hour

// A callKey names an RPC and its object, which is empty for a call about the whole runtime.
type callKey struct{ method, object string }

// versionCall needs nothing but a server that serves.
var versionCall = callKey{method: "Version"}

// image reports whether an RPC is of the image service.
func image(method string) bool { return method == "ListImages" || method == "ImageFsInfo" }

// statusOf names the status call about an object.
func statusOf(i *Inspection) callKey {
	if i.Kind == KindPodSandbox {
		return callKey{"PodSandboxStatus", i.ID}
	}
	return callKey{"ContainerStatus", i.ID}
}

// An inFlightCall is a call that is under way.
type inFlightCall struct {
	callKey
	start time.Time
	round time.Time     // when the round began that made it
	done  chan struct{} // closed when it ended
	reply reply         // then

	noted bool       // as one that hangs
	about Inspection // of a status call that hangs: its object
}

// inFlight are the calls of a Monitor that are under way, one for each key. They do not end with the round that made
// them.
type inFlight struct {
	timeout time.Duration // after which a call has hung, as far as a Measurement is concerned
	period  time.Duration // after which the image service is asked again
	ctx     context.Context
	cancel  context.CancelFunc

	mu     sync.Mutex
	round  time.Time // when the present round began
	calls  map[callKey]*inFlightCall
	queue  []crictl.Call          // for news
	images map[string]crictl.Call // the last calls of the image service, by RPC
}

// await makes a call and returns its reply. It waits until ctx ends, or until the call has been under way for within;
// then it returns the call as hung or cut short, and the call goes on. A call in flight is not repeated; nor is one of
// the image service that was made recently, or while Version hangs: its previous reply is returned.
func (f *inFlight) await(
	ctx context.Context, within time.Duration, k callKey, do func(context.Context) reply,
) reply {
	for {
		c, started := f.start(k, do)
		select {
		case <-c.done:
			if started {
				return c.reply
			}
			continue // started by an earlier round, which did not wait for it
		case <-ctx.Done():
			return reply{call: f.elapsed(c)}
		case <-after(time.Until(c.start.Add(within))):
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		return reply{call: f.noteHung(c)}
	}
}

// after is time.After, but makes no timer where d has passed: goroutines that wait for timers that are due crash Go
// 1.26's synctest with -race.
func after(d time.Duration) <-chan time.Time {
	if d > 0 {
		return time.After(d)
	}
	past := make(chan time.Time)
	close(past)
	return past
}

// noteHung returns a call that hangs, and notes it once. f is locked.
func (f *inFlight) noteHung(c *inFlightCall) crictl.Call {
	call := f.elapsed(c)
	if !c.noted {
		c.noted, f.queue = true, append(f.queue, call)
	}
	return call
}

// start starts a call, or returns the one in flight. For a call of the image service that is not to be made it returns
// the previous one.
func (f *inFlight) start(k callKey, do func(context.Context) reply) (c *inFlightCall, started bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c = f.calls[k]; c != nil {
		return c, false
	}
	c = &inFlightCall{callKey: k, start: time.Now(), round: f.round, done: make(chan struct{})}
	if image(k.method) {
		last, asked := f.images[k.method]
		if asked && f.round.Sub(last.Start) < f.period || f.hangs(versionCall) {
			c.reply.call = last
			close(c.done)
			return c, true
		}
	}
	f.calls[k] = c
	go func() {
		r := do(f.ctx)
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.calls, k)
		f.queue = append(f.queue, r.call)
		if image(k.method) && !broken(r.call) {
			f.images[k.method] = r.call
		}
		c.reply = r
		close(c.done)
	}()
	return c, true
}

// hangs reports whether a call hangs. f is locked.
func (f *inFlight) hangs(k callKey) bool {
	c := f.calls[k]
	return c != nil && time.Since(c.start) >= f.timeout
}

// elapsed returns a call under way as Measure would report it when it gives up: hung, or cut short.
func (f *inFlight) elapsed(c *inFlightCall) crictl.Call {
	call := crictl.Call{
		Method: c.method, Object: c.object, Start: c.start, Elapsed: time.Since(c.start),
		Code: crictl.DeadlineExceeded, Err: context.DeadlineExceeded.Error(),
	}
	if call.Elapsed < f.timeout {
		call.Code, call.Err = crictl.Canceled, context.Canceled.Error()
	}
	return call
}

// broken reports whether a call ended with its connection.
func broken(c crictl.Call) bool { return c.Code == crictl.Unavailable || c.Code == crictl.Canceled }

// news returns the calls that have ended, or were found to hang, since it was called last. Calls that are made from now
// on belong to the round that began then.
func (f *inFlight) news(round time.Time) (calls []crictl.Call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for k, c := range f.calls {
		if f.hangs(k) {
			f.noteHung(c)
		}
	}
	calls, f.queue, f.round = f.queue, nil, round
	return calls
}

// underWay returns the status calls that have not ended, by object. Of the calls that hang, but for those of the image
// service, it returns when the rounds began that made the oldest and the newest; zero for none.
func (f *inFlight) underWay() (statuses map[string]*inFlightCall, oldest, newest time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	statuses = map[string]*inFlightCall{}
	for k, c := range f.calls {
		if k.object != "" {
			statuses[k.object] = c
		}
		if image(k.method) || !f.hangs(k) {
			continue
		}
		if oldest.IsZero() || c.round.Before(oldest) {
			oldest = c.round
		}
		if c.round.After(newest) {
			newest = c.round
		}
	}
	return statuses, oldest, newest
}
