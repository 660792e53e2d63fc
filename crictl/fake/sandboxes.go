package fake

import (
	"context"
	"errors"
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

// notFoundOr turns the error of a look-up into the code that CRI clients expect.
func notFoundOr(err error, kind string) error {
	code := codes.InvalidArgument
	if errors.Is(err, errNotFound) {
		code = codes.NotFound
	}
	return status.Errorf(code, "%s: %v", kind, err)
}

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
func (r *runtimeService) RunPodSandbox(
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
	if err := r.networkFor(options); err != nil {
		return nil, err
	}
	st := r.store
	st.mu.Lock()
	defer st.mu.Unlock()
	for other := range st.sandboxes.all() {
		if other.meta.GetUid() == meta.GetUid() && other.meta.GetAttempt() == meta.GetAttempt() &&
			other.meta.GetName() == meta.GetName() && other.meta.GetNamespace() == meta.GetNamespace() {
			return nil, status.Errorf(codes.AlreadyExists, "attempt %d of this pod is sandbox %s", meta.GetAttempt(), other.id)
		}
	}
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
	if options.GetNetwork() != runtimeapi.NamespaceMode_NODE {
		sb.address = podAddress(st.sandboxes.len() + st.made)
	}
	st.sandboxes.add(sb.id, sb)
	st.publish(sb, sb.id, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	st.publish(sb, sb.id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: sb.id}, nil
}

// networkFor fails for pods that need a network if the scenario has none.
func (r *runtimeService) networkFor(options *runtimeapi.NamespaceOption) error {
	if options.GetNetwork() == runtimeapi.NamespaceMode_NODE {
		return nil
	}
	for _, c := range r.conditions() {
		if c.GetType() == runtimeapi.NetworkReady && !c.GetStatus() {
			return status.Errorf(codes.Unknown, "setting up the sandbox's network: %s", c.GetMessage())
		}
	}
	return nil
}

// StopPodSandbox stops a sandbox and its containers. A sandbox that does not exist is no error.
func (r *runtimeService) StopPodSandbox(
	_ context.Context, req *runtimeapi.StopPodSandboxRequest,
) (*runtimeapi.StopPodSandboxResponse, error) {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	sb, err := r.store.sandboxes.find(req.GetPodSandboxId())
	switch {
	case err == nil:
		r.store.stopSandbox(sb)
	case !errors.Is(err, errNotFound):
		return nil, notFoundOr(err, "stopping a sandbox")
	}
	return &runtimeapi.StopPodSandboxResponse{}, nil
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
func (r *runtimeService) RemovePodSandbox(
	_ context.Context, req *runtimeapi.RemovePodSandboxRequest,
) (*runtimeapi.RemovePodSandboxResponse, error) {
	st := r.store
	st.mu.Lock()
	defer st.mu.Unlock()
	sb, err := st.sandboxes.find(req.GetPodSandboxId())
	if errors.Is(err, errNotFound) {
		return &runtimeapi.RemovePodSandboxResponse{}, nil
	}
	if err != nil {
		return nil, notFoundOr(err, "removing a sandbox")
	}
	st.stopSandbox(sb)
	for _, c := range slices.Clone(sb.containers) {
		st.removeContainer(c)
	}
	st.sandboxes.remove(sb.id)
	st.publish(sb, sb.id, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

// PodSandboxStatus describes one sandbox. Like containerd it leaves containers_statuses and timestamp empty, so that
// kubelets ask for each container.
func (r *runtimeService) PodSandboxStatus(
	_ context.Context, req *runtimeapi.PodSandboxStatusRequest,
) (*runtimeapi.PodSandboxStatusResponse, error) {
	r.store.mu.RLock()
	defer r.store.mu.RUnlock()
	sb, err := r.store.sandboxes.find(req.GetPodSandboxId())
	if err != nil {
		return nil, notFoundOr(err, "pod sandbox")
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: sb.status()}, nil
}
