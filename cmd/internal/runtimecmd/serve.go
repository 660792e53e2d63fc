package runtimecmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/connection"
	"github.com/kdiag/kdiag/crictl/fake"
)

type serveOptions struct {
	simulate string
	listen   string
}

func newServe(env cli.Env) *cobra.Command {
	var opts serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Keep the embedded runtime up on a socket, for crictl, a kubelet or a test",
		Long: `Serve CRI v1 on a unix socket as the scenario says, until interrupted. The runtime keeps real state:
sandboxes, containers and images are created, run and removed as clients ask, but no process is ever started.

A scenario is one of the built-in ones (--simulate help lists them) or a YAML file:

  name: slow-disk
  summary: every status takes a second, and one sandbox's hangs
  latency:
    - {rpc: "*Status", base: 1s, jitter: 300ms}
  faults:
    - {rpc: PodSandboxStatus, object: {pod: web-3}, hang: true, from: 10s}
  pods:
    - {name: web, count: 20, containers: [{name: app, exited: 3}, {name: proxy}]}`,
		Example: `  kdiag runtime serve --simulate healthy --listen /tmp/cri.sock &
  crictl --runtime-endpoint unix:///tmp/cri.sock pods`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd.Context(), env, opts)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&opts.simulate, "simulate", "healthy", "scenario: a name or a YAML file; help lists the names")
	fs.StringVar(&opts.listen, "listen", "/tmp/kdiag.sock", "where to listen: unix:///path or a bare path")
	fs.StringVarP(&opts.listen, "runtime-endpoint", "r", "/tmp/kdiag.sock", "the same as --listen")
	cmd.MarkFlagsMutuallyExclusive("listen", "runtime-endpoint")
	_ = cmd.RegisterFlagCompletionFunc("simulate",
		cobra.FixedCompletions(fake.Names(), cobra.ShellCompDirectiveDefault))
	return cmd
}

func serve(ctx context.Context, env cli.Env, opts serveOptions) error {
	scenario, err := connection.Scenario(ctx, opts.simulate)
	if err != nil {
		return err
	}
	url, err := connection.ParseEndpoint("--listen", opts.listen)
	if err != nil {
		return err
	}
	server, err := fake.New(scenario)
	if err != nil {
		return cli.Usage(err.Error(), "kdiag runtime serve --help shows the format")
	}
	stop, err := fake.Listen(ctx, server, strings.TrimPrefix(url, "unix://"))
	if err != nil {
		return cli.Fail(fmt.Errorf("listening on %s: %w", url, err), cli.ExitUnknown,
			"choose another path with --listen")
	}
	defer stop()
	if _, err := fmt.Fprintf(env.Err, "kdiag: scenario %s on %s, until interrupted\n", scenario.Name, url); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
