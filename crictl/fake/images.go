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

// An image is never changed once it is stored.
type image struct {
	id     string // sha256:...
	tag    string // repository:tag; empty if pulled by digest
	digest string // repository@sha256:...
	size   uint64 // bytes
}

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

// images is the image store. The store's lock guards it.
type images struct {
	byID table[*image]
	name map[string]*image // by tag and by digest
}

// add stores the image of that name, if it is not there yet. Any name will do: its contents are made up from it.
func (s *images) add(name string) *image {
	full := fullName(name)
	if known, ok := s.name[full]; ok {
		return known
	}
	if known, ok := s.byID.byID[name]; ok {
		return known
	}
	made := &image{id: "sha256:" + objectID("image", full), size: 20<<20 + number(400<<20, "size", full)}
	if strings.Contains(full, "@") {
		made.digest = full
	} else {
		made.tag = full
		made.digest = full[:strings.LastIndex(full, ":")] + "@sha256:" + objectID("digest", full)
	}
	if s.name == nil {
		s.name = map[string]*image{}
	}
	s.byID.add(made.id, made)
	s.name[full] = made
	s.name[made.digest] = made
	return made
}

// find returns the image with that id, the beginning of an id, tag or digest, or nil.
func (s *images) find(name string) *image {
	if i, ok := s.name[fullName(name)]; ok {
		return i
	}
	if name == "" {
		return nil
	}
	found, _ := s.byID.find("sha256:" + strings.TrimPrefix(name, "sha256:"))
	return found
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
func (s *imageService) ListImages(
	_ context.Context, req *runtimeapi.ListImagesRequest,
) (*runtimeapi.ListImagesResponse, error) {
	s.store.mu.RLock()
	defer s.store.mu.RUnlock()
	resp := &runtimeapi.ListImagesResponse{}
	name := req.GetFilter().GetImage().GetImage()
	for i := range s.store.images.byID.all() {
		if name == "" || i == s.store.images.find(name) {
			resp.Images = append(resp.Images, i.proto())
		}
	}
	return resp, nil
}

// ImageStatus returns one image; none is no error in CRI.
func (s *imageService) ImageStatus(
	_ context.Context, req *runtimeapi.ImageStatusRequest,
) (*runtimeapi.ImageStatusResponse, error) {
	s.store.mu.RLock()
	defer s.store.mu.RUnlock()
	resp := &runtimeapi.ImageStatusResponse{}
	if found := s.store.images.find(req.GetImage().GetImage()); found != nil {
		resp.Image = found.proto()
	}
	return resp, nil
}

// PullImage stores an image of that name. Nothing is downloaded.
func (s *imageService) PullImage(
	_ context.Context, req *runtimeapi.PullImageRequest,
) (*runtimeapi.PullImageResponse, error) {
	name := req.GetImage().GetImage()
	if name == "" || strings.ContainsAny(name, " \t\n") {
		return nil, status.Errorf(codes.InvalidArgument, "pulling %q: not an image name", name)
	}
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return &runtimeapi.PullImageResponse{ImageRef: s.store.images.add(name).id}, nil
}

// RemoveImage forgets an image; one that is not there is no error in CRI.
func (s *imageService) RemoveImage(
	_ context.Context, req *runtimeapi.RemoveImageRequest,
) (*runtimeapi.RemoveImageResponse, error) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	if found := s.store.images.find(req.GetImage().GetImage()); found != nil {
		s.store.images.byID.remove(found.id)
		delete(s.store.images.name, found.tag)
		delete(s.store.images.name, found.digest)
	}
	return &runtimeapi.RemoveImageResponse{}, nil
}

// ImageFsInfo reports what the stored images take.
func (s *imageService) ImageFsInfo(
	context.Context, *runtimeapi.ImageFsInfoRequest,
) (*runtimeapi.ImageFsInfoResponse, error) {
	s.store.mu.RLock()
	defer s.store.mu.RUnlock()
	var used uint64
	for i := range s.store.images.byID.all() {
		used += i.size
	}
	usage := &runtimeapi.FilesystemUsage{
		Timestamp:  time.Now().UnixNano(),
		FsId:       s.filesystem(),
		UsedBytes:  &runtimeapi.UInt64Value{Value: used},
		InodesUsed: &runtimeapi.UInt64Value{Value: 1000 * uint64(len(s.store.images.byID.ids))},
	}
	return &runtimeapi.ImageFsInfoResponse{
		ImageFilesystems:     []*runtimeapi.FilesystemUsage{usage},
		ContainerFilesystems: []*runtimeapi.FilesystemUsage{usage},
	}, nil
}

// filesystem names the file system of images and writable layers.
func (s *service) filesystem() *runtimeapi.FilesystemIdentifier {
	return &runtimeapi.FilesystemIdentifier{Mountpoint: cmp.Or(s.scenario.Runtime.ImageFS, "/")}
}
