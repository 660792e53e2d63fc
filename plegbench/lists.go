package plegbench

import (
	"context"

	"github.com/kdiag/kdiag/crictl"
)

// listSandboxes lists sandboxes with listWithFallback. The reply has no list if none arrived.
func listSandboxes(ctx context.Context, c *crictl.Client, mode crictl.ListMode, search bool) (r reply) {
	r.call, r.mode = listWithFallback(mode, search, func(mode crictl.ListMode) crictl.Call {
		r.sandboxes = c.ListPodSandbox(ctx, crictl.Filter{}, mode)
		call := r.sandboxes.Calls[len(r.sandboxes.Calls)-1]
		if len(r.sandboxes.Sandboxes) == 0 && !r.sandboxes.Complete {
			r.sandboxes = nil
		}
		return call
	})
	return r
}

// listContainers lists containers with listWithFallback. The reply has no list if none arrived.
func listContainers(ctx context.Context, c *crictl.Client, mode crictl.ListMode, search bool) (r reply) {
	r.call, r.mode = listWithFallback(mode, search, func(mode crictl.ListMode) crictl.Call {
		r.containers = c.ListContainers(ctx, crictl.Filter{}, mode)
		call := r.containers.Calls[len(r.containers.Calls)-1]
		if len(r.containers.Containers) == 0 && !r.containers.Complete {
			r.containers = nil
		}
		return call
	})
	return r
}

// listWithFallback lists as a kubelet would: in the given mode, or unary if the runtime does not know streams. It
// returns the call that decides the kubelet's outcome, with its mode. With search, it lists a refused list again in any
// mode that crictl knows, to have facts that this kubelet does not get.
func listWithFallback(
	mode crictl.ListMode, search bool, list func(crictl.ListMode) crictl.Call,
) (crictl.Call, crictl.ListMode) {
	call := list(mode)
	if mode == crictl.ModeStream && call.Code == crictl.Unimplemented {
		mode = crictl.ModeUnary
		call = list(mode)
	}
	if search && refused(call) {
		list("")
	}
	return call, mode
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
