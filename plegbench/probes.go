package plegbench

import (
	"context"
	"slices"
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// headStart is what knocking at the socket gets before the first RPC is sent. A socket that is missing, refuses or may
// not be opened says so at once; one that is silent must not cost a deadline of its own.
const headStart = 100 * time.Millisecond

// probe knocks and asks every read-only RPC once. It returns false when there is nobody to ask anything else.
func (r *run) probe(ctx context.Context) bool {
	r.progress("connect", 0, 1)
	knock := r.knock(ctx)
	timer := time.NewTimer(headStart)
	defer timer.Stop()
	select {
	case r.m.Connect = <-knock:
		r.progress("connect", 1, 1)
		if closed(r.m.Connect) {
			return false
		}
		knock = nil
	case <-timer.C:
	}
	return r.askOnce(ctx, knock)
}

// knock probes the socket on the side.
func (r *run) knock(ctx context.Context) <-chan crictl.Connect {
	done := make(chan crictl.Connect, 1)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, r.opts.RPCTimeout)
		defer cancel()
		done <- r.opts.Probe(ctx, r.endpoint)
	}()
	return done
}

// closed reports whether a socket lets no RPC in, so that RPCs would only repeat it.
func closed(c crictl.Connect) bool {
	switch c.State {
	case crictl.ConnectMissing, crictl.ConnectRefused, crictl.ConnectDenied, crictl.ConnectNotSocket:
		return true
	}
	return c.TTRPC
}

// A reply is the outcome of one of the probes. keep stores what it brought and is called on Measure's goroutine.
type reply struct {
	at   int // place among Probes
	call crictl.Call
	keep func()
}

// askOnce asks every read-only RPC, side by side, while the knock, if it is still out, goes on. It returns false when
// the socket turned out closed after all.
func (r *run) askOnce(ctx context.Context, knock <-chan crictl.Connect) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	first := Sample{At: time.Now(), Mode: r.kubeletMode()}
	asks := r.asks(ctx, first.Mode, &first)
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
	for done := 0; done < len(asks) || knock != nil; {
		select {
		case rep := <-replies:
			done++
			probes[rep.at] = rep.call
			rep.keep()
			r.note(rep.call)
			r.progress("probe", done, len(asks))
		case r.m.Connect = <-knock:
			knock = nil
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

// spoke reports whether the call drew an answer out of a CRI runtime, an error included. Unavailable comes from gRPC or
// from a runtime that is still starting, Unimplemented from a server that is no CRI runtime.
func spoke(c crictl.Call) bool {
	switch c.Code {
	case crictl.Canceled, crictl.Unavailable, crictl.Unimplemented, crictl.PermissionDenied:
		return false
	}
	return !c.Hung()
}

// asks returns the probes in the order of Measurement.Probes. Both lists, made in the given mode, are the first sample.
func (r *run) asks(ctx context.Context, mode crictl.ListMode, first *Sample) []func() reply {
	c, m := r.client, r.m
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
			got := r.sandboxes(ctx, mode, true)
			return reply{call: got.call, keep: func() { m.Sandboxes, first.Sandboxes, first.Mode = got.list, got.call, got.mode }}
		},
		func() reply {
			got := r.containers(ctx, mode, true)
			return reply{call: got.call, keep: func() { m.Containers, first.Containers = got.list, got.call }}
		},
		func() reply { return reply{call: c.ListImages(ctx), keep: func() {}} },
		func() reply { return reply{call: c.ImageFsInfo(ctx), keep: func() {}} },
	}
}
