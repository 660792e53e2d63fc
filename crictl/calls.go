package crictl

import (
	"context"
	"encoding/json"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Version asks for the runtime's name and version. The Version is nil unless the call is OK.
func (c *Client) Version(ctx context.Context) (*Version, Call) {
	resp := &runtimeapi.VersionResponse{}
	call := c.ask(ctx, runtimeapi.RuntimeService_Version_FullMethodName, "",
		&runtimeapi.VersionRequest{Version: kubeletAPIVersion}, resp)
	if !call.OK() {
		return nil, call
	}
	return &Version{
		RuntimeName:       resp.GetRuntimeName(),
		RuntimeVersion:    resp.GetRuntimeVersion(),
		RuntimeAPIVersion: resp.GetRuntimeApiVersion(),
	}, call
}

// kubeletAPIVersion is what the kubelet writes into VersionRequest (kubeRuntimeAPIVersion in kuberuntime).
const kubeletAPIVersion = "0.1.0"

// Status asks for the runtime's conditions, without the verbose details. The Status is nil unless the call is OK.
func (c *Client) Status(ctx context.Context) (*Status, Call) {
	resp := &runtimeapi.StatusResponse{}
	call := c.ask(ctx, runtimeapi.RuntimeService_Status_FullMethodName, "",
		&runtimeapi.StatusRequest{}, resp)
	if !call.OK() {
		return nil, call
	}
	return statusOf(resp), call
}

// PodSandboxStatus asks about one sandbox as the kubelet does, without the verbose details: those would make the
// runtime ask the shim. The status is nil unless the call is OK.
func (c *Client) PodSandboxStatus(ctx context.Context, id string) (*PodSandbox, Call) {
	resp := &runtimeapi.PodSandboxStatusResponse{}
	call := c.ask(ctx, runtimeapi.RuntimeService_PodSandboxStatus_FullMethodName, id,
		&runtimeapi.PodSandboxStatusRequest{PodSandboxId: id}, resp)
	if !call.OK() {
		return nil, call
	}
	return podSandboxStatusOf(resp.GetStatus()), call
}

// ContainerStatus asks about one container as the kubelet does, without the verbose details. The status is nil unless
// the call is OK.
func (c *Client) ContainerStatus(ctx context.Context, id string) (*ContainerStatus, Call) {
	resp := &runtimeapi.ContainerStatusResponse{}
	call := c.ask(ctx, runtimeapi.RuntimeService_ContainerStatus_FullMethodName, id,
		&runtimeapi.ContainerStatusRequest{ContainerId: id}, resp)
	if !call.OK() {
		return nil, call
	}
	return containerStatusOf(resp.GetStatus()), call
}

// ListImages asks for all images and counts them.
func (c *Client) ListImages(ctx context.Context) Call {
	resp := &runtimeapi.ListImagesResponse{}
	call := c.ask(ctx, runtimeapi.ImageService_ListImages_FullMethodName, "",
		&runtimeapi.ListImagesRequest{}, resp)
	call.Items = len(resp.GetImages())
	return call
}

// SandboxImage asks the runtime for the image that sandboxes are made of: sandboxImage of its configuration, in the
// details of a verbose Status (containerd 1, CRI-O). The name is empty where the runtime does not say, as containerd
// 2 does not.
func (c *Client) SandboxImage(ctx context.Context) (string, Call) {
	resp := &runtimeapi.StatusResponse{}
	call := c.ask(ctx, runtimeapi.RuntimeService_Status_FullMethodName, "",
		&runtimeapi.StatusRequest{Verbose: true}, resp)
	if !call.OK() {
		return "", call
	}
	return SandboxImageIn(resp.GetInfo()["config"]), call
}

// HasImage asks whether an image of this name is on the node.
func (c *Client) HasImage(ctx context.Context, name string) (bool, Call) {
	resp := &runtimeapi.ImageStatusResponse{}
	call := c.ask(ctx, runtimeapi.ImageService_ImageStatus_FullMethodName, name,
		&runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: name}}, resp)
	return call.OK() && resp.GetImage().GetId() != "", call
}

// SandboxImageIn reads sandboxImage out of a runtime's configuration as JSON: "config" in the details of a verbose
// Status.
func SandboxImageIn(config string) string {
	var c struct{ SandboxImage string }
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return ""
	}
	return c.SandboxImage
}

// ImageFsInfo asks for the usage of the image file systems and counts them.
func (c *Client) ImageFsInfo(ctx context.Context) Call {
	resp := &runtimeapi.ImageFsInfoResponse{}
	call := c.ask(ctx, runtimeapi.ImageService_ImageFsInfo_FullMethodName, "",
		&runtimeapi.ImageFsInfoRequest{}, resp)
	call.Items = len(resp.GetImageFilesystems()) + len(resp.GetContainerFilesystems())
	return call
}

// CgroupDriver asks the runtime which cgroup driver it wants the kubelet to use: cgroupfs or systemd. Runtimes older
// than the question (containerd before 2.0) answer Unimplemented. The driver is empty unless the call is OK.
func (c *Client) CgroupDriver(ctx context.Context) (string, Call) {
	resp := &runtimeapi.RuntimeConfigResponse{}
	call := c.ask(ctx, runtimeapi.RuntimeService_RuntimeConfig_FullMethodName, "",
		&runtimeapi.RuntimeConfigRequest{}, resp)
	if !call.OK() || resp.GetLinux() == nil {
		return "", call
	}
	if resp.GetLinux().GetCgroupDriver() == runtimeapi.CgroupDriver_SYSTEMD {
		return "systemd", call
	}
	return "cgroupfs", call
}
