package kubelet

import (
	"errors"
	"fmt"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// A cluster is what a kubeconfig has of the server.
type cluster struct {
	Server        string `json:"server"`
	ServerName    string `json:"tls-server-name"`
	Authority     string `json:"certificate-authority"`
	AuthorityData []byte `json:"certificate-authority-data"`
	SkipVerify    bool   `json:"insecure-skip-tls-verify"`
}

// A user is the kubelet's credential. It never leaves the package.
type user struct {
	Certificate     string `json:"client-certificate"`
	CertificateData []byte `json:"client-certificate-data"`
	Key             string `json:"client-key"`
	KeyData         []byte `json:"client-key-data"`
	// Exec is a program that gives a credential (EKS, GKE). It is never run.
	Exec *struct{} `json:"exec"`
}

// parseKubeconfig reads the current context of a kubeconfig, in the format of k8s.io/client-go/tools/clientcmd/api/v1.
func parseKubeconfig(data []byte) (cluster, user, error) {
	var c struct {
		CurrentContext string `json:"current-context"`
		Clusters       []struct {
			Name    string  `json:"name"`
			Cluster cluster `json:"cluster"`
		} `json:"clusters"`
		Users []struct {
			Name string `json:"name"`
			User user   `json:"user"`
		} `json:"users"`
		Contexts []struct {
			Name    string `json:"name"`
			Context struct {
				Cluster string `json:"cluster"`
				User    string `json:"user"`
			} `json:"context"`
		} `json:"contexts"`
	}
	// The parser's error may quote the file, and so a secret.
	if yaml.Unmarshal(data, &c) != nil {
		return cluster{}, user{}, errors.New("is no kubeconfig")
	}
	for _, ctx := range c.Contexts {
		if ctx.Name != c.CurrentContext {
			continue
		}
		var u user
		for _, candidate := range c.Users {
			if candidate.Name == ctx.Context.User {
				u = candidate.User
			}
		}
		for _, candidate := range c.Clusters {
			if candidate.Name == ctx.Context.Cluster {
				return candidate.Cluster, u, nil
			}
		}
	}
	return cluster{}, user{}, errors.New("has no cluster for its current context")
}

// readKubeconfig reads a kubeconfig and makes the paths in it absolute.
func readKubeconfig(all files, name string) (cluster, user, error) {
	data, err := all.read(name)
	if err != nil {
		return cluster{}, user{}, fmt.Errorf("%s %s", oneLine(name), reasonOf(err))
	}
	c, u, err := parseKubeconfig(data)
	if err != nil {
		return cluster{}, user{}, fmt.Errorf("%s %w", oneLine(name), err)
	}
	for _, path := range []*string{&c.Authority, &u.Certificate, &u.Key} {
		if *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(filepath.Dir(name), *path)
		}
	}
	return c, u, nil
}

// either returns data that stands in the kubeconfig itself, else reads the file that it names.
func either(all files, data []byte, name string) ([]byte, error) {
	if len(data) > 0 || name == "" {
		return data, nil
	}
	data, err := all.read(name)
	if err != nil {
		return nil, fmt.Errorf("%s %s", oneLine(name), reasonOf(err))
	}
	return data, nil
}
