package fake

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestStatus(t *testing.T) {
	s := small()
	s.Conditions = []Condition{{Type: "NetworkReady", Reason: "NoCNI", Message: "none"}, {Type: "Extra", Status: true}}
	s.Runtime.CgroupDriver = "cgroupfs"
	c := serve(t, s)
	config := must(c.RuntimeConfig(t.Context(), &runtimeapi.RuntimeConfigRequest{}))(t)
	if driver := config.GetLinux().GetCgroupDriver(); driver != runtimeapi.CgroupDriver_CGROUPFS {
		t.Errorf("cgroup driver %s", driver)
	}
	got := must(c.Status(t.Context(), &runtimeapi.StatusRequest{Verbose: true}))(t)
	want := []*runtimeapi.RuntimeCondition{
		{Type: "NetworkReady", Reason: "NoCNI", Message: "none"},
		{Type: "Extra", Status: true},
		{Type: "RuntimeReady", Status: true},
	}
	if diff := cmp.Diff(want, got.GetStatus().GetConditions(), protocmp.Transform()); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	if !json.Valid([]byte(got.GetInfo()["config"])) {
		t.Errorf("verbose info %q is no JSON", got.GetInfo())
	}
}

func TestImages(t *testing.T) {
	c := serve(t, small())
	spec := func(name string) *runtimeapi.ImageSpec { return &runtimeapi.ImageSpec{Image: name} }
	find := func(name string) *runtimeapi.Image {
		return must(c.images.ImageStatus(t.Context(), &runtimeapi.ImageStatusRequest{Image: spec(name)}))(t).GetImage()
	}
	pull := func(name string) string {
		return must(c.images.PullImage(t.Context(), &runtimeapi.PullImageRequest{Image: spec(name)}))(t).GetImageRef()
	}
	app := find("app:1")
	hex := strings.TrimPrefix(app.GetId(), "sha256:")
	for _, name := range []string{"docker.io/library/app:1", app.GetId(), hex, app.GetRepoDigests()[0]} {
		if got := find(name); got.GetId() != app.GetId() || got.GetSize() == 0 {
			t.Errorf("%s is %v", name, got)
		}
	}
	for _, name := range []string{"app", "app:2", ""} {
		if got := find(name); got != nil {
			t.Errorf("%q is %v", name, got)
		}
	}
	byDigest := "quay.io/x/y@sha256:" + objectID("some")
	for name, want := range map[string]string{
		"nginx": "docker.io/library/nginx:latest", "quay.io:5000/a/b": "quay.io:5000/a/b:latest",
		"me/it:3": "docker.io/me/it:3",
		byDigest:  byDigest,
	} {
		first, second := pull(name), pull(name)
		got := find(first)
		if tags := append(got.GetRepoTags(), got.GetRepoDigests()...); first != second || tags[0] != want {
			t.Errorf("%s was stored as %v with ids %s and %s, want %s", name, tags, first, second, want)
		}
	}
	list := func(name string) int {
		filter := &runtimeapi.ImageFilter{Image: spec(name)}
		return len(must(c.images.ListImages(t.Context(), &runtimeapi.ListImagesRequest{Filter: filter}))(t).GetImages())
	}
	if all, one, none := list(""), list("nginx"), list("none"); all != 7 || one != 1 || none != 0 {
		t.Errorf("%d images, %d called nginx, %d called none; want 7, 1, 0", all, one, none)
	}
	for range 2 { // the second time it is gone
		must(c.images.RemoveImage(t.Context(), &runtimeapi.RemoveImageRequest{Image: spec("nginx")}))(t)
	}
	if left := find("docker.io/library/nginx:latest"); left != nil {
		t.Errorf("still there: %v", left)
	}
}
