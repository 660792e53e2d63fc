package images

import (
	"strings"
	"testing"
)

const digest = "sha256:" + "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestWithTag(t *testing.T) {
	for image, want := range map[string]string{
		"busybox": "busybox:latest", "busybox:1": "busybox:1", "busybox@" + digest: "busybox@" + digest, "a/b": "a/b:latest", "localhost/b": "localhost/b:latest",
		"registry.k8s.io/pause:3.6": "registry.k8s.io/pause:3.6", "127.0.0.1:5000/x/y:v_1@" + digest: "127.0.0.1:5000/x/y:v_1@" + digest,
		"[::1]:5000/x:1": "[::1]:5000/x:1", "HOST/x:1": "HOST/x:1", "a__b/c--d.e": "a__b/c--d.e:latest",
	} {
		if got, err := withTag(image); err != nil || got != want {
			t.Errorf("withTag(%q) = %q, %v", image, got, err)
		}
	}
	for _, bad := range []string{
		"", "Busybox", "a/B", "busybox:", ":1", "a b", "a//b", "a/", "/a", "busybox@sha256:12", "x:" + strings.Repeat("t", 129), "https://a/b", "a___b",
	} {
		if got, err := withTag(bad); err == nil {
			t.Errorf("withTag(%q) = %q without an error", bad, got)
		}
	}
}

// A name that is accepted gives one that is accepted again and does not change.
func FuzzWithTag(f *testing.F) {
	for _, s := range []string{"busybox", "a/b:1", "h:5/x@" + digest, "[::1]:5000/x:1", "index.docker.io/b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, image string) {
		name, err := withTag(image)
		if err != nil {
			return
		}
		if again, err := withTag(name); err != nil || again != name || !strings.HasPrefix(name, image) {
			t.Errorf("withTag(%q) = %q, again %q, %v", image, name, again, err)
		}
	})
}
