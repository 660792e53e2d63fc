package remote

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl"
)

// kubeletAPIVersion is the version in the kubelet's VersionRequest (kubeRuntimeAPIVersion in kuberuntime).
const kubeletAPIVersion = "0.1.0"

// Version asks for the runtime's name and version.
func (s *Service) Version(ctx context.Context) (*runtimeapi.VersionResponse, error) {
	req := &runtimeapi.VersionRequest{Version: kubeletAPIVersion}
	check := func(resp *runtimeapi.VersionResponse) error {
		if resp.GetVersion() == "" || resp.GetRuntimeName() == "" || resp.GetRuntimeApiVersion() == "" ||
			resp.GetRuntimeVersion() == "" {
			return fmt.Errorf("not all fields are set in VersionResponse (%s)", resp)
		}
		return nil
	}
	resp, err := call(ctx, s, "version", s.timeout, s.runtime.Version, req, check)
	return resp, s.failed(err, "Version from runtime service")
}

// Status asks for the runtime's conditions. An answer without RuntimeReady and NetworkReady is an error, as for the
// kubelet.
func (s *Service) Status(ctx context.Context) (*runtimeapi.RuntimeStatus, error) {
	check := func(resp *runtimeapi.StatusResponse) error {
		if len(resp.GetStatus().GetConditions()) < 2 {
			return errors.New("RuntimeReady or NetworkReady condition are not set")
		}
		return nil
	}
	resp, err := call(ctx, s, "status", s.timeout, s.runtime.Status, &runtimeapi.StatusRequest{}, check)
	return resp.GetStatus(), s.failed(err, "Status from runtime service")
}

// SandboxImage returns the image that sandboxes are made of. It is empty where the runtime does not name it, as
// containerd 2, which pins it instead.
func (s *Service) SandboxImage(ctx context.Context) (string, error) {
	resp, err := call(ctx, s, "status", s.timeout, s.runtime.Status, &runtimeapi.StatusRequest{Verbose: true}, nil)
	return crictl.SandboxImageIn(resp.GetInfo()["config"]), s.failed(err, "Status from runtime service")
}

// RunPodSandbox creates and starts a sandbox. Its deadline is twice as long as for other calls.
func (s *Service) RunPodSandbox(
	ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string,
) (id string, err error) {
	req := &runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: handler}
	check := func(resp *runtimeapi.RunPodSandboxResponse) error {
		return isSet(resp.GetPodSandboxId(), "PodSandboxId", "sandbox", config.GetMetadata())
	}
	resp, err := call(ctx, s, "run_podsandbox", 2*s.timeout, s.runtime.RunPodSandbox, req, check)
	return resp.GetPodSandboxId(), s.failed(err, "RunPodSandbox from runtime service")
}

// isSet returns an error if a field of an answer is empty.
func isSet(value, field, kind string, object any) error {
	if value == "" {
		return fmt.Errorf("%s is not set for %s %q", field, kind, object)
	}
	return nil
}

// StopPodSandbox stops a sandbox and its containers.
func (s *Service) StopPodSandbox(ctx context.Context, id string) error {
	req := &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}
	_, err := call(ctx, s, "stop_podsandbox", s.timeout, s.runtime.StopPodSandbox, req, nil)
	return s.failed(err, "StopPodSandbox from runtime service", "podSandboxID", id)
}

// RemovePodSandbox removes a sandbox and its containers.
func (s *Service) RemovePodSandbox(ctx context.Context, id string) error {
	req := &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id}
	_, err := call(ctx, s, "remove_podsandbox", s.timeout, s.runtime.RemovePodSandbox, req, nil)
	return s.failed(err, "RemovePodSandbox from runtime service", "podSandboxID", id)
}

// PodSandboxStatus asks about one sandbox. The kubelet does not log its errors; those who ask do.
func (s *Service) PodSandboxStatus(ctx context.Context, id string) (*runtimeapi.PodSandboxStatus, error) {
	req := &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id}
	resp, err := call(ctx, s, "podsandbox_status", s.timeout, s.runtime.PodSandboxStatus, req, checkSandbox)
	return resp.GetStatus(), err
}

func checkSandbox(resp *runtimeapi.PodSandboxStatusResponse) error {
	status := resp.GetStatus()
	m := status.GetMetadata()
	if status.GetId() == "" || m.GetName() == "" || m.GetNamespace() == "" || m.GetUid() == "" ||
		status.GetCreatedAt() == 0 {
		return fmt.Errorf("id, creation time, name, namespace or uid is not set in the status of sandbox %q", m)
	}
	return nil
}

// ListPodSandbox lists the sandboxes that the filter lets through.
func (s *Service) ListPodSandbox(
	ctx context.Context, filter *runtimeapi.PodSandboxFilter,
) ([]*runtimeapi.PodSandbox, error) {
	req := &runtimeapi.ListPodSandboxRequest{Filter: filter}
	resp, err := call(ctx, s, "list_podsandbox", s.timeout, s.runtime.ListPodSandbox, req, nil)
	return resp.GetItems(), s.failed(err, "ListPodSandbox with filter from runtime service", "filter", filter)
}

// CreateContainer creates a container in a sandbox.
func (s *Service) CreateContainer(
	ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig, sandbox *runtimeapi.PodSandboxConfig,
) (id string, err error) {
	req := &runtimeapi.CreateContainerRequest{PodSandboxId: sandboxID, Config: config, SandboxConfig: sandbox}
	check := func(resp *runtimeapi.CreateContainerResponse) error {
		return isSet(resp.GetContainerId(), "ContainerId", "container", config.GetMetadata())
	}
	resp, err := call(ctx, s, "create_container", s.timeout, s.runtime.CreateContainer, req, check)
	err = s.failed(err, "CreateContainer in sandbox from runtime service", "podSandboxID", sandboxID)
	return resp.GetContainerId(), err
}

// StartContainer starts a created container.
func (s *Service) StartContainer(ctx context.Context, id string) error {
	req := &runtimeapi.StartContainerRequest{ContainerId: id}
	_, err := call(ctx, s, "start_container", s.timeout, s.runtime.StartContainer, req, nil)
	return s.failed(err, "StartContainer from runtime service", "containerID", id)
}

// StopContainer stops a container, and kills it after the grace period, which CRI counts in whole seconds. The
// deadline is that much longer.
func (s *Service) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	req := &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: int64(grace / time.Second)}
	_, err := call(ctx, s, "stop_container", s.timeout+grace, s.runtime.StopContainer, req, nil)
	return s.failedQuietly(err, id, "StopContainer from runtime service", "containerID", id)
}

// RemoveContainer removes a container, and kills it first if it runs.
func (s *Service) RemoveContainer(ctx context.Context, id string) error {
	req := &runtimeapi.RemoveContainerRequest{ContainerId: id}
	_, err := call(ctx, s, "remove_container", s.timeout, s.runtime.RemoveContainer, req, nil)
	return s.failedQuietly(err, id, "RemoveContainer from runtime service", "containerID", id)
}

// ListContainers lists the containers that the filter lets through.
func (s *Service) ListContainers(
	ctx context.Context, filter *runtimeapi.ContainerFilter,
) ([]*runtimeapi.Container, error) {
	req := &runtimeapi.ListContainersRequest{Filter: filter}
	resp, err := call(ctx, s, "list_containers", s.timeout, s.runtime.ListContainers, req, nil)
	return resp.GetContainers(), s.failed(err, "ListContainers with filter from runtime service", "filter", filter)
}

// ContainerStatus asks about one container.
func (s *Service) ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	req := &runtimeapi.ContainerStatusRequest{ContainerId: id}
	resp, err := call(ctx, s, "container_status", s.timeout, s.runtime.ContainerStatus, req, checkContainer)
	return resp.GetStatus(), s.failedQuietly(err, id, "ContainerStatus from runtime service", "containerID", id)
}

func checkContainer(resp *runtimeapi.ContainerStatusResponse) error {
	status := resp.GetStatus()
	if m := status.GetMetadata(); status.GetId() == "" || m.GetName() == "" || status.GetCreatedAt() == 0 ||
		status.GetImage().GetImage() == "" || status.GetImageRef() == "" {
		return fmt.Errorf("id, name, creation time or image is not set in the status of container %q", m)
	}
	return nil
}

// ExecSync runs a command in a container and returns its output and exit code. The deadline of other
// calls is added to the timeout; there is none if the timeout is 0, as with the kubelet's lifecycle hooks.
func (s *Service) ExecSync(
	ctx context.Context, id string, command []string, timeout time.Duration,
) (*runtimeapi.ExecSyncResponse, error) {
	deadline := forever
	if timeout > 0 {
		deadline = s.timeout + timeout
	}
	req := &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: command, Timeout: int64(timeout / time.Second)}
	resp, err := call(ctx, s, "exec_sync", deadline, s.runtime.ExecSync, req, nil)
	return resp, s.failed(err, "ExecSync cmd from runtime service", "containerID", id, "cmd", command)
}

// ListContainerStats returns the usage of the containers that the filter lets through.
func (s *Service) ListContainerStats(
	ctx context.Context, filter *runtimeapi.ContainerStatsFilter,
) ([]*runtimeapi.ContainerStats, error) {
	req := &runtimeapi.ListContainerStatsRequest{Filter: filter}
	resp, err := call(ctx, s, "list_container_stats", s.timeout, s.runtime.ListContainerStats, req, nil)
	return resp.GetStats(), s.failed(err, "ListContainerStats with filter from runtime service", "filter", filter)
}

// ListPodSandboxStats returns the usage of the sandboxes that the filter lets through, and of their containers. Not all
// runtimes know the call, so that error is not logged.
func (s *Service) ListPodSandboxStats(
	ctx context.Context, filter *runtimeapi.PodSandboxStatsFilter,
) ([]*runtimeapi.PodSandboxStats, error) {
	req := &runtimeapi.ListPodSandboxStatsRequest{Filter: filter}
	resp, err := call(ctx, s, "list_pod_sandbox_stats", s.timeout, s.runtime.ListPodSandboxStats, req, nil)
	if status.Code(err) != codes.Unimplemented {
		_ = s.failed(err, "ListPodSandboxStats with filter from runtime service", "filter", filter)
	}
	return resp.GetStats(), err
}

// RuntimeConfig asks for the runtime's cgroup driver. Runtimes before containerd 2.0 and CRI-O 1.28 do not know the
// call, so an error is not logged.
func (s *Service) RuntimeConfig(ctx context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	req := &runtimeapi.RuntimeConfigRequest{}
	return call(ctx, s, "runtime_config", s.timeout, s.runtime.RuntimeConfig, req, nil)
}

// GetContainerEvents passes the runtime's events to yield until the stream ends, which is an error but for a cancelled
// ctx. connected is called once the stream is open. There is no deadline.
func (s *Service) GetContainerEvents(
	ctx context.Context, connected func(), yield func(*runtimeapi.ContainerEventResponse),
) error {
	stream, err := s.runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		s.log.Error(err, "GetContainerEvents failed to get streaming client")
		return err
	}
	connected()
	for {
		event, err := stream.Recv()
		if err != nil {
			if ctx.Err() == nil {
				s.log.Error(err, "failed to receive streaming container event")
			}
			return err
		}
		yield(event)
	}
}
