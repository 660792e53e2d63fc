package crictl

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// fillTimeouts bounds all filtered calls of one list, in RPC timeouts. Each of them makes the runtime walk
	// through all its containers, so there may not be one for each of many sandboxes.
	fillTimeouts = 4
	// fillShare is the part of the size that a refusal named that must have come in by smaller lists for them to
	// count as complete. The rest may have changed meanwhile.
	fillShare = 0.99
)

// ListPodSandbox lists the pod sandboxes that match f. With mode "" it uses the streaming RPC if the runtime has it,
// else the unary one, and where the answer is larger than a message may be it puts the list together from filtered
// ones, unless f narrows it. A mode that is given is the only one used; ModeUnary is the plain call that a kubelet
// makes, and ModeFiltered lists everything. The result is never nil.
func (c *Client) ListPodSandbox(ctx context.Context, f Filter, mode ListMode) *PodSandboxList {
	l := &lister[PodSandbox]{
		c: c, decoder: newSandboxDecoder(), noStream: &c.noSandboxStream,
		streamMethod: runtimeapi.RuntimeService_StreamPodSandboxes_FullMethodName,
		unaryMethod:  runtimeapi.RuntimeService_ListPodSandbox_FullMethodName,
		request: func(f Filter) proto.Message {
			filter := &runtimeapi.PodSandboxFilter{Id: f.ID, LabelSelector: f.Labels}
			if f.Ready != nil {
				filter.State = &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY}
				if *f.Ready {
					filter.State.State = runtimeapi.PodSandboxState_SANDBOX_READY
				}
			}
			return &runtimeapi.ListPodSandboxRequest{Filter: filter}
		},
		entry:   func(s *PodSandbox) (string, uint32) { return s.ID, s.Size },
		byState: []Filter{{Ready: new(true)}, {Ready: new(false)}},
	}
	// A sandbox filter can name a pod. The pods are known from the containers and from the ready sandboxes; those
	// without either are missed, which shows in the size.
	l.byObject = func(ctx context.Context) (out []Filter) {
		containers := c.ListContainers(ctx, Filter{}, "")
		l.calls = append(l.calls, containers.Calls...)
		pods := map[string]bool{}
		for i := range l.decoder.entries {
			pods[l.decoder.entries[i].Pod.UID] = true
		}
		for i := range containers.Containers {
			pods[containers.Containers[i].Pod.UID] = true
		}
		for _, uid := range slices.Sorted(maps.Keys(pods)) {
			if uid != "" {
				out = append(out, Filter{Labels: map[string]string{LabelPodUID: uid}})
			}
		}
		return out
	}
	l.run(ctx, f, mode)
	return &PodSandboxList{
		Sandboxes: l.decoder.entries, Mode: l.mode, Calls: l.calls, Complete: l.complete, Bytes: l.bytes(),
	}
}

// ListContainers lists the containers that match f, in the same ways as ListPodSandbox.
func (c *Client) ListContainers(ctx context.Context, f Filter, mode ListMode) *ContainerList {
	l := &lister[Container]{
		c: c, decoder: newContainerDecoder(), noStream: &c.noContainerStream,
		streamMethod: runtimeapi.RuntimeService_StreamContainers_FullMethodName,
		unaryMethod:  runtimeapi.RuntimeService_ListContainers_FullMethodName,
		request: func(f Filter) proto.Message {
			filter := &runtimeapi.ContainerFilter{Id: f.ID, PodSandboxId: f.SandboxID, LabelSelector: f.Labels}
			if f.State != nil {
				filter.State = &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState(*f.State)}
			}
			return &runtimeapi.ListContainersRequest{Filter: filter}
		},
		entry: func(c *Container) (string, uint32) { return c.ID, c.Size },
	}
	for state := ContainerCreated; state <= ContainerUnknown; state++ {
		l.byState = append(l.byState, Filter{State: new(state)})
	}
	l.byObject = func(ctx context.Context) (out []Filter) {
		for _, ready := range []bool{true, false} {
			sandboxes := c.ListPodSandbox(ctx, Filter{Ready: &ready}, ModeUnary)
			l.calls = append(l.calls, sandboxes.Calls...)
			for i := range sandboxes.Sandboxes {
				out = append(out, Filter{SandboxID: sandboxes.Sandboxes[i].ID})
			}
		}
		return out
	}
	l.run(ctx, f, mode)
	return &ContainerList{
		Containers: l.decoder.entries, Mode: l.mode, Calls: l.calls, Complete: l.complete, Bytes: l.bytes(),
	}
}

// A lister makes the calls of one list and collects their entries. Its functions differ between the two lists.
type lister[T any] struct {
	c        *Client
	decoder  *listDecoder[T]
	noStream *atomic.Bool

	streamMethod, unaryMethod string // full names
	// request makes the request of both: their bytes are the same, the filter as field 1. The zero Filter gives an empty
	// filter, not none, as the kubelet's relist sends.
	request func(Filter) proto.Message
	entry   func(*T) (id string, size uint32)
	// that together match everything, in the order of an object's life
	byState  []Filter
	byObject func(ctx context.Context) []Filter // the same, one for each sandbox or pod

	mode     ListMode
	calls    []Call
	complete bool
}

// run tries the modes in order.
func (l *lister[T]) run(ctx context.Context, f Filter, mode ListMode) {
	if mode == ModeStream || mode == "" && !l.noStream.Load() {
		call := l.call(ctx, l.c.stream, request{method: l.streamMethod, msg: l.request(f)})
		if mode == ModeStream || call.Code != Unimplemented && !oversized(call) {
			l.mode, l.complete = ModeStream, call.OK()
			return
		}
		l.noStream.Store(l.noStream.Load() || call.Code == Unimplemented)
		l.decoder.entries = l.decoder.entries[:0]
	}
	if mode != ModeFiltered {
		call := l.unary(ctx, f)
		// A filter has a small answer, or there is no finer one.
		filtered := f.ID != "" || f.SandboxID != "" || f.Labels != nil || f.State != nil || f.Ready != nil
		if mode == ModeUnary || !oversized(call) || filtered {
			l.mode, l.complete = ModeUnary, call.OK()
			return
		}
	}
	l.mode = ModeFiltered
	l.complete = l.fill(ctx)
	l.dedupe()
}

// fill puts a whole list together from filtered ones: by state, and where that is still too large by sandbox or pod.
// The states come in the order of an object's life, so that one whose state changes meanwhile is listed twice rather
// than not at all. It ends at the first call that fails, and reports whether the list is complete.
func (l *lister[T]) fill(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, fillTimeouts*l.c.timeout)
	defer cancel()
	complete := true
	for _, state := range l.byState {
		refused := l.unary(ctx, state)
		if !refused.OK() && !oversized(refused) {
			return false
		}
		if refused.OK() {
			continue
		}
		before := len(l.decoder.entries)
		for _, object := range l.byObject(ctx) {
			object.State, object.Ready = state.State, state.Ready
			if call := l.unary(ctx, object); !call.OK() && !oversized(call) {
				return false
			}
		}
		// The size is the only proof that nothing is missing.
		complete = complete && float64(l.sizeFrom(before)) >= fillShare*float64(refused.Bytes)
	}
	return complete
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

func (l *lister[T]) unary(ctx context.Context, f Filter) Call {
	return l.call(ctx, l.c.unary, request{method: l.unaryMethod, msg: l.request(f)})
}

// call makes a call and records it.
func (l *lister[T]) call(ctx context.Context, do func(context.Context, request, decoder) Call, req request) Call {
	before := len(l.decoder.entries)
	call := do(ctx, req, l.decoder)
	call.Items = len(l.decoder.entries) - before
	l.calls = append(l.calls, call)
	return call
}

// sizeFrom returns the encoded size of the entries from first on.
func (l *lister[T]) sizeFrom(first int) int {
	n := 0
	for i := range l.decoder.entries[first:] {
		_, size := l.entry(&l.decoder.entries[first+i])
		n += int(size)
	}
	return n
}

// dedupe keeps the last entry of each id. Filtered lists are taken one after the other, so an object that
// changes its state in between is in two of them.
func (l *lister[T]) dedupe() {
	at := make(map[string]int, len(l.decoder.entries))
	kept := l.decoder.entries[:0]
	for _, e := range l.decoder.entries {
		id, _ := l.entry(&e)
		if i, ok := at[id]; ok {
			kept[i] = e
			continue
		}
		at[id] = len(kept)
		kept = append(kept, e)
	}
	l.decoder.entries = kept
}
