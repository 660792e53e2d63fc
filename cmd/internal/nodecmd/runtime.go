package nodecmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/connection"
	"github.com/kdiag/kdiag/cmd/internal/diagnosis"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/plegbench"
)

// NewRuntime returns kdiag runtime.
func NewRuntime(env cli.Env) *cobra.Command {
	var flags cli.Flags
	cmd := &cobra.Command{
		Use:   "runtime",
		Short: "Probe the runtime's socket: which one and why, conditions, latency of each read-only RPC",
		Long: `Find the runtime's socket and report why that one was chosen; probe it; then ask each read-only RPC
once, side by side, each with its own deadline. This distinguishes a daemon that is down from one that is stopped,
deadlocked, misconfigured or slow.

Reads only.`,
		Example: `  kdiag runtime
  kdiag runtime --runtime-endpoint /run/crio/crio.sock -o json
  kdiag runtime serve --simulate exited-flood --listen /tmp/cri.sock`,
		Args:    cobra.NoArgs,
		PreRunE: flags.Check,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return probe(cmd.Context(), env, &flags)
		},
	}
	flags.AddRuntime(cmd, fake.Names())
	flags.AddOutput(cmd)
	flags.AddDetails(cmd)
	cmd.AddCommand(newServe(env))
	return cmd
}

func probe(ctx context.Context, env cli.Env, f *cli.Flags) error {
	env = f.Host(env)
	node, err := diagnosis.Collect(ctx, env, f, diagnosis.Request{
		Command: "runtime", Measure: plegbench.Options{Samples: 1, NoSweep: true}, Limits: checks.RuntimeLimits(),
	})
	if err != nil {
		return err
	}
	doc := judge.NewRuntimeProbe(document.Header(env, "runtime", ""), node.Facts)
	document.Complete(doc, node.Problems)
	return document.Show(ctx, env, f, doc, doc.Status, render.RuntimeProbe)
}

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
