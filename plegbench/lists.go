package plegbench

import (
	"context"

	"github.com/kdiag/kdiag/crictl"
)

// An obtained is one list, in whichever mode it arrived, and the call that a kubelet would have made.
type obtained[L any] struct {
	list *L              // nil when no list arrived
	call crictl.Call     // decides the kubelet's outcome
	mode crictl.ListMode // of call
}

// sandboxes lists sandboxes as obtain does.
func sandboxes(
	ctx context.Context, c *crictl.Client, mode crictl.ListMode, search bool,
) obtained[crictl.PodSandboxList] {
	return obtain(mode, search, func(mode crictl.ListMode) (*crictl.PodSandboxList, crictl.Call) {
		l := c.ListPodSandbox(ctx, crictl.Filter{}, mode)
		call := l.Calls[len(l.Calls)-1]
		if len(l.Sandboxes) == 0 && !l.Complete {
			l = nil
		}
		return l, call
	})
}

// containers lists containers as obtain does.
func containers(
	ctx context.Context, c *crictl.Client, mode crictl.ListMode, search bool,
) obtained[crictl.ContainerList] {
	return obtain(mode, search, func(mode crictl.ListMode) (*crictl.ContainerList, crictl.Call) {
		l := c.ListContainers(ctx, crictl.Filter{}, mode)
		call := l.Calls[len(l.Calls)-1]
		if len(l.Containers) == 0 && !l.Complete {
			l = nil
		}
		return l, call
	})
}

// obtain lists as a kubelet would: by mode, and when the runtime does not know streams, unary. With search, a list that
// is refused is obtained in any way that crictl knows, to have the facts that this kubelet does not get.
func obtain[L any](mode crictl.ListMode, search bool, ask func(crictl.ListMode) (*L, crictl.Call)) obtained[L] {
	list, call := ask(mode)
	if mode == crictl.ModeStream && call.Code == crictl.Unimplemented {
		mode = crictl.ModeUnary
		list, call = ask(mode)
	}
	if search && refused(call) {
		list, _ = ask("")
	}
	return obtained[L]{list: list, call: call, mode: mode}
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
