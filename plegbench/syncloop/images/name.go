package images

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// reference is the grammar of image names: [host[:port]/]path[:tag][@digest]. It is compiled when it is first used,
// since few commands need it.
var reference = sync.OnceValue(func() *regexp.Regexp {
	const component = `[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*`
	return regexp.MustCompile(`^(?:([a-zA-Z0-9.\[\]:-]+)/)?` + component + `(?:/` + component + `)*` +
		`(:\w[\w.-]{0,127})?(@sha\d+:[0-9a-f]{64,128})?$`)
})

// withTag returns an image's name with the tag latest if it has neither a tag nor a digest.
func withTag(image string) (string, error) {
	m := reference().FindStringSubmatch(image)
	switch {
	case m == nil:
		return "", fmt.Errorf("couldn't parse image name %q: invalid reference format", image)
	case m[2] == "" && m[3] == "":
		return image + ":latest", nil
	}
	return image, nil
}

// policy is a container's pull policy. By default the tag latest is always pulled.
func policy(c *v1.Container, name string) v1.PullPolicy {
	switch {
	case c.ImagePullPolicy != "":
		return c.ImagePullPolicy
	case strings.HasSuffix(name, ":latest"):
		return v1.PullAlways
	}
	return v1.PullIfNotPresent
}

// credentials returns the first entry of the secrets for the registry of an image, or nil. Entries are matched by the
// registry's host alone.
func credentials(secrets []v1.Secret, image string) (*runtimeapi.AuthConfig, error) {
	host, _, ok := strings.Cut(image, "/")
	if !ok || !strings.ContainsAny(host, ".:") && host != "localhost" {
		host = "index.docker.io"
	}
	for _, s := range secrets {
		var file struct {
			Auths map[string]*runtimeapi.AuthConfig `json:"auths"`
		}
		if s.Type != v1.SecretTypeDockerConfigJson {
			continue
		}
		if json.Unmarshal(s.Data[v1.DockerConfigJsonKey], &file) != nil { // the error may quote the secret
			return nil, fmt.Errorf("reading pull secret %s/%s: not the JSON that its type asks for", s.Namespace, s.Name)
		}
		for registry, auth := range file.Auths {
			registry = strings.TrimPrefix(strings.TrimPrefix(registry, "https://"), "http://")
			if registry, _, _ = strings.Cut(registry, "/"); registry == host {
				return auth, nil
			}
		}
	}
	return nil, nil
}
