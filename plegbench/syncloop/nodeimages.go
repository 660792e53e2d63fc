package syncloop

import (
	"cmp"
	"net"
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxImageNames is how many names of one image the node's status has (pkg/kubelet/nodestatus/setters.go upstream).
const maxImageNames = 5

// nodeImages are the images of the node's status.
func (s *SyncLoop) nodeImages() []v1.ContainerImage {
	return largestImages(s.images.Images(), int(s.cfg.Kubelet.NodeStatusMaxImages))
}

// largestImages are the most images, the largest first, each with some of its names, digests before tags. Less than
// zero stands for all.
func largestImages(all []*runtimeapi.Image, most int) []v1.ContainerImage {
	all = slices.SortedStableFunc(slices.Values(all), func(a, b *runtimeapi.Image) int {
		return cmp.Compare(b.GetSize(), a.GetSize())
	})
	if most >= 0 {
		all = all[:min(most, len(all))]
	}
	var out []v1.ContainerImage
	for _, i := range all {
		names := slices.Concat(i.GetRepoDigests(), i.GetRepoTags())
		out = append(out, v1.ContainerImage{Names: names[:min(maxImageNames, len(names))], SizeBytes: int64(i.GetSize())})
	}
	return out
}

// port is the server's, as the node's status has it; 0 without a server.
func (s *SyncLoop) port() int32 {
	if a, ok := s.Addr().(*net.TCPAddr); ok {
		return int32(a.Port)
	}
	return 0
}
