package images

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/kdiag/kdiag/plegbench/syncloop/pod"
)

// Objects has the pull secrets of pods and the service accounts of static pods.
type Objects interface {
	Get(ctx context.Context, namespace, name string, into runtime.Object) error
}

// pullSecrets returns the pull secrets of a pod. One that cannot be read is left out with an event. A static pod
// without any has the pull secrets of its service account, as the API server's admission gives them to other pods.
func (m *Manager) pullSecrets(ctx context.Context, p *v1.Pod) (secrets []*v1.Secret) {
	refs := p.Spec.ImagePullSecrets
	if len(refs) == 0 && pod.IsStatic(p) {
		name := cmp.Or(p.Spec.ServiceAccountName, "default")
		account := &v1.ServiceAccount{}
		if err := m.Objects.Get(ctx, p.Namespace, name, account); err != nil {
			if p.Spec.ServiceAccountName != "" || !apierrors.IsNotFound(err) { // nothing demands an account here
				m.Log.Error(err, "Unable to retrieve the service account with pull secrets", "pod", klog.KObj(p))
			}
			return nil
		}
		refs = account.ImagePullSecrets
	}
	var failed []string
	for _, ref := range refs {
		if ref.Name == "" { // which the API's validation lets through
			continue
		}
		secret := &v1.Secret{}
		if err := m.Objects.Get(ctx, p.Namespace, ref.Name, secret); err != nil {
			m.Log.Info("Unable to retrieve pull secret, the image pull may not succeed.",
				"pod", klog.KObj(p), "secret", klog.KRef(p.Namespace, ref.Name), "err", err)
			failed = append(failed, ref.Name)
			continue
		}
		secrets = append(secrets, secret)
	}
	if len(failed) > 0 {
		m.Recorder.Eventf(p, v1.EventTypeWarning, "FailedToRetrieveImagePullSecret", "Unable to retrieve some image "+
			"pull secrets (%s); attempting to pull the image may not succeed.", strings.Join(failed, ", "))
	}
	return secrets
}

// A login is what a docker config has for a registry. Names are matched in any case.
type login struct{ Username, Password, Auth, IdentityToken string }

// auth turns a login into CRI's form. The field auth wins over a name and password, and an identity token over both:
// runtimes take the token only without a name.
func (l login) auth() (*runtimeapi.AuthConfig, error) {
	if l.IdentityToken != "" {
		return &runtimeapi.AuthConfig{IdentityToken: l.IdentityToken}, nil
	}
	if l.Auth != "" {
		text, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(l.Auth), "="))
		var ok bool
		if l.Username, l.Password, ok = strings.Cut(string(text), ":"); err != nil || !ok {
			return nil, errors.New("an auth field is not base64 of username:password")
		}
	}
	return &runtimeapi.AuthConfig{Username: l.Username, Password: l.Password}, nil
}

// logins reads a secret with a docker config of either form; others have none. The error does not quote the secret.
func logins(s *v1.Secret) (all map[string]login, err error) {
	if text := s.Data[v1.DockerConfigJsonKey]; s.Type == v1.SecretTypeDockerConfigJson && len(text) > 0 {
		var config struct{ Auths map[string]login }
		err = json.Unmarshal(text, &config)
		all = config.Auths
	} else if text := s.Data[v1.DockerConfigKey]; s.Type == v1.SecretTypeDockercfg && len(text) > 0 {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		err = errors.New("it is not the JSON of a docker config")
	}
	return all, err
}

// credentials returns what secrets have for an image's registry, the longest paths first (pkg/credentialprovider
// upstream).
func credentials(image string, secrets []*v1.Secret) (found []*runtimeapi.AuthConfig, err error) {
	all := map[string][]*runtimeapi.AuthConfig{} // by host and path
	for _, s := range secrets {
		registries, err := logins(s)
		for _, registry := range slices.Sorted(maps.Keys(registries)) {
			auth, authErr := registries[registry].auth()
			err = cmp.Or(err, authErr)
			if u, invalid := parse(registry); invalid == nil { // others are passed over
				all[u.Host+u.Path] = append(all[u.Host+u.Path], auth)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("pull secret %s/%s: %w", s.Namespace, s.Name, err)
		}
	}
	target := repository(image)
	for _, key := range slices.Backward(slices.Sorted(maps.Keys(all))) {
		if matches(key, target) {
			found = append(found, all[key]...)
		}
	}
	if len(found) == 0 && strings.HasPrefix(target, "docker.io/") {
		found = all["index.docker.io"]
	}
	return found, nil
}

// parse parses a registry with or without a scheme, and without the version of docker's API that may begin its path.
func parse(registry string) (*url.URL, error) {
	if !strings.HasPrefix(registry, "https://") && !strings.HasPrefix(registry, "http://") {
		registry = "https://" + registry
	}
	u, err := url.Parse(registry)
	if err == nil && (strings.HasPrefix(u.Path, "/v1/") || strings.HasPrefix(u.Path, "/v2/")) {
		u.Path = u.Path[len("/v1"):]
	}
	if err == nil && u.Path == "/" {
		u.Path = ""
	}
	return u, err
}

// matches reports whether a registry with wildcards within the labels of its host stands for a repository: the port is
// the same, and the path begins it.
func matches(registry, repository string) bool {
	g, err := url.Parse("https://" + registry)
	r, repositoryErr := url.Parse("https://" + repository)
	if err != nil || repositoryErr != nil || g.Port() != r.Port() || !strings.HasPrefix(r.Path, g.Path) {
		return false
	}
	globs, labels := strings.Split(g.Hostname(), "."), strings.Split(r.Hostname(), ".")
	if len(globs) != len(labels) {
		return false
	}
	for i, glob := range globs {
		if ok, _ := path.Match(glob, labels[i]); !ok {
			return false
		}
	}
	return true
}

// repository is an image's name with its registry, and without its tag and digest.
func repository(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if tag := strings.LastIndex(image, ":"); tag > strings.LastIndex(image, "/") {
		image = image[:tag]
	}
	host, rest, ok := strings.Cut(image, "/")
	if !ok || !strings.ContainsAny(host, ".:") && host != "localhost" && strings.ToLower(host) == host {
		host, rest = "docker.io", image
	}
	if host == "index.docker.io" {
		host = "docker.io"
	}
	if host == "docker.io" && !strings.Contains(rest, "/") {
		rest = "library/" + rest
	}
	return host + "/" + rest
}
