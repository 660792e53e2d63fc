package plegbench

import (
	"context"

	"github.com/kdiag/kdiag/crictl"
)

// kubeletMode is the mode in which the kubelet would list at first.
func (r *run) kubeletMode() crictl.ListMode {
	if r.opts.Streaming {
		return crictl.ModeStream
	}
	return crictl.ModeUnary
}

// An obtained is one list, in whichever mode it arrived, and the call that a kubelet would have made.
type obtained[L any] struct {
	list *L              // nil when no list arrived
	call crictl.Call     // decides the kubelet's outcome
	mode crictl.ListMode // of call
}

// sandboxes lists sandboxes as obtain does.
func (r *run) sandboxes(ctx context.Context, mode crictl.ListMode, search bool) obtained[crictl.PodSandboxList] {
	return obtain(mode, search, func(mode crictl.ListMode) (*crictl.PodSandboxList, crictl.Call, bool) {
		l := r.client.ListPodSandbox(ctx, crictl.Filter{}, mode)
		if len(l.Sandboxes) == 0 && !l.Complete {
			return nil, lastCall(l.Calls), false
		}
		return l, lastCall(l.Calls), l.Complete
	})
}

// containers lists containers as obtain does.
func (r *run) containers(ctx context.Context, mode crictl.ListMode, search bool) obtained[crictl.ContainerList] {
	return obtain(mode, search, func(mode crictl.ListMode) (*crictl.ContainerList, crictl.Call, bool) {
		l := r.client.ListContainers(ctx, crictl.Filter{}, mode)
		if len(l.Containers) == 0 && !l.Complete {
			return nil, lastCall(l.Calls), false
		}
		return l, lastCall(l.Calls), l.Complete
	})
}

// obtain lists as a kubelet would: by mode, and when the runtime does not know streams, unary. With search, a list that
// is refused is obtained by stream, or else by filtered lists, to have the facts that this kubelet does not get.
func obtain[L any](mode crictl.ListMode, search bool, ask func(crictl.ListMode) (*L, crictl.Call, bool)) obtained[L] {
	list, call, _ := ask(mode)
	if mode == crictl.ModeStream && call.Code == crictl.Unimplemented {
		mode = crictl.ModeUnary
		list, call, _ = ask(mode)
	}
	got := obtained[L]{list: list, call: call, mode: mode}
	if !search || !refused(call) {
		return got
	}
	if mode != crictl.ModeStream {
		if streamed, _, complete := ask(crictl.ModeStream); complete {
			got.list = streamed
			return got
		}
	}
	got.list, _, _ = ask(crictl.ModeFiltered)
	return got
}

// lastCall returns the call that decided a list.
func lastCall(calls []crictl.Call) crictl.Call {
	if len(calls) == 0 {
		return crictl.Call{}
	}
	return calls[len(calls)-1]
}

// refused reports whether another mode may give the same list: the runtime answers, but not with all of it. Trying
// again is useless when the runtime hangs, is not there, does not know the call or does not allow it.
func refused(c crictl.Call) bool {
	switch c.Code {
	case crictl.ResourceExhausted, crictl.Internal, crictl.Unknown:
		return true
	}
	return false
}
