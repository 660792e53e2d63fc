package plegbench

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/kdiag/kdiag/crictl"
)

// headStart is the time that the probe of the socket may take before the first RPC is sent. A socket that is missing,
// refuses or may not be opened fails at once; one that does not answer must not cost a deadline.
const headStart = 100 * time.Millisecond

// probe probes the socket and makes every read-only RPC once. ok is false when no further call can be answered; else
// first has the two lists.
func (m *measurer) probe(ctx context.Context) (first Sample, ok bool) {
	m.progress("connect", 0, 1)
	socket := m.probeSocket(ctx)
	select {
	case m.out.Connect = <-socket:
		m.progress("connect", 1, 1)
		if closed(m.out.Connect) {
			return first, false
		}
		socket = nil
	case <-time.After(headStart):
	}
	return m.askOnce(ctx, socket)
}

// probeSocket probes the socket in its own goroutine.
func (m *measurer) probeSocket(ctx context.Context) <-chan crictl.Connect {
	done := make(chan crictl.Connect, 1)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, m.opts.RPCTimeout)
		defer cancel()
		done <- m.opts.Probe(ctx, m.endpoint)
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

// probeBudget returns the time that the first lists may take while Version and Status answer, twice as long as other
// calls: a slow disk or a contended lock makes lists of many seconds, for which a kubelet waits. It leaves the time in
// which a status call can be found to hang, beside others if need be, or, where there is too little, as much as makes
// the verdict on the list sure.
func (m *measurer) probeBudget(ctx context.Context) time.Duration {
	rpc := m.opts.RPCTimeout
	deadline, ok := ctx.Deadline()
	left := time.Until(deadline)
	alone, beside := rpc+m.opts.stall(), (rpc+m.opts.stall())/2
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

// A reply is the outcome of a call, with the result of its RPC.
type reply struct {
	call       crictl.Call
	version    *crictl.Version
	status     *crictl.Status
	sandboxes  *crictl.PodSandboxList
	containers *crictl.ContainerList
	mode       crictl.ListMode // of a list

	probe int // place among Probes
}

// A probeCall is one of the probes.
type probeCall struct {
	method string
	do     func(context.Context) reply
}

// askOnce makes every read-only RPC in parallel, while the probe of the socket may still run. ok is false when the
// socket turned out to be closed.
func (m *measurer) askOnce(ctx context.Context, socket <-chan crictl.Connect) (first Sample, ok bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	first = Sample{At: time.Now(), Mode: crictl.ModeUnary} // as the kubelet lists at first
	if m.opts.Streaming {
		first.Mode = crictl.ModeStream
	}
	budget, lists := m.probeBudget(ctx), m.client
	if m.monitor == nil { // the calls of a Monitor go on
		lists = lists.WithTimeout(budget)
	}
	listCtx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	calls := probeCalls(m.client, lists, first.Mode)
	replies := make(chan reply, len(calls))
	for i, c := range calls {
		go func() {
			var rep reply
			if i == sandboxProbe || i == containerProbe {
				rep = m.call(listCtx, budget, callKey{method: c.method}, c.do)
				if rep.call.Code == crictl.Canceled && ctx.Err() == nil { // by giveUp
					rep.call.Code, rep.call.Err = crictl.DeadlineExceeded, context.DeadlineExceeded.Error()
				}
			} else {
				rep = m.call(ctx, m.opts.RPCTimeout, callKey{method: c.method}, c.do)
			}
			rep.probe = i
			replies <- rep
		}()
	}
	probes := make([]crictl.Call, len(calls))
	m.progress("probe", 0, len(calls))
	for done := 0; done < len(calls) || socket != nil; {
		select {
		case rep := <-replies:
			done++
			if rep.probe < unlocked && rep.call.Hung() { // everything hangs: the lists get no more time than other calls
				time.AfterFunc(time.Until(first.At.Add(m.opts.RPCTimeout)), giveUp)
			}
			probes[rep.probe] = rep.call
			m.out.Version, m.out.Status = cmp.Or(m.out.Version, rep.version), cmp.Or(m.out.Status, rep.status)
			m.out.Sandboxes = cmp.Or(m.out.Sandboxes, rep.sandboxes)
			m.out.Containers = cmp.Or(m.out.Containers, rep.containers)
			if rep.probe == sandboxProbe {
				first.Mode = cmp.Or(rep.mode, first.Mode)
			}
			m.note(rep.call)
			m.progress("probe", done, len(calls))
		case m.out.Connect = <-socket:
			socket = nil
			if closed(m.out.Connect) {
				return first, false
			}
		}
	}
	m.out.Probes = probes
	first.Sandboxes, first.Containers = probes[sandboxProbe], probes[containerProbe]
	m.gone = !slices.ContainsFunc(probes, spoke)
	return first, true
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

// probeCalls returns the probes in the order of Measurement.Probes. The two lists are made by a client of their own, in
// the given mode. In a Monitor the calls outlive the measurement, and refer to nothing of it.
func probeCalls(c, lists *crictl.Client, mode crictl.ListMode) []probeCall {
	return []probeCall{
		{"Version", func(ctx context.Context) (r reply) {
			r.version, r.call = c.Version(ctx)
			return r
		}},
		{"Status", func(ctx context.Context) (r reply) {
			r.status, r.call = c.Status(ctx)
			return r
		}},
		{"ListPodSandbox", func(ctx context.Context) reply { return listSandboxes(ctx, lists, mode, true) }},
		{"ListContainers", func(ctx context.Context) reply { return listContainers(ctx, lists, mode, true) }},
		{"ListImages", func(ctx context.Context) reply { return reply{call: c.ListImages(ctx)} }},
		{"ImageFsInfo", func(ctx context.Context) reply { return reply{call: c.ImageFsInfo(ctx)} }},
	}
}
