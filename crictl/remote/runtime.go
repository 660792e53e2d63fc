package remote

import (
	"context"
	"errors"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl"
)

// kubeletAPIVersion is what the kubelet writes into VersionRequest (kubeRuntimeAPIVersion in kuberuntime).
const kubeletAPIVersion = "0.1.0"

// Version asks for the runtime's name and version.
func (s *Service) Version(ctx context.Context) (resp *runtimeapi.VersionResponse, err error) {
	err = s.call(ctx, "version", s.timeout, func(ctx context.Context) (err error) {
		if resp, err = s.runtime.Version(ctx, &runtimeapi.VersionRequest{Version: kubeletAPIVersion}); err != nil {
			return s.failed(err, "Version from runtime service")
		}
		if resp.GetVersion() == "" || resp.GetRuntimeName() == "" || resp.GetRuntimeApiVersion() == "" ||
			resp.GetRuntimeVersion() == "" {
			return fmt.Errorf("not all fields are set in VersionResponse (%s)", resp)
		}
		return nil
	})
	return resp, err
}

// Status asks for the runtime's conditions. An answer without RuntimeReady and NetworkReady is an error, as for the
// kubelet.
func (s *Service) Status(ctx context.Context) (status *runtimeapi.RuntimeStatus, err error) {
	err = s.call(ctx, "status", s.timeout, func(ctx context.Context) error {
		resp, err := s.runtime.Status(ctx, &runtimeapi.StatusRequest{})
		if err != nil {
			return s.failed(err, "Status from runtime service")
		}
		status = resp.GetStatus()
		if status == nil || len(status.GetConditions()) < 2 {
			err = errors.New("RuntimeReady or NetworkReady condition are not set")
			s.log.Error(err, "Status failed")
		}
		return err
	})
	return status, err
}

// SandboxImage returns the image that sandboxes are made of. It is empty where the runtime does not say, as
// containerd 2, which pins it instead.
func (s *Service) SandboxImage(ctx context.Context) (image string, err error) {
	err = s.call(ctx, "status", s.timeout, func(ctx context.Context) error {
		resp, err := s.runtime.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
		if err != nil {
			return s.failed(err, "Status from runtime service")
		}
		image = crictl.SandboxImageIn(resp.GetInfo()["config"])
		return nil
	})
	return image, err
}

// RunPodSandbox creates and starts a sandbox. Its deadline is twice that of other calls.
func (s *Service) RunPodSandbox(
	ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string,
) (id string, err error) {
	err = s.call(ctx, "run_podsandbox", 2*s.timeout, func(ctx context.Context) error {
		resp, err := s.runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
		if err != nil {
			return s.failed(err, "RunPodSandbox from runtime service")
		}
		if id = resp.GetPodSandboxId(); id == "" {
			err = fmt.Errorf("PodSandboxId is not set for sandbox %q", config.GetMetadata())
			return s.failed(err, "RunPodSandbox")
		}
		return nil
	})
	return id, err
}

// StopPodSandbox stops a sandbox and its containers.
func (s *Service) StopPodSandbox(ctx context.Context, id string) error {
	return s.call(ctx, "stop_podsandbox", s.timeout, func(ctx context.Context) error {
		_, err := s.runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
		return s.failed(err, "StopPodSandbox from runtime service", "podSandboxID", id)
	})
}

// RemovePodSandbox removes a sandbox and its containers.
func (s *Service) RemovePodSandbox(ctx context.Context, id string) error {
	return s.call(ctx, "remove_podsandbox", s.timeout, func(ctx context.Context) error {
		_, err := s.runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
		return s.failed(err, "RemovePodSandbox from runtime service", "podSandboxID", id)
	})
}

// PodSandboxStatus asks about one sandbox. The kubelet does not log its errors; those who ask do.
func (s *Service) PodSandboxStatus(ctx context.Context, id string) (status *runtimeapi.PodSandboxStatus, err error) {
	err = s.call(ctx, "podsandbox_status", s.timeout, func(ctx context.Context) error {
		resp, err := s.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
		if err != nil {
			return err
		}
		status = resp.GetStatus()
		return checkSandbox(status)
	})
	return status, err
}

func checkSandbox(status *runtimeapi.PodSandboxStatus) error {
	m := status.GetMetadata()
	switch {
	case status.GetId() == "":
		return errors.New("status.Id is not set")
	case m.GetName() == "" || m.GetNamespace() == "" || m.GetUid() == "":
		return fmt.Errorf("metadata.Name, metadata.Namespace or metadata.Uid is not in metadata %q", m)
	case status.GetCreatedAt() == 0:
		return errors.New("status.CreatedAt is not set")
	}
	return nil
}

// ListPodSandbox lists the sandboxes that the filter lets through.
func (s *Service) ListPodSandbox(
	ctx context.Context, filter *runtimeapi.PodSandboxFilter,
) (items []*runtimeapi.PodSandbox, err error) {
	err = s.call(ctx, "list_podsandbox", s.timeout, func(ctx context.Context) error {
		resp, err := s.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: filter})
		items = resp.GetItems()
		return s.failed(err, "ListPodSandbox with filter from runtime service", "filter", filter)
	})
	return items, err
}

// CreateContainer creates a container in a sandbox.
func (s *Service) CreateContainer(
	ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig, sandbox *runtimeapi.PodSandboxConfig,
) (id string, err error) {
	err = s.call(ctx, "create_container", s.timeout, func(ctx context.Context) error {
		resp, err := s.runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
			PodSandboxId: sandboxID, Config: config, SandboxConfig: sandbox,
		})
		if err != nil {
			return s.failed(err, "CreateContainer in sandbox from runtime service", "podSandboxID", sandboxID)
		}
		if id = resp.GetContainerId(); id == "" {
			err = fmt.Errorf("ContainerId is not set for container %q", config.GetMetadata())
			return s.failed(err, "CreateContainer")
		}
		return nil
	})
	return id, err
}

// StartContainer starts a created container.
func (s *Service) StartContainer(ctx context.Context, id string) error {
	return s.call(ctx, "start_container", s.timeout, func(ctx context.Context) error {
		_, err := s.runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
		return s.failed(err, "StartContainer from runtime service", "containerID", id)
	})
}

// StopContainer stops a container, and kills it after the grace period, which CRI counts in whole seconds. The
// deadline is that much longer.
func (s *Service) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	return s.call(ctx, "stop_container", s.timeout+grace, func(ctx context.Context) error {
		_, err := s.runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{
			ContainerId: id, Timeout: int64(grace / time.Second),
		})
		return s.failedQuietly(err, id, "StopContainer from runtime service", "containerID", id)
	})
}

// RemoveContainer removes a container, and kills it first if it runs.
func (s *Service) RemoveContainer(ctx context.Context, id string) error {
	return s.call(ctx, "remove_container", s.timeout, func(ctx context.Context) error {
		_, err := s.runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
		return s.failedQuietly(err, id, "RemoveContainer from runtime service", "containerID", id)
	})
}

// ListContainers lists the containers that the filter lets through.
func (s *Service) ListContainers(
	ctx context.Context, filter *runtimeapi.ContainerFilter,
) (items []*runtimeapi.Container, err error) {
	err = s.call(ctx, "list_containers", s.timeout, func(ctx context.Context) error {
		resp, err := s.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: filter})
		items = resp.GetContainers()
		return s.failed(err, "ListContainers with filter from runtime service", "filter", filter)
	})
	return items, err
}

// ContainerStatus asks about one container.
func (s *Service) ContainerStatus(ctx context.Context, id string) (status *runtimeapi.ContainerStatus, err error) {
	err = s.call(ctx, "container_status", s.timeout, func(ctx context.Context) error {
		resp, err := s.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
		if err == nil {
			status = resp.GetStatus()
			err = checkContainer(status)
		}
		return s.failedQuietly(err, id, "ContainerStatus from runtime service", "containerID", id)
	})
	return status, err
}

func checkContainer(status *runtimeapi.ContainerStatus) error {
	switch {
	case status.GetId() == "":
		return errors.New("status.Id is not set")
	case status.GetMetadata().GetName() == "":
		return fmt.Errorf("metadata.Name is not in metadata %q", status.GetMetadata())
	case status.GetCreatedAt() == 0:
		return errors.New("status.CreatedAt is not set")
	case status.GetImage().GetImage() == "":
		return errors.New("status.Image is not set")
	case status.GetImageRef() == "":
		return errors.New("status.ImageRef is not set")
	}
	return nil
}

// ExecSync runs a command in a container and returns what it wrote and its exit code. The deadline is that of other
// calls beyond the timeout; there is none if the timeout is 0, as with the kubelet's lifecycle hooks.
func (s *Service) ExecSync(
	ctx context.Context, id string, command []string, timeout time.Duration,
) (resp *runtimeapi.ExecSyncResponse, err error) {
	deadline := forever
	if timeout > 0 {
		deadline = s.timeout + timeout
	}
	err = s.call(ctx, "exec_sync", deadline, func(ctx context.Context) (err error) {
		resp, err = s.runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{
			ContainerId: id, Cmd: command, Timeout: int64(timeout / time.Second),
		})
		return s.failed(err, "ExecSync cmd from runtime service", "containerID", id, "cmd", command)
	})
	return resp, err
}

// ReopenContainerLog tells the runtime that a container's log file was moved away.
func (s *Service) ReopenContainerLog(ctx context.Context, id string) error {
	return s.call(ctx, "reopen_container_log", s.timeout, func(ctx context.Context) error {
		_, err := s.runtime.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: id})
		return s.failed(err, "ReopenContainerLog from runtime service", "containerID", id)
	})
}

// ListContainerStats returns the usage of the containers that the filter lets through.
func (s *Service) ListContainerStats(
	ctx context.Context, filter *runtimeapi.ContainerStatsFilter,
) (stats []*runtimeapi.ContainerStats, err error) {
	err = s.call(ctx, "list_container_stats", s.timeout, func(ctx context.Context) error {
		resp, err := s.runtime.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{Filter: filter})
		stats = resp.GetStats()
		return s.failed(err, "ListContainerStats with filter from runtime service", "filter", filter)
	})
	return stats, err
}

// RuntimeConfig asks for the runtime's cgroup driver.
func (s *Service) RuntimeConfig(ctx context.Context) (resp *runtimeapi.RuntimeConfigResponse, err error) {
	err = s.call(ctx, "runtime_config", s.timeout, func(ctx context.Context) (err error) {
		resp, err = s.runtime.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
		return err // runtimes before containerd 2.0 and CRI-O 1.28 do not know it, which is no failure
	})
	return resp, err
}

// GetContainerEvents hands the runtime's events to yield until the stream ends, which is an error but for a cancelled
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
