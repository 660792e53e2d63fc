package crictl

import (
	"context"
	"sync/atomic"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ListPodSandbox lists the pod sandboxes that match f. With mode "" it uses the streaming RPC if the runtime has it,
// else the unary one, and where the answer is larger than a message may be it puts the list together from filtered
// ones. A mode that is given is the only one used; ModeUnary is the plain call that a kubelet makes. The result is
// never nil.
func (c *Client) ListPodSandbox(ctx context.Context, f Filter, mode ListMode) *PodSandboxList {
	return c.listPodSandbox(ctx, f, mode, true)
}

// ListContainers lists the containers that match f, in the same ways as ListPodSandbox.
func (c *Client) ListContainers(ctx context.Context, f Filter, mode ListMode) *ContainerList {
	return c.listContainers(ctx, f, mode, true)
}

func (c *Client) listPodSandbox(ctx context.Context, f Filter, mode ListMode, split bool) *PodSandboxList {
	l := c.sandboxLister(split)
	l.run(ctx, f, mode, &c.noSandboxStream)
	return &PodSandboxList{
		Sandboxes: l.decoder.entries, Mode: l.mode, Calls: l.calls, Complete: l.complete, Bytes: l.bytes(),
	}
}

func (c *Client) listContainers(ctx context.Context, f Filter, mode ListMode, split bool) *ContainerList {
	l := c.containerLister(split)
	l.run(ctx, f, mode, &c.noContainerStream)
	return &ContainerList{
		Containers: l.decoder.entries, Mode: l.mode, Calls: l.calls, Complete: l.complete, Bytes: l.bytes(),
	}
}

// A lister makes the calls of one list and collects their entries. The functions say how the two lists differ.
type lister[T any] struct {
	c       *Client
	decoder *listDecoder[T]

	streamMethod, unaryMethod string // full names
	streamRequest             func(Filter) proto.Message
	unaryRequest              func(Filter) proto.Message
	id                        func(*T) string
	size                      func(*T) int
	// byState returns filters that together match what f matches, one for each state.
	byState func(f Filter) []Filter
	// byObject returns the same, one for each sandbox or pod, and whether all of those are known. It is nil where
	// such filters may not be used: it makes the other list.
	byObject func(ctx context.Context, f Filter) (filters []Filter, complete bool)

	mode     ListMode
	calls    []Call
	complete bool
}

func (c *Client) sandboxLister(split bool) *lister[PodSandbox] {
	l := &lister[PodSandbox]{
		c: c, decoder: newSandboxDecoder(),
		streamMethod: runtimeapi.RuntimeService_StreamPodSandboxes_FullMethodName,
		unaryMethod:  runtimeapi.RuntimeService_ListPodSandbox_FullMethodName,
		streamRequest: func(f Filter) proto.Message {
			return &runtimeapi.StreamPodSandboxesRequest{Filter: sandboxFilter(f)}
		},
		unaryRequest: func(f Filter) proto.Message {
			return &runtimeapi.ListPodSandboxRequest{Filter: sandboxFilter(f)}
		},
		id:   func(s *PodSandbox) string { return s.ID },
		size: func(s *PodSandbox) int { return int(s.Size) },
		byState: func(f Filter) (out []Filter) {
			if f.Ready != nil {
				return []Filter{f}
			}
			for _, ready := range []bool{true, false} {
				f.Ready = &ready
				out = append(out, f)
			}
			return out
		},
	}
	if split {
		l.byObject = func(ctx context.Context, f Filter) (out []Filter, complete bool) {
			if f.ID != "" || f.Labels[LabelPodUID] != "" {
				return nil, false
			}
			// A sandbox filter can name a pod. The pods are known from the containers and from the sandboxes of the
			// other state; those without any container are missed, which shows in the size.
			containers := c.listContainers(ctx, Filter{}, "", false)
			l.calls = append(l.calls, containers.Calls...)
			for _, uid := range podUIDs(l.decoder.entries, containers.Containers) {
				out = append(out, withLabel(f, LabelPodUID, uid))
			}
			return out, true
		}
	}
	return l
}

func (c *Client) containerLister(split bool) *lister[Container] {
	l := &lister[Container]{
		c: c, decoder: newContainerDecoder(),
		streamMethod: runtimeapi.RuntimeService_StreamContainers_FullMethodName,
		unaryMethod:  runtimeapi.RuntimeService_ListContainers_FullMethodName,
		streamRequest: func(f Filter) proto.Message {
			return &runtimeapi.StreamContainersRequest{Filter: containerFilter(f)}
		},
		unaryRequest: func(f Filter) proto.Message {
			return &runtimeapi.ListContainersRequest{Filter: containerFilter(f)}
		},
		id:   func(c *Container) string { return c.ID },
		size: func(c *Container) int { return int(c.Size) },
		byState: func(f Filter) (out []Filter) {
			if f.State != nil {
				return []Filter{f}
			}
			for state := ContainerCreated; state <= ContainerUnknown; state++ {
				f.State = &state
				out = append(out, f)
			}
			return out
		},
	}
	if split {
		l.byObject = func(ctx context.Context, f Filter) (out []Filter, complete bool) {
			if f.ID != "" || f.SandboxID != "" {
				return nil, false
			}
			sandboxes := c.listPodSandbox(ctx, Filter{}, "", false)
			l.calls = append(l.calls, sandboxes.Calls...)
			for i := range sandboxes.Sandboxes {
				f.SandboxID = sandboxes.Sandboxes[i].ID
				out = append(out, f)
			}
			return out, sandboxes.Complete
		}
	}
	return l
}

// run tries the ways to a list in order.
func (l *lister[T]) run(ctx context.Context, f Filter, mode ListMode, noStream *atomic.Bool) {
	if mode == ModeStream || mode == "" && !noStream.Load() {
		call := l.stream(ctx, f)
		if mode == ModeStream || call.Code != Unimplemented && !oversized(call) {
			l.mode, l.complete = ModeStream, call.OK()
			return
		}
		noStream.Store(noStream.Load() || call.Code == Unimplemented)
		l.decoder.reset()
	}
	var refused Call
	if mode != ModeFiltered {
		refused = l.unary(ctx, f)
		if mode == ModeUnary || !oversized(refused) {
			l.mode, l.complete = ModeUnary, refused.OK()
			return
		}
	}
	l.mode = ModeFiltered
	l.complete = l.fill(ctx, f, refused)
	l.dedupe()
}

// bytes is the size of the whole list as one message: the sum of its entries, or, of an incomplete list, the size
// that a refusal named if that is more.
func (l *lister[T]) bytes() int {
	n := l.sizeFrom(0)
	for _, call := range l.calls {
		if !l.complete && oversized(call) {
			n = max(n, call.Bytes)
		}
	}
	return n
}

func (l *lister[T]) stream(ctx context.Context, f Filter) Call {
	return l.note(len(l.decoder.entries), l.c.stream(ctx, request{method: l.streamMethod, msg: l.streamRequest(f)},
		l.decoder))
}

func (l *lister[T]) unary(ctx context.Context, f Filter) Call {
	return l.note(len(l.decoder.entries), l.c.unary(ctx, request{method: l.unaryMethod, msg: l.unaryRequest(f)},
		l.decoder))
}

// note records a call that began with so many entries.
func (l *lister[T]) note(before int, call Call) Call {
	call.Items = len(l.decoder.entries) - before
	l.calls = append(l.calls, call)
	return call
}

// sizeFrom is what the entries from the given one on take in a message.
func (l *lister[T]) sizeFrom(first int) int {
	n := 0
	for i := range l.decoder.entries[first:] {
		n += l.size(&l.decoder.entries[first+i])
	}
	return n
}

// dedupe keeps the last entry of each id. Filtered lists are taken one after the other, so what changes its state in
// between is in two of them.
func (l *lister[T]) dedupe() {
	at := make(map[string]int, len(l.decoder.entries))
	kept := l.decoder.entries[:0]
	for _, e := range l.decoder.entries {
		if i, ok := at[l.id(&e)]; ok {
			kept[i] = e
			continue
		}
		at[l.id(&e)] = len(kept)
		kept = append(kept, e)
	}
	l.decoder.entries = kept
}

// sandboxFilter is f for a sandbox list. The zero Filter gives an empty message, not none, as the kubelet's relist
// sends.
func sandboxFilter(f Filter) *runtimeapi.PodSandboxFilter {
	out := &runtimeapi.PodSandboxFilter{Id: f.ID, LabelSelector: f.Labels}
	if f.Ready != nil {
		state := runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		if *f.Ready {
			state = runtimeapi.PodSandboxState_SANDBOX_READY
		}
		out.State = &runtimeapi.PodSandboxStateValue{State: state}
	}
	return out
}

// containerFilter is f for a container list.
func containerFilter(f Filter) *runtimeapi.ContainerFilter {
	out := &runtimeapi.ContainerFilter{Id: f.ID, PodSandboxId: f.SandboxID, LabelSelector: f.Labels}
	if f.State != nil {
		out.State = &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState(*f.State)}
	}
	return out
}
