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

// A reply is the outcome of one of the probes. keep stores its result and is called on Measure's goroutine.
type reply struct {
	at   int // place among Probes
	call crictl.Call
	keep func()
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
	patient, giveUp := context.WithCancel(ctx)
	defer giveUp()
	asks := r.asks(ctx, patient, first.Mode, &first)
	replies := make(chan reply, len(asks))
	for i, ask := range asks {
		go func() {
			rep := ask()
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
			rep.keep()
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

// unlocked is how many of the probes, the first ones, need no lock: Version and Status.
const unlocked = 2

// asks returns the probes in the order of Measurement.Probes. Both lists, made in the given mode, are the first sample.
// When patient ends before ctx, they have hung.
func (r *run) asks(ctx, patient context.Context, mode crictl.ListMode, first *Sample) []func() reply {
	c, m := r.client, r.m
	lists := c.WithTimeout(r.patience(ctx))
	late := func(call crictl.Call) crictl.Call {
		if call.Code == crictl.Canceled && ctx.Err() == nil {
			call.Code, call.Err = crictl.DeadlineExceeded, context.DeadlineExceeded.Error()
		}
		return call
	}
	return []func() reply{
		func() reply {
			v, call := c.Version(ctx)
			return reply{call: call, keep: func() { m.Version = v }}
		},
		func() reply {
			s, call := c.Status(ctx)
			return reply{call: call, keep: func() { m.Status = s }}
		},
		func() reply {
			got := sandboxes(patient, lists, mode, true)
			got.call = late(got.call)
			return reply{call: got.call, keep: func() {
				m.Sandboxes, first.Sandboxes, first.Mode = got.list, got.call, got.mode
			}}
		},
		func() reply {
			got := containers(patient, lists, mode, true)
			got.call = late(got.call)
			return reply{call: got.call, keep: func() { m.Containers, first.Containers = got.list, got.call }}
		},
		func() reply { return reply{call: c.ListImages(ctx), keep: func() {}} },
		func() reply { return reply{call: c.ImageFsInfo(ctx), keep: func() {}} },
	}
}
