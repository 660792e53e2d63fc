package fake

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// streamBatch is the number of entries in one message of a streaming list, as in containerd.
const streamBatch = 5000

// ListContainers lists the containers that the filter lets through.
func (r *runtimeService) ListContainers(
	ctx context.Context, req *runtimeapi.ListContainersRequest,
) (*runtimeapi.ListContainersResponse, error) {
	list := r.store.listContainers(req.GetFilter())
	return &runtimeapi.ListContainersResponse{Containers: list}, perItem(ctx, len(list))
}

// StreamContainers is ListContainers in batches.
func (r *runtimeService) StreamContainers(
	req *runtimeapi.StreamContainersRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamContainersResponse],
) error {
	for batch := range slices.Chunk(r.store.listContainers(req.GetFilter()), streamBatch) {
		if err := perItem(stream.Context(), len(batch)); err != nil {
			return err
		}
		if err := stream.Send(&runtimeapi.StreamContainersResponse{Containers: batch}); err != nil {
			return err
		}
	}
	return nil
}

// ListPodSandbox lists the sandboxes that the filter lets through.
func (r *runtimeService) ListPodSandbox(
	ctx context.Context, req *runtimeapi.ListPodSandboxRequest,
) (*runtimeapi.ListPodSandboxResponse, error) {
	list := r.store.listSandboxes(req.GetFilter())
	return &runtimeapi.ListPodSandboxResponse{Items: list}, perItem(ctx, len(list))
}

// StreamPodSandboxes is ListPodSandbox in batches.
func (r *runtimeService) StreamPodSandboxes(
	req *runtimeapi.StreamPodSandboxesRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxesResponse],
) error {
	for batch := range slices.Chunk(r.store.listSandboxes(req.GetFilter()), streamBatch) {
		if err := perItem(stream.Context(), len(batch)); err != nil {
			return err
		}
		if err := stream.Send(&runtimeapi.StreamPodSandboxesResponse{PodSandboxes: batch}); err != nil {
			return err
		}
	}
	return nil
}

func (st *store) listContainers(f *runtimeapi.ContainerFilter) []*runtimeapi.Container {
	st.mu.RLock()
	defer st.mu.RUnlock()
	var list []*runtimeapi.Container
	for _, c := range st.filterContainers(f) {
		list = append(list, &runtimeapi.Container{
			Id: c.id, PodSandboxId: c.sandbox.id, Metadata: &runtimeapi.ContainerMetadata{Name: c.name, Attempt: c.attempt},
			Image: c.image, ImageRef: c.imageID, ImageId: c.imageID, State: c.state, CreatedAt: c.created,
			Labels: c.labels, Annotations: c.annotations(),
		})
	}
	return list
}

func (st *store) listSandboxes(f *runtimeapi.PodSandboxFilter) []*runtimeapi.PodSandbox {
	st.mu.RLock()
	defer st.mu.RUnlock()
	var list []*runtimeapi.PodSandbox
	for sb := range st.sandboxes.all() {
		if !strings.HasPrefix(sb.id, f.GetId()) || !selects(f.GetLabelSelector(), sb.labels) ||
			f.GetState() != nil && f.GetState().GetState() != sb.state() {
			continue
		}
		list = append(list, &runtimeapi.PodSandbox{
			Id: sb.id, Metadata: sb.meta, State: sb.state(), CreatedAt: sb.created, Labels: sb.labels,
			Annotations: sb.annots, RuntimeHandler: sb.handler,
		})
	}
	return list
}

// filterContainers returns the containers that match all parts of the filter. Ids may be shortened, as in containerd.
// The caller holds mu.
func (st *store) filterContainers(f *runtimeapi.ContainerFilter) []*container {
	var found []*container
	for c := range st.containers.all() {
		if strings.HasPrefix(c.id, f.GetId()) && strings.HasPrefix(c.sandbox.id, f.GetPodSandboxId()) &&
			(f.GetState() == nil || f.GetState().GetState() == c.state) && selects(f.GetLabelSelector(), c.labels) {
			found = append(found, c)
		}
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
