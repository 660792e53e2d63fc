package crictl

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

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

// RemoveContainer removes a container, and kills it first if it runs. It is idempotent.
func (c *Client) RemoveContainer(ctx context.Context, id string) Call {
	return c.ask(ctx, runtimeapi.RuntimeService_RemoveContainer_FullMethodName, id,
		&runtimeapi.RemoveContainerRequest{ContainerId: id}, &runtimeapi.RemoveContainerResponse{})
}
