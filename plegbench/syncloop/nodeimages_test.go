package syncloop

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/crictl/fake"
)

func TestLargestImages(t *testing.T) {
	all := []*runtimeapi.Image{
		{RepoTags: []string{"small:1"}, Size: 1},
		{RepoTags: []string{"large:1", "large:2", "large:3"}, RepoDigests: []string{"large@a", "large@b", "large@c"}, Size: 3},
		{RepoTags: []string{"middle:1"}, Size: 2},
	}
	large := v1.ContainerImage{Names: []string{"large@a", "large@b", "large@c", "large:1", "large:2"}, SizeBytes: 3}
	middle := v1.ContainerImage{Names: []string{"middle:1"}, SizeBytes: 2}
	small := v1.ContainerImage{Names: []string{"small:1"}, SizeBytes: 1}
	for most, want := range map[int][]v1.ContainerImage{-1: {large, middle, small}, 0: nil, 2: {large, middle}, 50: {large, middle, small}} {
		if diff := cmp.Diff(want, largestImages(all, most)); diff != "" {
			t.Errorf("at most %d (-want +got):\n%s", most, diff)
		}
	}
}

// TestImagesInUse wants the image of a container and that of the sandboxes, which none of the node's containers uses,
// to be kept.
func TestImagesInUse(t *testing.T) {
	_, service := serveFake(t, fake.Scenario{Name: "images", Pods: []fake.PodGroup{{
		Namespace: "web", Name: "shop", Containers: []fake.ContainerGroup{{Name: "app", Image: "docker.io/library/app:1"}},
	}}})
	sandbox, err := service.SandboxImage(t.Context())
	if err != nil || sandbox == "" {
		t.Fatalf("sandboxes are made of %q, %v", sandbox, err)
	}
	used, err := (&SyncLoop{service: service}).imagesInUse(t.Context())
	if err != nil || !used[sandbox] || !used["docker.io/library/app:1"] || used[""] {
		t.Errorf("in use: %v, %v; want %s and the container's", used, err, sandbox)
	}
}
