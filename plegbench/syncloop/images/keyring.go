package images

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// dockerHub is where credentials for docker.io are filed.
const dockerHub = "index.docker.io"

// An entry is what a pull secret holds for one registry, or for a path in one.
type entry struct {
	Username string `json:"username"`
	Password string `json:"password"`
	Auth     string `json:"auth"` // base64 of username:password; goes before the two

	host, path string
}

// credentials returns what the secrets hold for a repository, the most specific first. Each is worth a try: keys may be
// replaced one at a time. A secret that cannot be read is an error.
func credentials(secrets []v1.Secret, repository string) ([]*runtimeapi.AuthConfig, error) {
	entries, err := readSecrets(secrets)
	if err != nil {
		return nil, err
	}
	host, in, _ := strings.Cut(repository, "/")
	match := func(e entry) bool { return hostMatches(e.host, host) && strings.HasPrefix("/"+in, e.path) }
	if host == defaultHost && !slices.ContainsFunc(entries, match) {
		match = func(e entry) bool { return e.host == dockerHub && e.path == "" }
	}
	var found []*runtimeapi.AuthConfig
	for _, e := range entries {
		if match(e) {
			found = append(found, &runtimeapi.AuthConfig{Username: e.Username, Password: e.Password})
		}
	}
	return found, nil
}

// readSecrets reads both forms of pull secrets. Others are passed over.
func readSecrets(secrets []v1.Secret) ([]entry, error) {
	var all []entry
	for i := range secrets {
		s := &secrets[i]
		var file struct {
			Auths map[string]entry `json:"auths"`
		}
		var err error
		switch {
		case s.Type == v1.SecretTypeDockerConfigJson && len(s.Data[v1.DockerConfigJsonKey]) > 0:
			err = json.Unmarshal(s.Data[v1.DockerConfigJsonKey], &file)
		case s.Type == v1.SecretTypeDockercfg && len(s.Data[v1.DockerConfigKey]) > 0:
			err = json.Unmarshal(s.Data[v1.DockerConfigKey], &file.Auths)
		}
		if err != nil {
			// The decoder's own words may quote the secret.
			return nil, fmt.Errorf("reading pull secret %s/%s: not the JSON that its type asks for", s.Namespace, s.Name)
		}
		for place, e := range file.Auths {
			if err := e.complete(place); err != nil {
				return nil, fmt.Errorf("reading pull secret %s/%s: %w", s.Namespace, s.Name, err)
			}
			if e.host != "" {
				all = append(all, e)
			}
		}
	}
	// Backwards, so that a path goes before the host alone; the users make the order the same each time.
	slices.SortFunc(all, func(a, b entry) int {
		return cmp.Or(cmp.Compare(b.host+b.path, a.host+a.path), cmp.Compare(a.Username, b.Username), cmp.Compare(a.Password, b.Password))
	})
	return all, nil
}

// complete decodes Auth, and finds out where the entry is for. A place that is no address leaves the host empty.
func (e *entry) complete(place string) error {
	if e.Auth != "" {
		user, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(e.Auth), "="))
		var ok bool
		if e.Username, e.Password, ok = strings.Cut(string(user), ":"); err != nil || !ok {
			return errors.New("auth is not base64 of username:password")
		}
	}
	if !strings.HasPrefix(place, "https://") && !strings.HasPrefix(place, "http://") {
		place = "https://" + place
	}
	u, err := url.Parse(place)
	if err != nil {
		return nil // the other entries are of use
	}
	e.host, e.path = u.Host, u.Path
	if strings.HasPrefix(e.path, "/v1/") || strings.HasPrefix(e.path, "/v2/") {
		e.path = e.path[len("/v1"):] // the API's version says nothing of the repository
	}
	if e.path == "/" {
		e.path = ""
	}
	return nil
}

// hostMatches compares hosts label by label; those of the pattern may hold *, as in *.example.com. The ports must be equal.
func hostMatches(pattern, host string) bool {
	pattern, patternPort := splitPort(pattern)
	host, port := splitPort(host)
	want, have := strings.Split(pattern, "."), strings.Split(host, ".")
	if patternPort != port || len(want) != len(have) {
		return false
	}
	for i := range want {
		if ok, err := path.Match(want[i], have[i]); !ok || err != nil {
			return false
		}
	}
	return true
}

func splitPort(hostport string) (host, port string) {
	if host, port, err := net.SplitHostPort(hostport); err == nil {
		return host, port
	}
	return hostport, ""
}
