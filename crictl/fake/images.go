package fake

import (
	"cmp"
	"context"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// pauseImage is the image of sandboxes, which every runtime holds and never collects.
const pauseImage = "registry.k8s.io/pause:3.10"

// imageUser is the user of all images: distroless's "nonroot", so that pods with runAsNonRoot start.
const imageUser = 65532

// An image is a stored image. All that CRI shows of it is made up from the name under which it was pulled.
type image struct {
	id     string // sha256:...
	tag    string // repository:tag; empty if pulled by digest
	digest string // repository@sha256:...
	size   uint64 // bytes
}

// name returns the image reference in the specs of containers.
func (i *image) name() string { return cmp.Or(i.tag, i.digest) }

func (i *image) proto() *runtimeapi.Image {
	p := &runtimeapi.Image{
		Id:          i.id,
		RepoDigests: []string{i.digest},
		Size:        i.size,
		Uid:         &runtimeapi.Int64Value{Value: imageUser},
		Pinned:      i.tag == pauseImage,
	}
	if i.tag != "" {
		p.RepoTags = []string{i.tag}
	}
	return p
}

// addImage stores an image, if it is not there yet. The caller holds mu.
func (st *store) addImage(name string) *image {
	if known := st.findImage(name); known != nil {
		return known
	}
	full := fullName(name)
	made := &image{
		id: "sha256:" + objectID("image", full), digest: full, size: 20<<20 + number(400<<20, "size", full),
	}
	if !strings.Contains(full, "@") {
		made.tag = full
		made.digest = full[:strings.LastIndex(full, ":")] + "@sha256:" + objectID("digest", full)
	}
	st.images.add(made.id, made)
	return made
}

// findImage returns the image with that id, with or without sha256:, tag or digest, or nil. The caller holds mu.
func (st *store) findImage(name string) *image {
	if name == "" {
		return nil
	}
	full, id := fullName(name), "sha256:"+strings.TrimPrefix(name, "sha256:")
	for i := range st.images.all() {
		if full == i.tag || full == i.digest || id == i.id {
			return i
		}
	}
	return nil
}

// fullName completes a short image name as runtimes do: "busybox" is docker.io/library/busybox:latest.
func fullName(name string) string {
	first, _, slashed := strings.Cut(name, "/")
	switch {
	case !slashed:
		name = "docker.io/library/" + name
	case !strings.ContainsAny(first, ".:") && first != "localhost":
		name = "docker.io/" + name
	}
	if strings.Contains(name, "@") {
		return name
	}
	if strings.LastIndex(name, ":") < strings.LastIndex(name, "/") {
		name += ":latest"
	}
	return name
}

// ListImages lists the images, or the one that the filter names.
func (s *service) ListImages(
	_ context.Context, req *runtimeapi.ListImagesRequest,
) (*runtimeapi.ListImagesResponse, error) {
	s.store.mu.RLock()
	defer s.store.mu.RUnlock()
	resp := &runtimeapi.ListImagesResponse{}
	name := req.GetFilter().GetImage().GetImage()
	for i := range s.store.images.all() {
		if name == "" || i == s.store.findImage(name) {
			resp.Images = append(resp.Images, i.proto())
		}
	}
	return resp, nil
}

// ImageStatus returns one image; none is no error in CRI.
func (s *service) ImageStatus(
	_ context.Context, req *runtimeapi.ImageStatusRequest,
) (*runtimeapi.ImageStatusResponse, error) {
	s.store.mu.RLock()
	defer s.store.mu.RUnlock()
	resp := &runtimeapi.ImageStatusResponse{}
	if found := s.store.findImage(req.GetImage().GetImage()); found != nil {
		resp.Image = found.proto()
	}
	return resp, nil
}

// PullImage stores an image of that name. Nothing is downloaded.
func (s *service) PullImage(
	_ context.Context, req *runtimeapi.PullImageRequest,
) (*runtimeapi.PullImageResponse, error) {
	name := req.GetImage().GetImage()
	if name == "" || strings.ContainsAny(name, " \t\n") {
		return nil, status.Errorf(codes.InvalidArgument, "pulling %q: not an image name", name)
	}
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return &runtimeapi.PullImageResponse{ImageRef: s.store.addImage(name).id}, nil
}

// RemoveImage removes an image; one that is not there is no error in CRI.
func (s *service) RemoveImage(
	_ context.Context, req *runtimeapi.RemoveImageRequest,
) (*runtimeapi.RemoveImageResponse, error) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	if found := s.store.findImage(req.GetImage().GetImage()); found != nil {
		s.store.images.remove(found.id)
	}
	return &runtimeapi.RemoveImageResponse{}, nil
}

// ImageFsInfo reports the space that the stored images use.
func (s *service) ImageFsInfo(
	context.Context, *runtimeapi.ImageFsInfoRequest,
) (*runtimeapi.ImageFsInfoResponse, error) {
	s.store.mu.RLock()
	defer s.store.mu.RUnlock()
	var used uint64
	for i := range s.store.images.all() {
		used += i.size
	}
	usage := &runtimeapi.FilesystemUsage{
		Timestamp:  time.Now().UnixNano(),
		FsId:       imageFilesystem(),
		UsedBytes:  &runtimeapi.UInt64Value{Value: used},
		InodesUsed: &runtimeapi.UInt64Value{Value: 1000 * uint64(len(s.store.images.byID))},
	}
	return &runtimeapi.ImageFsInfoResponse{
		ImageFilesystems:     []*runtimeapi.FilesystemUsage{usage},
		ContainerFilesystems: []*runtimeapi.FilesystemUsage{usage},
	}, nil
}

// imageFilesystem names the file system of images and writable layers. A kubelet measures it, so it must exist on every
// host.
func imageFilesystem() *runtimeapi.FilesystemIdentifier {
	return &runtimeapi.FilesystemIdentifier{Mountpoint: "/"}
}
