package fake

import (
	"context"
	"errors"
	"slices"
	"strings"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// streamBatch is the number of entries in one message of a streaming list, as in containerd.
const streamBatch = 5000

// ListContainers lists the containers that the filter lets through.
func (s *service) ListContainers(
	_ context.Context, req *runtimeapi.ListContainersRequest,
) (*runtimeapi.ListContainersResponse, error) {
	s.store.mu.RLock()
	defer s.store.mu.RUnlock()
	resp := &runtimeapi.ListContainersResponse{}
	for _, c := range s.store.filterContainers(req.GetFilter()) {
		resp.Containers = append(resp.Containers, &runtimeapi.Container{
			Id: c.id, PodSandboxId: c.sandbox.id,
			Metadata: &runtimeapi.ContainerMetadata{Name: c.name, Attempt: c.attempt},
			Image:    c.image, ImageRef: c.imageID, ImageId: c.imageID, State: c.state, CreatedAt: c.created,
			Labels: c.labels, Annotations: c.annots,
		})
	}
	return resp, nil
}

// ListPodSandbox lists the sandboxes that the filter lets through.
func (s *service) ListPodSandbox(
	_ context.Context, req *runtimeapi.ListPodSandboxRequest,
) (*runtimeapi.ListPodSandboxResponse, error) {
	s.store.mu.RLock()
	defer s.store.mu.RUnlock()
	f := req.GetFilter()
	resp := &runtimeapi.ListPodSandboxResponse{}
	for sb := range s.store.sandboxes.all() {
		if strings.HasPrefix(sb.id, f.GetId()) && selects(f.GetLabelSelector(), sb.labels) &&
			(f.GetState() == nil || f.GetState().GetState() == sb.state()) {
			resp.Items = append(resp.Items, &runtimeapi.PodSandbox{
				Id: sb.id, Metadata: sb.meta, State: sb.state(), CreatedAt: sb.created, Labels: sb.labels,
				Annotations: sb.annots, RuntimeHandler: sb.handler,
			})
		}
	}
	return resp, nil
}

// StreamContainers is ListContainers in batches.
func (s *service) StreamContainers(
	req *runtimeapi.StreamContainersRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamContainersResponse],
) error {
	list, err := s.ListContainers(stream.Context(), &runtimeapi.ListContainersRequest{Filter: req.GetFilter()})
	for batch := range slices.Chunk(list.GetContainers(), streamBatch) {
		err = errors.Join(err, stream.Send(&runtimeapi.StreamContainersResponse{Containers: batch}))
	}
	return err
}

// StreamPodSandboxes is ListPodSandbox in batches.
func (s *service) StreamPodSandboxes(
	req *runtimeapi.StreamPodSandboxesRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxesResponse],
) error {
	list, err := s.ListPodSandbox(stream.Context(), &runtimeapi.ListPodSandboxRequest{Filter: req.GetFilter()})
	for batch := range slices.Chunk(list.GetItems(), streamBatch) {
		err = errors.Join(err, stream.Send(&runtimeapi.StreamPodSandboxesResponse{PodSandboxes: batch}))
	}
	return err
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
