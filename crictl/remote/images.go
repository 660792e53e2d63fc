package remote

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ListImages lists all images.
func (s *Service) ListImages(ctx context.Context) ([]*runtimeapi.Image, error) {
	resp, err := call(ctx, s, "list_images", s.timeout, s.images.ListImages, &runtimeapi.ListImagesRequest{}, nil)
	return resp.GetImages(), s.failed(err, "ListImages from image service")
}

// ImageStatus asks about one image. It returns nil for an image that is not there.
func (s *Service) ImageStatus(ctx context.Context, image string) (*runtimeapi.Image, error) {
	req := &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: image}}
	check := func(resp *runtimeapi.ImageStatusResponse) error {
		if found := resp.GetImage(); found != nil && (found.GetId() == "" || found.GetSize() == 0) {
			return fmt.Errorf("id or size of image %q is not set", image)
		}
		return nil
	}
	resp, err := call(ctx, s, "image_status", s.timeout, s.images.ImageStatus, req, check)
	return resp.GetImage(), s.failed(err, "Get ImageStatus from image service", "image", image)
}

// PullImage pulls an image and returns its reference. It has no deadline, as in the kubelet.
func (s *Service) PullImage(
	ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig,
) (ref string, err error) {
	req := &runtimeapi.PullImageRequest{Image: image, Auth: auth, SandboxConfig: sandbox}
	check := func(resp *runtimeapi.PullImageResponse) error {
		return isSet(resp.GetImageRef(), "imageRef", "image", image.GetImage())
	}
	resp, err := call(ctx, s, "pull_image", forever, s.images.PullImage, req, check)
	return resp.GetImageRef(), s.failed(err, "PullImage from image service", "image", image.GetImage())
}

// RemoveImage removes an image by its id or reference.
func (s *Service) RemoveImage(ctx context.Context, image string) error {
	req := &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: image}}
	_, err := call(ctx, s, "remove_image", s.timeout, s.images.RemoveImage, req, nil)
	return s.failed(err, "RemoveImage from image service", "image", image)
}

// ImageFsInfo asks which file system holds the images, and how much of it they use.
func (s *Service) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	resp, err := call(ctx, s, "image_fs_info", s.timeout, s.images.ImageFsInfo, &runtimeapi.ImageFsInfoRequest{}, nil)
	return resp, s.failed(err, "ImageFsInfo from image service")
}
