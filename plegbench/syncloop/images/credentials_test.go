package images

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kdiag/kdiag/internal/testkit"
	"github.com/kdiag/kdiag/plegbench/syncloop/apiserver/fake"
	"github.com/kdiag/kdiag/plegbench/syncloop/looptest"
	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// secretOf is a pull secret with a docker config: the registries of one form, or {"auths": …} of the other.
func secretOf(config string) *v1.Secret {
	s := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "key"}, Type: v1.SecretTypeDockercfg}
	s.Data = map[string][]byte{v1.DockerConfigKey: []byte(config)}
	if strings.Contains(config, "auths") {
		s.Type, s.Data = v1.SecretTypeDockerConfigJson, map[string][]byte{v1.DockerConfigJsonKey: []byte(config)}
	}
	return s
}

func TestCredentials(t *testing.T) {
	encode := base64.StdEncoding.EncodeToString
	opaque := secretOf(`{"r.io": {"username": "u"}}`)
	opaque.Type = v1.SecretTypeOpaque
	one := func(config string) []*v1.Secret { return []*v1.Secret{secretOf(config)} }
	// Each registry has a secret of its own, with a login of its name.
	users := func(registries ...string) (all []*v1.Secret) {
		for _, name := range registries {
			all = append(all, secretOf(fmt.Sprintf(`{%q: {"username": %q, "password": "p"}}`, name, name)))
		}
		return all
	}
	const badAuth = "pull secret shop/key: an auth field is not base64 of username:password"
	hub := "https://index.docker.io/v1/"
	for name, tt := range map[string]struct {
		image   string
		want    string // user:password or a token, or the error
		secrets []*v1.Secret
	}{
		"legacy": {"r.io/a:1", "AWS:p", one(`{"r.io": {"username": "AWS", "password": "p"}}`)},
		"JSON":   {"r.io/a", "u:p:q", one(`{"auths": {"r.io": {"auth": "` + encode([]byte("u:p:q")) + `"}}}`)},
		"token": {
			"r.io/a", "token t", one(`{"auths": {"r.io": {"auth": "dTo=", "identitytoken": "t"}}}`),
		},
		"bad auth":       {"r.io/a", badAuth, one(`{"r.io": {"auth": "s3cret!"}}`)},
		"bad JSON":       {"r.io/a", "pull secret shop/key: it is not the JSON of a docker config", one(`s3cret`)},
		"another type":   {"r.io/a", "", []*v1.Secret{opaque}},
		"longest first":  {"r.io/a/b@" + digest, "r.io/a/b:p r.io/a:p r.io:p", users("r.io", "r.io/a", "r.io/a/b")},
		"schemes":        {"r.io/a", "https://r.io/v1/a:p http://r.io:p", users("http://r.io", "https://r.io/v1/a")},
		"port":           {"r.io:5000/a:1", "r.io:5000:p", users("r.io", "r.io:5001", "r.io:5000")},
		"wildcards":      {"a.eu.r.io/x", "a*.e*.r.io:p *.*.r.io:p", users("*.*.r.io", "a*.e*.r.io", "*.us.r.io")},
		"version 6":      {"[::1]:5000/x", "[::1]:5000/x:p", users("[::1]:5000/x")},
		"Docker Hub":     {"busybox", hub + ":p", users(hub, "docker.io/other")},
		"not Docker Hub": {"localhost/app", "", users("index.docker.io")},
		"library":        {"index.docker.io/busybox", "docker.io/library/busybox:p", users("docker.io/library/busybox")},
		"no URL":         {"r.io/a", "", users("r.io:x", "%", "r[.io")},
	} {
		t.Run(name, func(t *testing.T) {
			auths, err := credentials(tt.image, tt.secrets)
			var got []string
			for _, a := range auths {
				if a.GetIdentityToken() != "" {
					got = append(got, a.GetUsername()+a.GetPassword()+"token "+a.GetIdentityToken())
				} else {
					got = append(got, a.GetUsername()+":"+a.GetPassword())
				}
			}
			testkit.Equal(t, "credentials", tt.want, strings.Join(got, " ")+testkit.Text(err))
		})
	}
}

// TestPullSecrets pulls an image that only one of the pod's users may pull.
func TestPullSecrets(t *testing.T) {
	clerk := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "clerk"}}
	clerk.ImagePullSecrets = []v1.LocalObjectReference{{Name: "clerk"}}
	api := fake.New(clerk)
	for _, user := range []string{"old", "older", "clerk"} {
		secret := secretOf(`{"r.io": {"username": "` + user + `", "password": "s3cret"}}`)
		secret.Name = user
		testkit.Must(t, api.Tracker().Add(secret))
	}
	refs := func(names ...string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			for _, name := range names {
				p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: name})
			}
		}
	}
	account := func(name string) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.ServiceAccountName = name } }
	static := looptest.Annotated(pod.ConfigSourceAnnotation, pod.FileSource)
	lost := []string{"Warning FailedToRetrieveImagePullSecret Unable to retrieve some image pull secrets (lost); " +
		"attempting to pull the image may not succeed."}
	for name, tt := range map[string]struct {
		pod    *v1.Pod
		users  []string // that tried
		events []string
	}{
		"the second":                 {looptest.Pod("1", refs("old", "lost", "", "clerk")), []string{"old", "clerk"}, lost},
		"the account of a static":    {looptest.Pod("1", static, account("clerk")), []string{"clerk"}, nil},
		"the pod's before those":     {looptest.Pod("1", static, account("clerk"), refs("old")), []string{"old"}, nil},
		"admission's for all others": {looptest.Pod("1", account("clerk")), []string{""}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := &fakeService{}
			var log looptest.Log
			m, recorder := newManager(s, Config{Objects: api})
			m.Log = log.Logger(9)
			var users []string
			s.pullAs = func(auth *runtimeapi.AuthConfig) error {
				users = append(users, auth.GetUsername())
				if auth.GetUsername() == "clerk" && auth.GetPassword() == "s3cret" {
					return nil
				}
				return fmt.Errorf("401 Unauthorized %q", auth.GetUsername())
			}
			_, message, reason := m.EnsureImage(t.Context(), tt.pod, &v1.Container{Image: "r.io/a"}, nil)
			testkit.Equal(t, "users", tt.users, users)
			if want := slices.Contains(tt.users, "clerk"); (reason == nil) != want {
				t.Errorf("%v: %s", reason, message)
			}
			var events []string
			for _, e := range looptest.Drain(recorder.Events) {
				if strings.Contains(e, "Secret") {
					events = append(events, e)
				}
			}
			testkit.Equal(t, "events", tt.events, events)
			testkit.Equal(t, "lines with a password", 0, len(log.Lines("s3cret")))
		})
	}
}
