// Package cluster connects a command to a cluster, by kubectl's flags, and to the agent of a node in it.
package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/fleet"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/cmd/internal/render"
)

// Flags select a cluster as kubectl's do.
type Flags struct {
	Context    string
	Kubeconfig string
}

// Add adds --context and --kubeconfig.
func (c *Flags) Add(cmd *cobra.Command) {
	cmd.PersistentFlags().StringVar(&c.Context, "context", "", "context of the kubeconfig (default the current one)")
	cmd.PersistentFlags().StringVar(&c.Kubeconfig, "kubeconfig", "",
		"kubeconfig to use (default $KUBECONFIG, ~/.kube/config, or the service account of a pod)")
	_ = cmd.RegisterFlagCompletionFunc("context", c.completeContext) // which was just added
}

// completeTime is how long a shell waits for the names of nodes.
const completeTime = 2 * time.Second

func (c *Flags) completeContext(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	names, _ := cli.Look("the kubeconfig", func() ([]string, error) {
		raw, err := c.loader().RawConfig()
		return slices.Sorted(maps.Keys(raw.Contexts)), err
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}

// CompleteNode offers the names of the cluster's nodes for the first argument, files for others.
func (c *Flags) CompleteNode(
	cmd *cobra.Command, args []string, _ string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTime)
	defer cancel()
	var names []string
	if cluster, _, _, err := c.Connect(); err == nil {
		names = cluster.Nodes(ctx)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// Connect reads the kubeconfig and returns a client, the URL of the server, and the name of the context, which is empty
// in a pod. A file system that hangs is an error.
func (c *Flags) Connect() (cluster *fleet.Cluster, server, name string, err error) {
	cfg, err := cli.Look(cmp.Or(c.Kubeconfig, "the kubeconfig"), func() (cfg *rest.Config, err error) {
		cfg, name, err = c.config()
		return cfg, err
	})
	if err != nil {
		return nil, "", "", cli.Usage("finding the API server: "+err.Error(),
			"name a kubeconfig with --kubeconfig FILE and its context with --context NAME")
	}
	cluster, err = cli.Look("a file that the kubeconfig names", func() (*fleet.Cluster, error) {
		return fleet.Connect(cfg)
	})
	if err != nil {
		err = cli.Usage(err.Error(), "look at the cluster and the user of this context in the kubeconfig")
	}
	return cluster, cfg.Host, name, err
}

func (c *Flags) loader() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.Kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: c.Context})
}

func (c *Flags) config() (*rest.Config, string, error) {
	loader := c.loader()
	cfg, err := loader.ClientConfig()
	if err != nil {
		message := strings.TrimPrefix(err.Error(), "invalid configuration: ")
		if clientcmd.IsEmptyConfig(err) || errors.Is(err, rest.ErrNotInCluster) {
			message = "no kubeconfig found"
		}
		return nil, "", errors.New(message)
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

// oldReport is the age of a report whose agent stands still: three times the default of its --interval.
const oldReport = 90 * time.Second

// Agent finds the agent of a node in the cluster that the flags mean.
func (c *Flags) Agent(ctx context.Context, node string) (*fleet.Cluster, *fleet.Agent, error) {
	cluster, _, _, err := c.Connect()
	if err != nil {
		return nil, nil, err
	}
	agent, err := cluster.Agent(ctx, node)
	return cluster, agent, err
}

// Show shows the report of another node, and maps its verdict to the exit code. more is the command that prints
// all of it.
func Show(
	ctx context.Context, env cli.Env, f *cli.Flags, r *checks.Report, more string,
	show func(io.Writer, *checks.Report, render.Options) error,
) error {
	if age := env.Now().Sub(r.GeneratedAt); age > oldReport {
		note := "this report is " + units.Duration(age) + " old: the agent is stuck, or a clock is wrong"
		r.Notes = append([]string{note}, r.Notes...)
		if f.Output == string(render.Brief) { // a line without notes
			_, _ = fmt.Fprintln(env.Err, "kdiag: "+note)
		}
	}
	if len(r.Causes) > 0 {
		r.Notes = append(r.Notes, "next steps are for "+r.Host)
	}
	how := document.Options(env, f)
	how.More = env.Named(more + " --details")
	if err := show(env.Out, r, how); err != nil {
		return err
	}
	return document.Exit(ctx, r.Status, f.FailOn)
}

// Error gives the error of a command about another node its hint.
func Error(ctx context.Context, err error) error {
	problem, ok := errors.AsType[*fleet.NodeError](err)
	switch {
	case ok:
		return cli.Usage(problem.Problem, problem.Hint)
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
		return cli.Fail(errors.New("interrupted"), cli.ExitUnknown, "")
	}
	return err
}
