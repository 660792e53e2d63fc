package images

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func secret(text string) v1.Secret {
	return v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}, Type: v1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(text)},
	}
}

func oldSecret(text string) v1.Secret {
	return v1.Secret{Type: v1.SecretTypeDockercfg, Data: map[string][]byte{v1.DockerConfigKey: []byte(text)}}
}

func TestCredentials(t *testing.T) {
	joe := base64.StdEncoding.EncodeToString([]byte("joe:s:1"))
	all := []v1.Secret{
		secret(`{"auths":{
			"https://index.docker.io/v1/":{"username":"hub","password":"p"},
			"quay.io":{"username":"quay","password":"p"},
			"quay.io/team":{"auth":"` + joe + `"},
			"*.example.com:5000":{"username":"glob","password":"p"},
			"http://reg.local/v2/":{"username":"local","password":"p"},
			"::bad":{"username":"bad"}}}`),
		oldSecret(`{"quay.io":{"username":"second","auth":"` + strings.TrimRight(base64.StdEncoding.EncodeToString([]byte("second:x")), "=") + `"}}`),
		{Type: v1.SecretTypeOpaque, Data: map[string][]byte{v1.DockerConfigJsonKey: []byte("{")}},
	}
	tests := map[string][]string{
		"docker.io/library/busybox": {"hub:p"},
		"quay.io/other/x":           {"quay:p", "second:x"},
		"quay.io/team/x":            {"joe:s:1", "quay:p", "second:x"},
		"a.example.com:5000/x":      {"glob:p"},
		"a.example.com/x":           nil,
		"a.b.example.com:5000/x":    nil,
		"reg.local/x":               {"local:p"},
		"ghcr.io/x":                 nil,
	}
	for repository, want := range tests {
		auths, err := credentials(all, repository)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, a := range auths {
			got = append(got, a.GetUsername()+":"+a.GetPassword())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", repository, diff)
		}
	}
}

func TestCredentialsForDockerHubByItsOtherName(t *testing.T) {
	auths, err := credentials([]v1.Secret{secret(`{"auths":{"docker.io":{"username":"a"},"index.docker.io":{"username":"b"}}}`)}, "docker.io/library/x")
	if err != nil || len(auths) != 1 || auths[0].GetUsername() != "a" {
		t.Errorf("%v, %v", auths, err)
	}
}

func TestCredentialsUnreadable(t *testing.T) {
	for _, text := range []string{"{", `{"auths":[]}`, `{"auths":{"x":{"auth":"hunter2!"}}}`, `{"auths":{"x":{"auth":"aGk="}}}`} {
		_, err := credentials([]v1.Secret{secret(text)}, "quay.io/x")
		if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "ns/s") {
			t.Errorf("%s: error %v", text, err)
		}
	}
}

func FuzzCredentials(f *testing.F) {
	f.Add(`{"auths":{"quay.io/team":{"auth":"am9lOnA="}}}`, "quay.io/team/x")
	f.Add(`{"auths":{"*.io:1":{"username":"u","password":"p"}}}`, "a.io:1/x")
	f.Add(`{"auths":{"[::1]:5":{"username":"u"},"[":{}}}`, "[::1]:5/x")
	f.Fuzz(func(t *testing.T, text, repository string) {
		auths, err := credentials([]v1.Secret{secret(text)}, repository)
		if err != nil && auths != nil {
			t.Errorf("%v beside %v", auths, err)
		}
	})
}
