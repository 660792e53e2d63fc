package fake

import (
	"context"
	"iter"
	"slices"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The list responses are sent as unknown fields of an empty message: protobuf copies those to the wire as they are,
// so an encoded list needs no decoding and encoding to pass through the generated types.

// ListContainers lists the containers that the filter lets through.
func (r *runtimeService) ListContainers(
	ctx context.Context, req *runtimeapi.ListContainersRequest,
) (*runtimeapi.ListContainersResponse, error) {
	list := r.store.listContainers(req.GetFilter())
	if err := perItem(ctx, list.count); err != nil {
		return nil, err
	}
	resp := &runtimeapi.ListContainersResponse{}
	resp.ProtoReflect().SetUnknown(list.wire)
	return resp, nil
}

// StreamContainers is ListContainers in batches.
func (r *runtimeService) StreamContainers(
	req *runtimeapi.StreamContainersRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamContainersResponse],
) error {
	return r.store.listContainers(req.GetFilter()).send(stream.Context(), func(wire []byte) error {
		resp := &runtimeapi.StreamContainersResponse{}
		resp.ProtoReflect().SetUnknown(wire)
		return stream.Send(resp)
	})
}

// ListPodSandbox lists the sandboxes that the filter lets through.
func (r *runtimeService) ListPodSandbox(
	ctx context.Context, req *runtimeapi.ListPodSandboxRequest,
) (*runtimeapi.ListPodSandboxResponse, error) {
	list := r.store.listSandboxes(req.GetFilter())
	if err := perItem(ctx, list.count); err != nil {
		return nil, err
	}
	resp := &runtimeapi.ListPodSandboxResponse{}
	resp.ProtoReflect().SetUnknown(list.wire)
	return resp, nil
}

// StreamPodSandboxes is ListPodSandbox in batches.
func (r *runtimeService) StreamPodSandboxes(
	req *runtimeapi.StreamPodSandboxesRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxesResponse],
) error {
	return r.store.listSandboxes(req.GetFilter()).send(stream.Context(), func(wire []byte) error {
		resp := &runtimeapi.StreamPodSandboxesResponse{}
		resp.ProtoReflect().SetUnknown(wire)
		return stream.Send(resp)
	})
}

// send sends the list batch by batch.
func (e *entries) send(ctx context.Context, send func(wire []byte) error) error {
	for i, wire := range e.batches() {
		if err := perItem(ctx, min(e.count-i*streamBatch, streamBatch)); err != nil {
			return err
		}
		if err := send(wire); err != nil {
			return err
		}
	}
	return nil
}

func (st *store) listContainers(f *runtimeapi.ContainerFilter) *entries {
	st.mu.Lock()
	defer st.mu.Unlock()
	build := func() *entries { return encode(st.filterContainers(f)) }
	if f.GetId() == "" && f.GetPodSandboxId() == "" && f.GetState() == nil && len(f.GetLabelSelector()) == 0 {
		return st.containerList.get(build)
	}
	return build()
}

func (st *store) listSandboxes(f *runtimeapi.PodSandboxFilter) *entries {
	st.mu.Lock()
	defer st.mu.Unlock()
	build := func() *entries { return encode(st.filterSandboxes(f)) }
	if f.GetId() == "" && f.GetState() == nil && len(f.GetLabelSelector()) == 0 {
		return st.sandboxList.get(build)
	}
	return build()
}

// filterContainers returns the containers that match all parts of the filter. As in containerd, ids may be shortened,
// and one that names nothing or several matches nothing. The caller holds mu.
func (st *store) filterContainers(f *runtimeapi.ContainerFilter) []*container {
	var in *sandbox
	if id := f.GetPodSandboxId(); id != "" {
		sb, err := st.sandboxes.find(id)
		if err != nil {
			return nil
		}
		in = sb
	}
	var all iter.Seq[*container]
	switch {
	case f.GetId() != "":
		c, err := st.containers.find(f.GetId())
		if err != nil || in != nil && c.sandbox != in {
			return nil
		}
		all = slices.Values([]*container{c})
	case in != nil:
		all = slices.Values(in.containers)
	default:
		all = st.containers.all()
	}
	var found []*container
	for c := range all {
		if state := f.GetState(); state != nil && state.GetState() != c.state {
			continue
		}
		if selects(f.GetLabelSelector(), c.labels) {
			found = append(found, c)
		}
	}
	return found
}

// filterSandboxes is filterContainers for sandboxes. The caller holds mu.
func (st *store) filterSandboxes(f *runtimeapi.PodSandboxFilter) []*sandbox {
	var found []*sandbox
	keep := func(sb *sandbox) {
		if state := f.GetState(); state != nil && state.GetState() != sb.state() {
			return
		}
		if selects(f.GetLabelSelector(), sb.labels) {
			found = append(found, sb)
		}
	}
	if f.GetId() != "" {
		if sb, err := st.sandboxes.find(f.GetId()); err == nil {
			keep(sb)
		}
		return found
	}
	for sb := range st.sandboxes.all() {
		keep(sb)
	}
	return found
}

// selects reports whether labels has all pairs of the selector.
func selects(selector, labels map[string]string) bool {
	for key, value := range selector {
		if have, ok := labels[key]; !ok || have != value {
			return false
		}
	}
	return true
}
