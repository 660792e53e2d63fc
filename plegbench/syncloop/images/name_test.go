package images

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

const digest = "sha256:" + "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestParseName(t *testing.T) {
	tests := []struct {
		image string
		want  name
	}{
		{"busybox", name{"docker.io/library/busybox", "latest", "busybox:latest"}},
		{"busybox:1", name{"docker.io/library/busybox", "1", "busybox:1"}},
		{"busybox@" + digest, name{"docker.io/library/busybox", "", "busybox@" + digest}},
		{"a/b", name{"docker.io/a/b", "latest", "a/b:latest"}},
		{"docker.io/b:x", name{"docker.io/library/b", "x", "docker.io/b:x"}},
		{"index.docker.io/b:x", name{"docker.io/library/b", "x", "index.docker.io/b:x"}},
		{"localhost/b", name{"localhost/b", "latest", "localhost/b:latest"}},
		{"registry.k8s.io/pause:3.6", name{"registry.k8s.io/pause", "3.6", "registry.k8s.io/pause:3.6"}},
		{"127.0.0.1:5000/x/y:v_1@" + digest, name{"127.0.0.1:5000/x/y", "v_1", "127.0.0.1:5000/x/y:v_1@" + digest}},
		{"[::1]:5000/x:1", name{"[::1]:5000/x", "1", "[::1]:5000/x:1"}},
		{"HOST/x:1", name{"HOST/x", "1", "HOST/x:1"}},
		{"a__b/c--d.e", name{"docker.io/a__b/c--d.e", "latest", "a__b/c--d.e:latest"}},
	}
	for _, tt := range tests {
		got, err := parseName(tt.image)
		if err != nil {
			t.Errorf("parseName(%q): %v", tt.image, err)
		}
		if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(name{})); diff != "" {
			t.Errorf("parseName(%q): %s", tt.image, diff)
		}
	}
	for _, bad := range []string{
		"", "Busybox", "a/B", "busybox:", ":1", "a b", "a//b", "a/", "/a", "busybox@sha256:12", strings.TrimPrefix(digest, "sha256:"),
		"x:" + strings.Repeat("t", 129), strings.Repeat("x", 256), "https://a/b", "a.-b/c", "a___b", "-host.io/x",
	} {
		if got, err := parseName(bad); err == nil {
			t.Errorf("parseName(%q) = %+v without an error", bad, got)
		}
	}
}

func TestPolicy(t *testing.T) {
	for image, want := range map[string]v1.PullPolicy{
		"x": v1.PullAlways, "x:latest": v1.PullAlways, "x:1": v1.PullIfNotPresent, "x@" + digest: v1.PullIfNotPresent,
		"x:latest@" + digest: v1.PullAlways,
	} {
		n, err := parseName(image)
		if got := policy(&v1.Container{}, n); got != want || err != nil {
			t.Errorf("policy of %s = %s, %v, want %s", image, got, err, want)
		}
		if got := policy(&v1.Container{ImagePullPolicy: v1.PullNever}, n); got != v1.PullNever {
			t.Errorf("policy of %s = %s, though it is set to Never", image, got)
		}
	}
}

// A name that is taken gives one that is taken again, with the same parts.
func FuzzParseName(f *testing.F) {
	for _, s := range []string{"busybox", "a/b:1", "h:5/x@" + digest, "[::1]:5000/x:1", "index.docker.io/b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, image string) {
		n, err := parseName(image)
		if err != nil {
			return
		}
		again, err := parseName(n.full)
		if err != nil || again.full != n.full || again.repository != n.repository || again.tag != n.tag {
			t.Errorf("parseName(%q) = %+v, again %+v, %v", image, n, again, err)
		}
		if !strings.HasPrefix(n.full, image) || strings.ToLower(n.repository[strings.Index(n.repository, "/"):]) != n.repository[strings.Index(n.repository, "/"):] {
			t.Errorf("parseName(%q) = %+v", image, n)
		}
	})
}
