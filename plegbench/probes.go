package plegbench

import (
	"context"
	"slices"
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// headStart is how long the probe of the socket may take before the first RPC is sent. A socket that is missing,
// refuses or may not be opened fails at once; one that does not answer must not cost a deadline.
const headStart = 100 * time.Millisecond

// probe probes the socket and makes every read-only RPC once. It returns false when no further call can be answered.
func (r *run) probe(ctx context.Context) bool {
	r.progress("connect", 0, 1)
	socket := r.probeSocket(ctx)
	select {
	case r.m.Connect = <-socket:
		r.progress("connect", 1, 1)
		if closed(r.m.Connect) {
			return false
		}
		socket = nil
	case <-time.After(headStart):
	}
	return r.askOnce(ctx, socket)
}

// probeSocket probes the socket in its own goroutine.
func (r *run) probeSocket(ctx context.Context) <-chan crictl.Connect {
	done := make(chan crictl.Connect, 1)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, r.opts.RPCTimeout)
		defer cancel()
		done <- r.opts.Probe(ctx, r.endpoint)
	}()
	return done
}

// closed reports whether RPCs through the socket can only fail in the same way.
func closed(c crictl.Connect) bool {
	switch c.State {
	case crictl.ConnectMissing, crictl.ConnectRefused, crictl.ConnectDenied, crictl.ConnectNotSocket:
		return true
	}
	return c.TTRPC
}

// patience is how long the first lists may take while Version and Status answer, twice as long as other calls: a slow
// disk or a contended lock makes lists of many seconds, for which a kubelet waits. It leaves the time in which a status
// call can be found to hang, beside others if need be, or, where there is too little, as much as makes the verdict on
// the list sure.
func (r *run) patience(ctx context.Context) time.Duration {
	rpc := r.opts.RPCTimeout
	deadline, ok := ctx.Deadline()
	left := time.Until(deadline)
	alone, beside := rpc+r.opts.stall(), (rpc+r.opts.stall())/2
	switch {
	case !ok || left >= 2*rpc+alone:
		return 2 * rpc
	case left > rpc+alone:
		return left - alone
	case left > rpc+beside:
		return rpc
	}
	return max(left*9/10, rpc)
}

// A reply is the outcome of a call. keep stores its result, is called on the goroutine of the measurement, and may be
// nil.
type reply struct {
	at   int // place among Probes
	call crictl.Call
	keep func(m *Measurement, first *Sample)
}

// A question is one of the probes.
type question struct {
	method string
	ask    func(context.Context) reply
}

// askOnce makes every read-only RPC in parallel, while the probe of the socket may still run. It returns false when the
// socket turned out to be closed.
func (r *run) askOnce(ctx context.Context, socket <-chan crictl.Connect) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	first := Sample{At: time.Now(), Mode: crictl.ModeUnary} // as the kubelet lists at first
	if r.opts.Streaming {
		first.Mode = crictl.ModeStream
	}
	lists, limit := r.client.WithTimeout(r.patience(ctx)), forGood
	if r.monitor != nil { // its calls go on
		lists, limit = r.client, r.patience(ctx)
	}
	patient, giveUp := context.WithTimeout(ctx, limit)
	defer giveUp()
	asks := asks(r.client, lists, first.Mode)
	replies := make(chan reply, len(asks))
	for i, q := range asks {
		go func() {
			wait := ctx
			if i == sandboxProbe || i == containerProbe {
				wait = patient
			}
			rep := r.through(ctx, wait, callKey{method: q.method}, q.ask)
			if wait != ctx && rep.call.Code == crictl.Canceled && ctx.Err() == nil { // by the end of patient
				rep.call.Code, rep.call.Err = crictl.DeadlineExceeded, context.DeadlineExceeded.Error()
			}
			rep.at = i
			replies <- rep
		}()
	}
	probes := make([]crictl.Call, len(asks))
	r.progress("probe", 0, len(asks))
	for done := 0; done < len(asks) || socket != nil; {
		select {
		case rep := <-replies:
			done++
			if rep.at < unlocked && rep.call.Hung() { // all hangs, the lists with it
				giveUp()
			}
			probes[rep.at] = rep.call
			if rep.keep != nil {
				rep.keep(r.m, &first)
			}
			r.note(rep.call)
			r.progress("probe", done, len(asks))
		case r.m.Connect = <-socket:
			socket = nil
			if closed(r.m.Connect) {
				return false
			}
		}
	}
	r.m.Probes = probes
	first.Sandboxes, first.Containers = probes[sandboxProbe], probes[containerProbe]
	r.gone = !slices.ContainsFunc(probes, spoke)
	r.took(first)
	return true
}

// spoke reports whether a CRI runtime answered the call, be it with an error. Unavailable comes from gRPC or
// from a runtime that is still starting, Unimplemented from a server that is no CRI runtime.
func spoke(c crictl.Call) bool {
	switch c.Code {
	case crictl.Canceled, crictl.Unavailable, crictl.Unimplemented, crictl.PermissionDenied:
		return false
	}
	return !c.Hung()
}

// Places among Measurement.Probes. The first ones, Version and Status, need no lock.
const (
	unlocked       = 2
	sandboxProbe   = 2
	containerProbe = 3
)

// asks returns the probes in the order of Measurement.Probes. Both lists, made by a client that is patient and in the
// given mode, are the first sample. In a Monitor they outlive what is measured, and refer to nothing of it.
func asks(c, lists *crictl.Client, mode crictl.ListMode) []question {
	return []question{
		{"Version", func(ctx context.Context) reply {
			v, call := c.Version(ctx)
			return reply{call: call, keep: func(m *Measurement, _ *Sample) { m.Version = v }}
		}},
		{"Status", func(ctx context.Context) reply {
			s, call := c.Status(ctx)
			return reply{call: call, keep: func(m *Measurement, _ *Sample) { m.Status = s }}
		}},
		{"ListPodSandbox", func(ctx context.Context) reply {
			got := sandboxes(ctx, lists, mode, true)
			return reply{call: got.call, keep: func(m *Measurement, first *Sample) {
				m.Sandboxes, first.Mode = got.list, got.mode
			}}
		}},
		{"ListContainers", func(ctx context.Context) reply {
			got := containers(ctx, lists, mode, true)
			return reply{call: got.call, keep: func(m *Measurement, _ *Sample) { m.Containers = got.list }}
		}},
		{"ListImages", func(ctx context.Context) reply { return reply{call: c.ListImages(ctx)} }},
		{"ImageFsInfo", func(ctx context.Context) reply { return reply{call: c.ImageFsInfo(ctx)} }},
	}
}
