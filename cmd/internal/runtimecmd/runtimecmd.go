// Package runtimecmd is kdiag runtime, the probe of the runtime socket, and kdiag runtime serve, the embedded runtime.
package runtimecmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/diagnosis"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/plegbench"
)

// NewCommand returns kdiag runtime.
func NewCommand(env cli.Env) *cobra.Command {
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
			return run(cmd.Context(), env, &flags)
		},
	}
	flags.AddRuntime(cmd, fake.Names())
	flags.AddOutput(cmd)
	flags.AddDetails(cmd)
	cmd.AddCommand(newServe(env))
	return cmd
}

func run(ctx context.Context, env cli.Env, f *cli.Flags) error {
	env = f.Host(env)
	node, err := diagnosis.Collect(ctx, env, f, diagnosis.Request{
		Command: "runtime", Measure: plegbench.Options{Samples: 1, NoSweep: true}, Limits: checks.RuntimeLimits(),
	})
	if err != nil {
		return err
	}
	probe := judge.NewRuntimeProbe(document.Header(env, "runtime", ""), node.Facts)
	document.Complete(probe, node.Problems)
	if err := render.RuntimeProbe(env.Out, probe, document.Options(env, f)); err != nil {
		return err
	}
	return document.Exit(ctx, probe.Status, f.FailOn)
}
