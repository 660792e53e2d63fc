package crictl

import (
	"context"
	"sync/atomic"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ListPodSandbox lists the pod sandboxes that f lets through. With mode "" it takes the streaming RPC if the runtime has
// it, else the unary one, and fills in with filtered lists where the answer is larger than a message may be. A mode
// that is given is the only one used; ModeUnary is the plain call that a kubelet makes. The result is never nil.
func (c *Client) ListPodSandbox(ctx context.Context, f Filter, mode ListMode) *PodSandboxList {
	return c.listPodSandbox(ctx, f, mode, deep)
}

// ListContainers lists the containers that f lets through, in the way of ListPodSandbox.
func (c *Client) ListContainers(ctx context.Context, f Filter, mode ListMode) *ContainerList {
	return c.listContainers(ctx, f, mode, deep)
}

func (c *Client) listPodSandbox(ctx context.Context, f Filter, mode ListMode, d depth) *PodSandboxList {
	l := &lister[PodSandbox]{c: c, decoder: newSandboxDecoder(), kind: sandboxKind()}
	r := l.run(ctx, f, mode, &c.noSandboxStream, func(refused Call) ([]Call, bool) {
		return c.fillSandboxes(ctx, l, f, refused, d)
	})
	return &PodSandboxList{
		Sandboxes: l.decoder.entries, Mode: r.mode, Calls: r.calls, Complete: r.complete, Bytes: r.bytes(l.size(0)),
	}
}

func (c *Client) listContainers(ctx context.Context, f Filter, mode ListMode, d depth) *ContainerList {
	l := &lister[Container]{c: c, decoder: newContainerDecoder(), kind: containerKind()}
	r := l.run(ctx, f, mode, &c.noContainerStream, func(refused Call) ([]Call, bool) {
		return c.fillContainers(ctx, l, f, refused, d)
	})
	return &ContainerList{
		Containers: l.decoder.entries, Mode: r.mode, Calls: r.calls, Complete: r.complete, Bytes: r.bytes(l.size(0)),
	}
}

// A listed is what became of a list.
type listed struct {
	mode     ListMode
	calls    []Call
	complete bool
}

// run tries the ways to a list in order. fill makes the filtered calls; it is given the call that was refused for its
// size, or none when filtered calls are all that is wanted.
func (l *lister[T]) run(
	ctx context.Context, f Filter, mode ListMode, noStream *atomic.Bool, fill func(Call) ([]Call, bool),
) listed {
	switch mode {
	case ModeStream:
		return single(ModeStream, nil, l.stream(ctx, f))
	case ModeUnary:
		return single(ModeUnary, nil, l.unary(ctx, f))
	case ModeFiltered:
		calls, complete := fill(Call{})
		l.unique()
		return listed{mode: ModeFiltered, calls: calls, complete: complete}
	}
	var calls []Call
	if !noStream.Load() {
		call := l.stream(ctx, f)
		if call.Code == Unimplemented {
			noStream.Store(true)
		} else if !oversized(call) {
			return single(ModeStream, nil, call)
		}
		calls = append(calls, call)
		l.decoder.reset()
	}
	call := l.unary(ctx, f)
	if !oversized(call) {
		return single(ModeUnary, calls, call)
	}
	more, complete := fill(call)
	l.unique()
	return listed{mode: ModeFiltered, calls: append(append(calls, call), more...), complete: complete}
}

func single(mode ListMode, before []Call, call Call) listed {
	return listed{mode: mode, calls: append(before, call), complete: call.OK()}
}

// bytes is the size of the whole list as one message: the sum of its entries, or, of a list that is not complete, what
// the refusal said if that is more.
func (l listed) bytes(entries int) int {
	if l.complete {
		return entries
	}
	for _, call := range l.calls {
		if oversized(call) {
			entries = max(entries, call.Bytes)
		}
	}
	return entries
}

// A lister makes the calls of one list and gathers their entries.
type lister[T any] struct {
	c       *Client
	decoder *listDecoder[T]
	kind    *kind[T]
}

// A kind says what differs between the two lists.
type kind[T any] struct {
	streamMethod, unaryMethod string // full names
	streamRequest             func(Filter) proto.Message
	unaryRequest              func(Filter) proto.Message
	id                        func(*T) string
	size                      func(*T) int
}

func sandboxKind() *kind[PodSandbox] {
	return &kind[PodSandbox]{
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
	}
}

func containerKind() *kind[Container] {
	return &kind[Container]{
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
	}
}

func (l *lister[T]) stream(ctx context.Context, f Filter) Call {
	before := len(l.decoder.entries)
	call := l.c.stream(ctx, request{method: l.kind.streamMethod, msg: l.kind.streamRequest(f)}, l.decoder)
	call.Items = len(l.decoder.entries) - before
	return call
}

func (l *lister[T]) unary(ctx context.Context, f Filter) Call {
	before := len(l.decoder.entries)
	call := l.c.unary(ctx, request{method: l.kind.unaryMethod, msg: l.kind.unaryRequest(f)}, l.decoder)
	call.Items = len(l.decoder.entries) - before
	return call
}

// size is what the entries from the given one on take in a message.
func (l *lister[T]) size(from int) int {
	n := 0
	for i := range l.decoder.entries[from:] {
		n += l.kind.size(&l.decoder.entries[from+i])
	}
	return n
}

// unique drops all but the last sighting of each id. Filtered lists are taken one after the other, and what changes its
// state in between is seen twice.
func (l *lister[T]) unique() {
	at := make(map[string]int, len(l.decoder.entries))
	kept := l.decoder.entries[:0]
	for _, e := range l.decoder.entries {
		id := l.kind.id(&e)
		if i, ok := at[id]; ok {
			kept[i] = e
			continue
		}
		at[id] = len(kept)
		kept = append(kept, e)
	}
	l.decoder.entries = kept
}

// sandboxFilter is f for a sandbox list. The zero Filter gives an empty one, not none, as the kubelet's relist does.
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
