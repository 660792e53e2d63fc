package plegbench

import (
	"context"
	"sync"
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// forGood is the deadline of calls that are to have none. What still hangs after a year is made again.
const forGood = 365 * 24 * time.Hour

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

// A heldCall is a call that is under way.
type heldCall struct {
	callKey
	start time.Time
	look  time.Time     // when the look began that made it
	done  chan struct{} // closed when it ended
	reply reply         // then

	noted bool       // as one that hangs
	about Inspection // of a status call that hangs: its object
}

// held are the calls of a Monitor that are under way, one of a key. They do not end with the look that made them.
type held struct {
	timeout time.Duration // after which a call has hung, as far as a Measurement is concerned
	period  time.Duration // after which the image service is asked again
	ctx     context.Context
	cancel  context.CancelFunc

	mu     sync.Mutex
	look   time.Time // when the present look began
	calls  map[callKey]*heldCall
	queue  []crictl.Call          // for news
	images map[string]crictl.Call // the last calls of the image service, by RPC
}

// hold makes a call, and returns its reply, or after the timeout that it hung: then it goes on. A list has until
// patient ends, which is ctx for other calls. A call that hangs already is not made, and neither is one of the image
// service that was made a short time ago, or while Version hangs; its last reply stands for it.
func (h *held) hold(ctx, patient context.Context, k callKey, do func(context.Context) reply) reply {
	for {
		c, mine := h.start(k, do)
		select {
		case <-c.done:
			if mine {
				return c.reply
			}
			continue // of the look before, which did not wait for it
		case <-ctx.Done():
			return reply{call: h.soFar(c)}
		case <-after(time.Until(c.start.Add(h.timeout))):
		}
		if mine && patient != ctx {
			select {
			case <-c.done:
				return c.reply
			case <-patient.Done():
			}
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		return reply{call: h.found(c)}
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

// found returns a call that hangs, and notes it once. h is locked.
func (h *held) found(c *heldCall) crictl.Call {
	call := h.soFar(c)
	if !c.noted {
		c.noted, h.queue = true, append(h.queue, call)
	}
	return call
}

// start starts a call, or returns the one that is under way, or that stands for it.
func (h *held) start(k callKey, do func(context.Context) reply) (c *heldCall, mine bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c = h.calls[k]; c != nil {
		return c, false
	}
	c = &heldCall{callKey: k, start: time.Now(), look: h.look, done: make(chan struct{})}
	if image(k.method) {
		last, asked := h.images[k.method]
		if asked && h.look.Sub(last.Start) < h.period || h.hangs(versionCall) {
			c.reply.call = last
			close(c.done)
			return c, true
		}
	}
	h.calls[k] = c
	go func() {
		r := do(h.ctx)
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.calls, k)
		h.queue = append(h.queue, r.call)
		if image(k.method) && !broken(r.call) {
			h.images[k.method] = r.call
		}
		c.reply = r
		close(c.done)
	}()
	return c, true
}

// hangs reports whether a call hangs. h is locked.
func (h *held) hangs(k callKey) bool {
	c := h.calls[k]
	return c != nil && time.Since(c.start) >= h.timeout
}

// soFar is a call under way as Measure would have given it up: hung, or cut short.
func (h *held) soFar(c *heldCall) crictl.Call {
	call := crictl.Call{
		Method: c.method, Object: c.object, Start: c.start, Elapsed: time.Since(c.start),
		Code: crictl.DeadlineExceeded, Err: context.DeadlineExceeded.Error(),
	}
	if call.Elapsed < h.timeout {
		call.Code, call.Err = crictl.Canceled, context.Canceled.Error()
	}
	return call
}

// broken reports whether a call ended with its connection.
func broken(c crictl.Call) bool { return c.Code == crictl.Unavailable || c.Code == crictl.Canceled }

// news returns the calls that ended since it was called last, and those that were found to hang. The calls that are
// made from now on are of the look that began then.
func (h *held) news(look time.Time) (calls []crictl.Call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for k, c := range h.calls {
		if h.hangs(k) {
			h.found(c)
		}
	}
	calls, h.queue, h.look = h.queue, nil, look
	return calls
}

// underWay returns the status calls that have not ended, by object, and when the looks began that made the oldest and
// the newest of the calls that hang, but for those of the image service; zero for none.
func (h *held) underWay() (statuses map[string]*heldCall, oldest, newest time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	statuses = map[string]*heldCall{}
	for k, c := range h.calls {
		if k.object != "" {
			statuses[k.object] = c
		}
		if image(k.method) || !h.hangs(k) {
			continue
		}
		if oldest.IsZero() || c.look.Before(oldest) {
			oldest = c.look
		}
		if c.look.After(newest) {
			newest = c.look
		}
	}
	return statuses, oldest, newest
}
