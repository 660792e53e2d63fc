package fake

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Exit codes of processes that a signal ended: 128 and the signal's number.
const (
	exitKilled     = 137 // SIGKILL
	exitTerminated = 143 // SIGTERM
)

func (sb *sandbox) state() runtimeapi.PodSandboxState {
	if sb.ready {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

// status builds the sandbox's status. The caller holds the store's lock.
func (sb *sandbox) status() *runtimeapi.PodSandboxStatus {
	return &runtimeapi.PodSandboxStatus{
		Id:             sb.id,
		Metadata:       sb.meta,
		State:          sb.state(),
		CreatedAt:      sb.created,
		Network:        &runtimeapi.PodSandboxNetworkStatus{Ip: sb.address},
		Linux:          &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: sb.options}},
		Labels:         sb.labels,
		Annotations:    sb.annots,
		RuntimeHandler: sb.handler,
	}
}

// RunPodSandbox creates a ready sandbox.
func (s *service) RunPodSandbox(
	_ context.Context, req *runtimeapi.RunPodSandboxRequest,
) (*runtimeapi.RunPodSandboxResponse, error) {
	config := req.GetConfig()
	meta := config.GetMetadata()
	if meta.GetName() == "" || meta.GetNamespace() == "" || meta.GetUid() == "" {
		return nil, status.Error(codes.InvalidArgument, "sandbox metadata lacks a name, namespace or uid")
	}
	if handler := req.GetRuntimeHandler(); !slices.Contains(runtimeHandlers(), handler) {
		return nil, status.Errorf(codes.Unknown, "no runtime handler is called %q", handler)
	}
	options := config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	hostNetwork := options.GetNetwork() == runtimeapi.NamespaceMode_NODE
	for _, c := range s.conditions() {
		if c.GetType() == runtimeapi.NetworkReady && !c.GetStatus() && !hostNetwork {
			return nil, status.Errorf(codes.Unknown, "setting up the sandbox's network: %s", c.GetMessage())
		}
	}
	st := s.store
	st.mu.Lock()
	defer st.mu.Unlock()
	sb := &sandbox{
		id:      st.nextID("sandbox"),
		meta:    meta,
		labels:  config.GetLabels(),
		annots:  config.GetAnnotations(),
		handler: req.GetRuntimeHandler(),
		logDir:  config.GetLogDirectory(),
		options: options,
		created: time.Now().UnixNano(),
		ready:   true,
	}
	if !hostNetwork {
		sb.address = podAddress(len(st.sandboxes.byID) + st.made)
	}
	st.sandboxes.add(sb.id, sb)
	st.publish(sb, sb.id, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	st.publish(sb, sb.id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: sb.id}, nil
}

// StopPodSandbox stops a sandbox and its containers. A sandbox that does not exist is no error.
func (s *service) StopPodSandbox(
	_ context.Context, req *runtimeapi.StopPodSandboxRequest,
) (*runtimeapi.StopPodSandboxResponse, error) {
	return &runtimeapi.StopPodSandboxResponse{}, end(s.store, &s.store.sandboxes, req.GetPodSandboxId(),
		s.store.stopSandbox)
}

// stopSandbox ends the containers and then the sandbox. The caller holds mu.
func (st *store) stopSandbox(sb *sandbox) {
	for _, c := range sb.containers {
		st.stopContainer(c, exitKilled)
	}
	if sb.ready {
		sb.ready = false
		st.publish(sb, sb.id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	}
}

// RemovePodSandbox removes a sandbox and its containers, by force if they run, as CRI requires. A sandbox that does
// not exist is no error.
func (s *service) RemovePodSandbox(
	_ context.Context, req *runtimeapi.RemovePodSandboxRequest,
) (*runtimeapi.RemovePodSandboxResponse, error) {
	st := s.store
	return &runtimeapi.RemovePodSandboxResponse{}, end(st, &st.sandboxes, req.GetPodSandboxId(), func(sb *sandbox) {
		st.stopSandbox(sb)
		for _, c := range slices.Clone(sb.containers) {
			st.removeContainer(c)
		}
		st.sandboxes.remove(sb.id)
		st.publish(sb, sb.id, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	})
}

// PodSandboxStatus describes one sandbox. Like containerd it leaves containers_statuses and timestamp empty, so that
// kubelets ask for each container.
func (s *service) PodSandboxStatus(
	_ context.Context, req *runtimeapi.PodSandboxStatusRequest,
) (*runtimeapi.PodSandboxStatusResponse, error) {
	s.store.mu.RLock()
	defer s.store.mu.RUnlock()
	sb, err := s.store.sandboxes.find(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: sb.status()}, nil
}
