package canary

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestChoose chooses of images by their names, the smallest first.
func TestChoose(t *testing.T) {
	for names, want := range map[string][]choice{
		"registry.k8s.io/pause:3.10 registry.example/app:1 docker.io/library/alpine:3": {
			{id: "2", name: "docker.io/library/alpine:3"}, {id: "0", name: "registry.k8s.io/pause:3.10", pause: true},
		},
		"quay.io/x/busybox@sha256:1 docker.io/library/alpine:3": {{id: "0", name: "quay.io/x/busybox@sha256:1"}},
		"registry.example/app:1 registry.example/pausegame:1":   nil,
		"docker.io/rancher/mirrored-pause:3.6": {
			{id: "0", name: "docker.io/rancher/mirrored-pause:3.6", pause: true},
		},
		"docker.io/library/nginx:1.27-alpine-slim": {{id: "0", name: "docker.io/library/nginx:1.27-alpine-slim"}},
	} {
		var images []*runtimeapi.Image
		for i, name := range strings.Fields(names) {
			image := &runtimeapi.Image{Id: strconv.Itoa(i), Size: uint64(i), RepoTags: []string{name}}
			if strings.Contains(name, "@") {
				image.RepoTags, image.RepoDigests = nil, image.RepoTags
			}
			images = append(images, image)
		}
		slices.Reverse(images)
		if diff := cmp.Diff(want, choose(images), cmp.AllowUnexported(choice{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", names, diff)
		}
	}
}

// TestIsLeftover has the sandboxes that TestEarlier does not have.
func TestIsLeftover(t *testing.T) {
	now := time.Date(2026, 3, 14, 3, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name, id, expires string
		age               time.Duration
		want              bool
	}{
		{"may still run", "x", now.Add(time.Second).Format(time.RFC3339), time.Minute, false},
		{"expired", "x", now.Add(-time.Second).Format(time.RFC3339), time.Minute, true},
		{"without a time, for an hour", "x", "", time.Hour, false},
		{"without a time, for days", "x", "", 25 * time.Hour, true},
		{"with a time years ahead", "x", "2050-01-01T00:00:00Z", 25 * time.Hour, true},
		{"no id", "", now.Add(-time.Second).Format(time.RFC3339), time.Minute, false},
	} {
		s := &runtimeapi.PodSandbox{
			Id: tt.id, Metadata: &runtimeapi.PodSandboxMetadata{Namespace: Namespace},
			CreatedAt:   now.Add(-tt.age).UnixNano(),
			Labels:      map[string]string{Label: "true"},
			Annotations: map[string]string{annotationExpires: tt.expires},
		}
		if got := isLeftover(s, now); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestNewPod wants a pod without rights, which no kubelet takes for its own.
func TestNewPod(t *testing.T) {
	opts := options()
	opts.CNI = true
	p := newPod(opts, choice{id: "sha256:1", name: "busybox"}, time.Now(), true)
	if host := p.sandbox.Hostname; p.sandbox.Linux.CgroupParent != "system.slice" || host != "kdiag-canary-"+p.run {
		t.Errorf("%+v", p.sandbox)
	}
	for _, labels := range []map[string]string{p.sandbox.Labels, p.container.Labels} {
		for key := range labels {
			if strings.HasPrefix(key, "io.kubernetes.") {
				t.Errorf("label %s is the kubelet's", key)
			}
		}
	}
	c := p.container
	if s := c.Linux.SecurityContext; s.Privileged || !s.NoNewPrivs || len(c.Mounts)+len(c.Envs) > 0 {
		t.Errorf("%v", c)
	}
}

// FuzzHostile gives names, labels and times of a hostile runtime to the functions that decide by them.
func FuzzHostile(f *testing.F) {
	f.Add("docker.io/library/busybox:1", "0123456789abcdef", "2026-03-14T03:00:00Z", int64(0))
	for _, run := range []string{
		"../x", "", "..", "../../etc", "0123456789ABCDEF", "0123456789abcdef0",
		"0123456789abcde/",
	} {
		f.Add("@@:::", run, "\x00", int64(-1))
	}
	f.Fuzz(func(t *testing.T, name, run, expires string, created int64) {
		got := choose([]*runtimeapi.Image{nil, {Id: name, RepoTags: []string{name, ""}}, {RepoDigests: []string{name}}})
		for _, c := range got {
			if c.id != "" && c.id != name {
				t.Errorf("chose %+v of %q", c, name)
			}
		}
		if folder := logFolder("/tmp", run); folder != "" && filepath.Dir(folder) != "/tmp" {
			t.Errorf("%q is not below /tmp", folder)
		}
		isLeftover(&runtimeapi.PodSandbox{
			Id: name, Labels: map[string]string{Label: "true"}, CreatedAt: created,
			Metadata:    &runtimeapi.PodSandboxMetadata{Namespace: Namespace},
			Annotations: map[string]string{annotationExpires: expires},
		}, time.Unix(0, 0))
		lacks(fmt.Sprint(name, expires), run)
	})
}
