package fake

import (
	"cmp"
	"context"
	"slices"
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

// An image is what is stored under one or more names.
type image struct {
	id      string   // sha256:...
	tags    []string // repository:tag; none if pulled by digest
	digests []string // repository@sha256:..., at least one
	size    uint64   // bytes
}

// name is what containers were made from.
func (i *image) name() string { return slices.Concat(i.tags, i.digests)[0] }

func (i *image) proto() *runtimeapi.Image {
	return &runtimeapi.Image{
		Id:          i.id,
		RepoTags:    slices.Clone(i.tags),
		RepoDigests: slices.Clone(i.digests),
		Size:        i.size,
		Uid:         &runtimeapi.Int64Value{Value: imageUser},
		Pinned:      slices.Contains(i.tags, pauseImage),
	}
}

// images is the image store. The store's lock guards it.
type images struct {
	byID table[*image]
	name map[string]*image // by tag and by digest
	same map[string]string // the first tag of the scenario for an image, by its other tags
}

// add stores the image of that name, if it is not there yet. Any name will do: its contents are made up from it, or
// from the name that it is alike to.
func (s *images) add(name string) *image {
	full := fullName(name)
	if known, ok := s.name[full]; ok {
		return known
	}
	if known, ok := s.byID.byID[name]; ok {
		return known
	}
	origin, digest := cmp.Or(s.same[full], full), full
	tagged := !strings.Contains(full, "@")
	if tagged {
		digest = full[:strings.LastIndex(full, ":")] + "@sha256:" + objectID("digest", origin)
	}
	id := "sha256:" + objectID("image", origin)
	made := cmp.Or(s.name[digest], s.byID.byID[id])
	if made == nil {
		made = &image{id: id, size: 20<<20 + number(400<<20, "size", origin)}
		s.byID.add(id, made)
	}
	if s.name[digest] == nil {
		s.name[digest], made.digests = made, append(made.digests, digest)
	}
	if tagged {
		s.name[full], made.tags = made, append(made.tags, full)
	}
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
func (s *service) ListImages(
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
func (s *service) ImageStatus(
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
func (s *service) PullImage(
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

// RemoveImage forgets an image with all its names, as containerd does; one that is not there is no error in CRI.
func (s *service) RemoveImage(
	_ context.Context, req *runtimeapi.RemoveImageRequest,
) (*runtimeapi.RemoveImageResponse, error) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	if found := s.store.images.find(req.GetImage().GetImage()); found != nil {
		s.store.images.byID.remove(found.id)
		for _, name := range slices.Concat(found.tags, found.digests) {
			delete(s.store.images.name, name)
		}
	}
	return &runtimeapi.RemoveImageResponse{}, nil
}

// ImageFsInfo reports what the stored images take.
func (s *service) ImageFsInfo(
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
		InodesUsed: &runtimeapi.UInt64Value{Value: 1000 * uint64(len(s.store.images.byID.byID))},
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
