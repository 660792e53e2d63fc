package connection

import (
	"cmp"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/cmd/internal/cli"
)

// KubeletFlags are the flags for access to the kubelet's server.
type KubeletFlags struct {
	tokenFile   string
	certificate string
	key         string
	NoAPIServer bool // --no-api-server
}

// AddKubeletFlags adds these flags. withoutAPIServer is the usage of --no-api-server.
func (k *KubeletFlags) AddKubeletFlags(cmd *cobra.Command, withoutAPIServer string) {
	fs := cmd.Flags()
	fs.StringVar(&k.tokenFile, "kubelet-token", "", "a file with a bearer token for the kubelet's server")
	fs.StringVar(&k.certificate, "kubelet-cert", "",
		"a client certificate (PEM) for the kubelet's server; default: the node's own")
	fs.StringVar(&k.key, "kubelet-key", "", "the key of --kubelet-cert, when it is not in the same file")
	fs.BoolVar(&k.NoAPIServer, "no-api-server", false, withoutAPIServer)
}

// CheckKubeletFlags returns an error for the first invalid flag. It makes the paths absolute.
func (k *KubeletFlags) CheckKubeletFlags(cmd *cobra.Command) error {
	hint := "see " + cmd.CommandPath() + " --help"
	return cmp.Or(
		cli.RejectEmpty(cmd, "kubelet-token", "kubelet-cert", "kubelet-key"),
		cli.Regular("kubelet-token", &k.tokenFile, hint),
		cli.Regular("kubelet-cert", &k.certificate, hint),
		cli.Regular("kubelet-key", &k.key, hint),
		cli.Reject(k.key != "" && k.certificate == "", "--kubelet-key without --kubelet-cert",
			"name both, or leave both out"),
	)
}

// maxToken bounds a file with a token, in bytes: service account tokens have one to two thousand.
const maxToken = 64 << 10

// Credentials reads the files that the flags name. The error is one of usage.
func (k *KubeletFlags) Credentials() (kubelet.Credentials, error) {
	c := kubelet.Credentials{CertFile: k.certificate, KeyFile: k.key}
	if k.tokenFile == "" {
		return c, nil
	}
	data, err := cli.ReadFile(k.tokenFile, maxToken)
	c.Token = strings.TrimSpace(string(data))
	if err == nil && c.Token == "" {
		err = errors.New("the file is empty")
	}
	if err != nil {
		err = cli.Usage("--kubelet-token: "+err.Error(), "")
	}
	return c, err
}
