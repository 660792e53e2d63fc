package kubelet

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/kdiag/kdiag/crictl"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// readKubeconfig reads the server and the credential of a kubeconfig's current context, and makes the paths in them
// absolute. The credential never leaves the package, and a program that gives one (EKS, GKE) is never run.
func readKubeconfig(all crictl.HostFiles, name string) (*api.Cluster, *api.AuthInfo, error) {
	data, err := all.Read(name)
	if err != nil {
		return nil, nil, fmt.Errorf("%s %w", oneLine(name), err)
	}
	c, u, err := parseKubeconfig(data)
	if err != nil {
		return nil, nil, fmt.Errorf("%s %w", oneLine(name), err)
	}
	for _, path := range []*string{&c.CertificateAuthority, &u.ClientCertificate, &u.ClientKey} {
		if *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(filepath.Dir(name), *path)
		}
	}
	return c, u, nil
}

func parseKubeconfig(data []byte) (*api.Cluster, *api.AuthInfo, error) {
	config, err := clientcmd.Load(data)
	if err != nil { // which may quote the file, and so a secret
		return nil, nil, errors.New("is not a kubeconfig")
	}
	if current := config.Contexts[config.CurrentContext]; current != nil && config.Clusters[current.Cluster] != nil {
		u := config.AuthInfos[current.AuthInfo]
		if u == nil {
			u = &api.AuthInfo{}
		}
		return config.Clusters[current.Cluster], u, nil
	}
	return nil, nil, errors.New("has no cluster for its current context")
}

// either returns data that stands in the kubeconfig itself, else reads the file that it names.
func either(all crictl.HostFiles, data []byte, name string) ([]byte, error) {
	if len(data) > 0 || name == "" {
		return data, nil
	}
	data, err := all.Read(name)
	if err != nil {
		return nil, fmt.Errorf("%s %w", oneLine(name), err)
	}
	return data, nil
}
