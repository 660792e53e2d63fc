// Package proxycmd is kdiag proxy: faults in front of a real runtime, for crictl, a kubelet or a test.
package proxycmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/connection"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/fault"
)

type options struct {
	cli.Flags
	listen   string
	scenario string
	file     string
	faults   []string
}

// NewCommand returns kdiag proxy.
func NewCommand(env cli.Env) *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Put faults in front of a real runtime: delay, hang, fail, drop or oversize its replies",
		Long: `Listen on a socket and pass every CRI call on to the runtime behind it, unchanged, except calls with a
fault. Point crictl or a kubelet at the proxy's socket to see how they react to a faulty runtime; the runtime itself is
not touched.

Give faults one by one (--fault; --fault help explains the fields), in a YAML file with the lists latency, faults and
conditions of a scenario (--faults), or as a scenario (--scenario). All times count from the start. The first fault that
matches applies, those of --fault first.

Runs until interrupted, then prints how many calls passed and how many were faulted.`,
		Example: `  kdiag proxy --fault 'rpc: ContainerStatus, hang: true, object: {pod: web-*}, until: 1m'
  kdiag proxy --scenario runtime-slow -v
  crictl --runtime-endpoint unix:///tmp/kdiag-proxy.sock ps`,
		Args:    cobra.NoArgs,
		PreRunE: opts.check,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), opts.Host(env), opts)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&opts.listen, "listen", "/tmp/kdiag-proxy.sock", "where to listen: unix:///path or a bare path")
	opts.AddEndpoint(cmd)
	opts.AddHostRoot(cmd)
	fs.StringVar(&opts.scenario, "scenario", "",
		"use the faults, latencies and conditions of a scenario: a name or a YAML file; help lists the names")
	fs.StringVar(&opts.file, "faults", "", "use the faults, latencies and conditions of a YAML file")
	fs.StringArrayVar(&opts.faults, "fault", nil,
		"one fault, such as 'rpc: ListContainers, delay: 5s'; may be repeated; help explains the fields")
	opts.AddVerbose(cmd, "print a line for each faulted call")
	_ = cmd.RegisterFlagCompletionFunc("scenario",
		cobra.FixedCompletions(append([]string{"help"}, fake.Names()...), cobra.ShellCompDirectiveDefault))
	return cmd
}

func (o *options) check(cmd *cobra.Command, _ []string) error {
	o.Timeout, o.RPCTimeout = cli.DefaultTimeout, cli.DefaultRPCTimeout
	return cmp.Or(
		cli.RejectEmpty(cmd, "listen", "scenario", "faults"),
		o.Check(cmd, nil),
	)
}

func run(ctx context.Context, env cli.Env, opts options) error {
	switch {
	case len(opts.faults) == 1 && opts.faults[0] == "help":
		_, err := fmt.Fprint(env.Out, faultHelp)
		return err
	case opts.scenario == "help":
		return connection.PrintScenarios(env.Out)
	}
	plan, err := opts.plan(ctx)
	if err != nil {
		return err
	}
	listen, err := connection.ParseEndpoint("--listen", opts.listen)
	if err != nil {
		return err
	}
	t, err := connection.Open(ctx, env, &opts.Flags)
	if _, ok := errors.AsType[*crictl.NoEndpointError](err); ok {
		return cli.Usage("no runtime socket was found",
			"name one with --runtime-endpoint; kdiag runtime serve runs the embedded runtime on one")
	}
	if err != nil {
		return err
	}
	defer t.Close()
	if _, err := connection.Probe(ctx, env, t.Socket); err != nil {
		return err
	}
	if err := cli.Reject(sameSocket(listen, t.Socket), "--listen is the socket of the runtime itself",
		"choose another path, such as /tmp/kdiag-proxy.sock"); err != nil {
		return err
	}
	out := &printer{out: env.Err, start: time.Now()}
	cfg := fault.Config{Backend: t.Socket, Listen: listen, Faults: plan.Faults, Latency: plan.Latency}
	if opts.Verbose > 0 {
		cfg.Log = out.injected
	}
	proxy, err := fault.New(cfg)
	if err != nil {
		return cli.Fail(err, cli.ExitUnknown, "choose another path with --listen")
	}
	proxy.SetConditions(plan.Conditions)
	if plan.Socket == fake.SocketRefuse {
		if err := proxy.SetDown(true); err != nil {
			return err
		}
	}
	out.begin(listen, t.Endpoint, plan)
	err = proxy.Run(ctx)
	if printErr := summary(env.Out, proxy.Stats()); err == nil {
		err = printErr
	}
	if err != nil {
		return cli.Fail(err, cli.ExitProblem, "")
	}
	return nil
}

// sameSocket reports whether two endpoints are one file, whose removal would cut off the runtime.
func sameSocket(a, b string) bool {
	first, err := os.Stat(strings.TrimPrefix(a, "unix://"))
	second, otherErr := os.Stat(strings.TrimPrefix(b, "unix://"))
	// A runtime that is down may have no socket.
	return a == b || err == nil && otherErr == nil && os.SameFile(first, second)
}
