package remote

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ListImages lists all images.
func (s *Service) ListImages(ctx context.Context) (images []*runtimeapi.Image, err error) {
	err = s.call(ctx, "list_images", s.timeout, func(ctx context.Context) error {
		resp, err := s.images.ListImages(ctx, &runtimeapi.ListImagesRequest{})
		images = resp.GetImages()
		return s.failed(err, "ListImages with filter from image service", "filter", (*runtimeapi.ImageFilter)(nil))
	})
	return images, err
}

// ImageStatus asks about one image. It returns nil for an image that is not there.
func (s *Service) ImageStatus(ctx context.Context, image string) (status *runtimeapi.Image, err error) {
	err = s.call(ctx, "image_status", s.timeout, func(ctx context.Context) error {
		resp, err := s.images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: image}})
		if err != nil {
			return s.failed(err, "Get ImageStatus from image service", "image", image)
		}
		if status = resp.GetImage(); status != nil && (status.GetId() == "" || status.GetSize() == 0) {
			err = fmt.Errorf("id or size of image %q is not set", image)
			return s.failed(err, "Get ImageStatus from image service", "image", image)
		}
		return nil
	})
	return status, err
}

// PullImage pulls an image and returns its reference. It has no deadline, as in the kubelet.
func (s *Service) PullImage(
	ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig,
) (ref string, err error) {
	err = s.call(ctx, "pull_image", forever, func(ctx context.Context) error {
		resp, err := s.images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: image, Auth: auth, SandboxConfig: sandbox})
		if err != nil {
			return s.failed(err, "PullImage from image service", "image", image.GetImage())
		}
		if ref = resp.GetImageRef(); ref == "" {
			err = fmt.Errorf("imageRef of image %q is not set", image.GetImage())
			return s.failed(err, "PullImage from image service", "image", image.GetImage())
		}
		return nil
	})
	return ref, err
}

// RemoveImage removes an image by its id or reference.
func (s *Service) RemoveImage(ctx context.Context, image string) error {
	return s.call(ctx, "remove_image", s.timeout, func(ctx context.Context) error {
		_, err := s.images.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: image}})
		return s.failed(err, "RemoveImage from image service", "image", image)
	})
}

// ImageFsInfo asks which file system holds the images, and how much of it they use.
func (s *Service) ImageFsInfo(ctx context.Context) (resp *runtimeapi.ImageFsInfoResponse, err error) {
	err = s.call(ctx, "image_fs_info", s.timeout, func(ctx context.Context) (err error) {
		resp, err = s.images.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
		return s.failed(err, "ImageFsInfo from image service")
	})
	return resp, err
}
