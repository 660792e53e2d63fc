package kubelet

import (
	"context"
	"errors"
	"path/filepath"

	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// defaultConfig is where kubeadm has the kubelet's configuration file.
const defaultConfig = "/var/lib/kubelet/config.yaml"

// ErrNoNode says that nothing on this host is a kubelet's.
var ErrNoNode = errors.New("no kubelet runs here, and none was set up where kubeadm does it")

// AskPing asks the health port of a kubelet that was set up on this host and is not among its processes: the one that its
// configuration file names, else the default. That nobody listens there is an answer too. A host without a kubelet's files
// is not asked: ErrNoNode.
func AskPing(ctx context.Context, root string) (Health, error) {
	all := seenBy(root, 0)
	setUp := false
	for _, name := range []string{defaultConfig, defaultKubeconfig, filepath.Join(defaultCertDir, clientFile)} {
		if info, err := all.stat(name); err == nil && info.Mode().IsRegular() {
			setUp = true
		}
	}
	if !setUp {
		return Health{}, ErrNoNode
	}
	if elsewhere(root, 1) {
		return Health{}, errors.New("asking the kubelet: kdiag is not in the host's network namespace")
	}
	var s Settings
	cfg := &kubeletconfigv1beta1.KubeletConfiguration{}
	if data, err := all.read(defaultConfig); err == nil {
		if doc, err := parseConfig(data); err == nil {
			if cfg, err = decodeConfig(doc); err != nil {
				cfg = &kubeletconfigv1beta1.KubeletConfiguration{}
			}
		}
	}
	s.fillAddresses(cfg)
	h := Health{Missing: "no kubelet runs here"}
	if s.HealthzAddress != "" {
		h.Ping = askPlain(ctx, s.HealthzAddress, "/healthz")
	}
	return h, nil
}
