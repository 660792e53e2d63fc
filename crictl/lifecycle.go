package crictl

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RunPodSandbox creates and starts a sandbox and returns its id. handler is the runtime class handler; empty for the
// default. The deadline is twice the RPC timeout, as the kubelet grants it, because CNI ADD is part of the call.
func (c *Client) RunPodSandbox(
	ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string,
) (string, Call) {
	resp := &runtimeapi.RunPodSandboxResponse{}
	call := c.unary(ctx, request{
		method:  runtimeapi.RuntimeService_RunPodSandbox_FullMethodName,
		object:  config.GetMetadata().GetUid(),
		msg:     &runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: handler},
		timeout: 2 * c.timeout,
	}, &message{Message: resp})

	return resp.GetPodSandboxId(), call
}

// StopPodSandbox stops a sandbox and its containers. It is idempotent.
func (c *Client) StopPodSandbox(ctx context.Context, id string) Call {
	return c.ask(ctx, runtimeapi.RuntimeService_StopPodSandbox_FullMethodName, id,
		&runtimeapi.StopPodSandboxRequest{PodSandboxId: id}, &runtimeapi.StopPodSandboxResponse{})
}

// RemovePodSandbox removes a sandbox and its containers. It is idempotent.
func (c *Client) RemovePodSandbox(ctx context.Context, id string) Call {
	return c.ask(ctx, runtimeapi.RuntimeService_RemovePodSandbox_FullMethodName, id,
		&runtimeapi.RemovePodSandboxRequest{PodSandboxId: id}, &runtimeapi.RemovePodSandboxResponse{})
}

// CreateContainer creates a container in a sandbox and returns its id. sandbox is the configuration with which the
// sandbox was run.
func (c *Client) CreateContainer(
	ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig, sandbox *runtimeapi.PodSandboxConfig,
) (string, Call) {
	resp := &runtimeapi.CreateContainerResponse{}
	call := c.ask(ctx, runtimeapi.RuntimeService_CreateContainer_FullMethodName, sandboxID,
		&runtimeapi.CreateContainerRequest{
			PodSandboxId: sandboxID, Config: config, SandboxConfig: sandbox,
		}, resp)
	return resp.GetContainerId(), call
}

// StartContainer starts a created container.
func (c *Client) StartContainer(ctx context.Context, id string) Call {
	return c.ask(ctx, runtimeapi.RuntimeService_StartContainer_FullMethodName, id,
		&runtimeapi.StartContainerRequest{ContainerId: id}, &runtimeapi.StartContainerResponse{})
}

// RemoveContainer removes a container, and kills it first if it runs. It is idempotent.
func (c *Client) RemoveContainer(ctx context.Context, id string) Call {
	return c.ask(ctx, runtimeapi.RuntimeService_RemoveContainer_FullMethodName, id,
		&runtimeapi.RemoveContainerRequest{ContainerId: id}, &runtimeapi.RemoveContainerResponse{})
}

// UpdateContainerResources changes the limits of a container.
func (c *Client) UpdateContainerResources(
	ctx context.Context, id string, linux *runtimeapi.LinuxContainerResources,
) Call {
	return c.ask(ctx, runtimeapi.RuntimeService_UpdateContainerResources_FullMethodName, id,
		&runtimeapi.UpdateContainerResourcesRequest{
			ContainerId: id,
			Linux:       linux,
		}, &runtimeapi.UpdateContainerResourcesResponse{})
}
