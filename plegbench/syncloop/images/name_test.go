package images

import (
	"encoding/base64"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

func secret(text string) v1.Secret {
	return v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}, Type: v1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(text)},
	}
}

func TestCredentials(t *testing.T) {
	all := []v1.Secret{
		{Type: v1.SecretTypeOpaque, Data: map[string][]byte{v1.DockerConfigJsonKey: []byte("{")}},
		secret(`{"auths":{"https://index.docker.io/v1/":{"username":"hub","password":"p"},"quay.io/team":{"username":"quay"},` +
			`"reg.local:5000":{"auth":"` + base64.StdEncoding.EncodeToString([]byte("joe:s")) + `"}}}`),
		secret(`{"auths":{"quay.io":{"username":"second"}}}`),
	}
	for image, want := range map[string]string{
		"busybox:1": "hub:p:", "team/x:1": "hub:p:", "quay.io/other/x": "quay::", "reg.local:5000/x": "::am9lOnM=", "reg.local/x": "", "ghcr.io/x": "",
	} {
		auth, err := credentials(all, image)
		got := ""
		if auth != nil {
			got = auth.GetUsername() + ":" + auth.GetPassword() + ":" + auth.GetAuth()
		}
		if got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", image, got, err, want)
		}
	}
	_, err := credentials([]v1.Secret{secret(`{"auths":["hunter2"]}`)}, "quay.io/x")
	if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "ns/s") {
		t.Errorf("unreadable: %v", err)
	}
}

func FuzzCredentials(f *testing.F) {
	f.Add(`{"auths":{"quay.io/team":{"auth":"am9lOnA="}}}`, "quay.io/team/x")
	f.Add(`{"auths":{"[::1]:5":{"username":"u"},"[":null}}`, "[::1]:5/x")
	f.Fuzz(func(t *testing.T, text, image string) {
		auth, err := credentials([]v1.Secret{secret(text)}, image)
		if err != nil && (auth != nil || strings.Contains(err.Error(), text) && len(text) > 8) {
			t.Errorf("%v, %v", auth, err)
		}
	})
}
