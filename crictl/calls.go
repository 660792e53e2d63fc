package crictl

import (
	"context"
	"encoding/json"
	"strings"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// kubeletAPIVersion is the version in the kubelet's VersionRequest (kubeRuntimeAPIVersion in kuberuntime).
const kubeletAPIVersion = "0.1.0"

// ask makes one unary call and returns the answer as read converts it, or the zero value unless the call is OK.
// object is the id that the call is about, or empty.
func ask[R any, P interface {
	*R
	proto.Message
}, T any](ctx context.Context, c *Client, method, object string, req proto.Message, read func(P) T) (T, Call) {
	var out T
	resp := P(new(R))
	call := c.ask(ctx, method, object, req, resp)
	if call.OK() {
		out = read(resp)
	}
	return out, call
}

// Version asks for the runtime's name and version. The Version is nil unless the call is OK.
func (c *Client) Version(ctx context.Context) (*Version, Call) {
	return ask(ctx, c, runtimeapi.RuntimeService_Version_FullMethodName, "",
		&runtimeapi.VersionRequest{Version: kubeletAPIVersion}, func(resp *runtimeapi.VersionResponse) *Version {
			return &Version{
				RuntimeName:       resp.GetRuntimeName(),
				RuntimeVersion:    resp.GetRuntimeVersion(),
				RuntimeAPIVersion: resp.GetRuntimeApiVersion(),
			}
		})
}

// Status asks for the runtime's conditions, without the verbose details. The Status is nil unless the call is OK.
func (c *Client) Status(ctx context.Context) (*Status, Call) {
	return ask(ctx, c, runtimeapi.RuntimeService_Status_FullMethodName, "", &runtimeapi.StatusRequest{}, statusOf)
}

// PodSandboxStatus asks about one sandbox as the kubelet does, without the verbose details: those would make the
// runtime ask the shim. The status is nil unless the call is OK.
func (c *Client) PodSandboxStatus(ctx context.Context, id string) (*PodSandbox, Call) {
	return ask(ctx, c, runtimeapi.RuntimeService_PodSandboxStatus_FullMethodName, id,
		&runtimeapi.PodSandboxStatusRequest{PodSandboxId: id}, podSandboxStatusOf)
}

// ContainerStatus asks about one container as the kubelet does, without the verbose details. The status is nil unless
// the call is OK.
func (c *Client) ContainerStatus(ctx context.Context, id string) (*ContainerStatus, Call) {
	return ask(ctx, c, runtimeapi.RuntimeService_ContainerStatus_FullMethodName, id,
		&runtimeapi.ContainerStatusRequest{ContainerId: id}, containerStatusOf)
}

// ListImages asks for all images and counts them.
func (c *Client) ListImages(ctx context.Context) Call {
	n, call := ask(ctx, c, runtimeapi.ImageService_ListImages_FullMethodName, "", &runtimeapi.ListImagesRequest{},
		func(resp *runtimeapi.ListImagesResponse) int { return len(resp.GetImages()) })
	call.Items = n
	return call
}

// ImageFsInfo asks for the usage of the image file systems and counts them.
func (c *Client) ImageFsInfo(ctx context.Context) Call {
	n, call := ask(ctx, c, runtimeapi.ImageService_ImageFsInfo_FullMethodName, "", &runtimeapi.ImageFsInfoRequest{},
		func(resp *runtimeapi.ImageFsInfoResponse) int {
			return len(resp.GetImageFilesystems()) + len(resp.GetContainerFilesystems())
		})
	call.Items = n
	return call
}

// SandboxImage asks the runtime for the image that sandboxes are made of: sandboxImage of its configuration, in the
// details of a verbose Status (containerd 1, CRI-O). The name is empty where the runtime does not report it, as for
// containerd 2.
func (c *Client) SandboxImage(ctx context.Context) (string, Call) {
	return ask(ctx, c, runtimeapi.RuntimeService_Status_FullMethodName, "", &runtimeapi.StatusRequest{Verbose: true},
		func(resp *runtimeapi.StatusResponse) string { return SandboxImageIn(resp.GetInfo()["config"]) })
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

// HasImage asks whether an image of this name is on the node.
func (c *Client) HasImage(ctx context.Context, name string) (bool, Call) {
	return ask(ctx, c, runtimeapi.ImageService_ImageStatus_FullMethodName, name,
		&runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: name}},
		func(resp *runtimeapi.ImageStatusResponse) bool { return resp.GetImage().GetId() != "" })
}

// CgroupDriver asks the runtime for the cgroup driver that the kubelet must use: cgroupfs or systemd. Runtimes older
// than the question (containerd before 2.0) answer Unimplemented. The driver is empty unless the call is OK.
func (c *Client) CgroupDriver(ctx context.Context) (string, Call) {
	return ask(ctx, c, runtimeapi.RuntimeService_RuntimeConfig_FullMethodName, "", &runtimeapi.RuntimeConfigRequest{},
		func(resp *runtimeapi.RuntimeConfigResponse) string {
			if resp.GetLinux() == nil {
				return ""
			}
			return strings.ToLower(resp.GetLinux().GetCgroupDriver().String())
		})
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

// RemoveContainer removes a container, and kills it first if it runs. It is idempotent.
func (c *Client) RemoveContainer(ctx context.Context, id string) Call {
	return c.ask(ctx, runtimeapi.RuntimeService_RemoveContainer_FullMethodName, id,
		&runtimeapi.RemoveContainerRequest{ContainerId: id}, &runtimeapi.RemoveContainerResponse{})
}
