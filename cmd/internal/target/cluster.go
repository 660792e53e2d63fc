package target

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kdiag/kdiag/cmd/internal/cli"
)

// A Cluster is which cluster a command means, by kubectl's flags.
type Cluster struct {
	Context    string
	Kubeconfig string
}

// AddCluster adds --context and --kubeconfig.
func (c *Cluster) AddCluster(cmd *cobra.Command) {
	cmd.PersistentFlags().StringVar(&c.Context, "context", "", "context of the kubeconfig (default the current one)")
	cmd.PersistentFlags().StringVar(&c.Kubeconfig, "kubeconfig", "",
		"kubeconfig to use (default $KUBECONFIG, ~/.kube/config, or the service account of a pod)")
}

// Config reads the kubeconfig, and returns what its context says and the context's name, which is empty in a pod.
func (c *Cluster) Config() (*rest.Config, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.Kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: c.Context})
	cfg, err := loader.ClientConfig()
	if err != nil {
		message := strings.TrimPrefix(err.Error(), "invalid configuration: ")
		if clientcmd.IsEmptyConfig(err) || errors.Is(err, rest.ErrNotInCluster) {
			message = "no kubeconfig found"
		}
		return nil, "", cli.Usage("finding the API server: "+message,
			"name a kubeconfig with --kubeconfig FILE and its context with --context NAME")
	}
	raw, err := loader.RawConfig()
	if err != nil || len(raw.Contexts) == 0 {
		return cfg, "", nil // a pod's service account
	}
	if c.Context != "" {
		return cfg, c.Context, nil
	}
	return cfg, raw.CurrentContext, nil
}
