package nodecmd

import (
	"cmp"
	"context"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/diagnosis"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/plegbench"
)

type plegOptions struct {
	cli.Flags
	samples       int
	deep          bool
	exitedWarning int
	noAPIServer   bool
	stacks        bool
}

// NewPleg returns kdiag pleg.
func NewPleg(env cli.Env) *cobra.Command {
	var opts plegOptions
	cmd := &cobra.Command{
		Use:   "pleg",
		Short: "Say whether PLEG is healthy on this node, why not, and what to do next",
		Long: `Do what the kubelet's PLEG does each second, from outside and with a deadline on every call: list all pod
sandboxes and containers, ask for the status of each, and work out how long the kubelet's own serial relist takes.
Then name the cause, the culprit and the next command.

Reads only. Needs the runtime's socket, so usually root; neither the API server nor the kubelet. Where the kubelet's
client certificate opens the API server, this node's own object and lease are read too.

With --stacks the runtime writes a goroutine dump while a call hangs: kdiag sends SIGUSR1 to its daemon (into the log
and /tmp; nothing stops) or reads its debug socket, sends it to shims that are stuck too, and reads the
kubelet's goroutines from its endpoint where its loop stands still. The report then names the goroutine that holds up
the others, and why.`,
		Example: `  kdiag pleg                           # on the sick node
  kdiag pleg --simulate inspect-hang   # anywhere: the embedded runtime with one hung container
  kdiag pleg --from x.tar.zst          # anywhere, out of an archive of kdiag bundle
  kdiag pleg --stacks                  # and who holds the lock: takes a goroutine dump of the runtime
  kdiag pleg -o brief                  # one line, for the node problem detector`,
		Args:    cobra.NoArgs,
		PreRunE: opts.check,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.run(cmd.Context(), env)
		},
	}
	opts.AddRuntime(cmd, fake.Names())
	opts.AddFrom(cmd)
	cli.AddAdvisories(cmd)
	opts.AddOutput(cmd)
	opts.AddWatch(cmd)
	fs := cmd.Flags()
	fs.IntVar(&opts.samples, "samples", 5, "number of relists to time")
	fs.BoolVar(&opts.deep, "deep", false, "ask for the status of every container, however many, until --timeout")
	fs.BoolVar(&opts.Details, "details", false, "print all evidence, steps, measurements and checks")
	fs.BoolVar(&opts.stacks, "stacks", false,
		"take goroutine dumps too: SIGUSR1 to the runtime's daemon and stuck shims, or its debug socket")
	fs.BoolVar(&opts.noAPIServer, "no-api-server", false,
		"do not ask the API server that the kubelet's kubeconfig names")
	fs.IntVar(&opts.exitedWarning, "exited-warning", checks.DefaultLimits().ExitedWarning,
		"warn from this number of exited containers on")
	return cmd
}

func (o *plegOptions) check(cmd *cobra.Command, _ []string) error {
	if err := cmp.Or(
		cli.Reject(o.samples < 1 || o.samples > 1000, "--samples must be between 1 and 1000",
			"kdiag relist times long series"),
		cli.Reject(o.exitedWarning < 1, "--exited-warning must be at least 1", "leave it out for the default of 1000"),
	); err != nil {
		return err
	}
	return cmp.Or(o.CheckFrom(cmd, nil), o.Check(cmd, nil))
}

// plegGarbage makes the collector work more often than usual. On a sick node memory is worth more than the
// CPU time that it costs, above all where thousands of containers are asked for their status.
const plegGarbage = 80

func (o *plegOptions) run(ctx context.Context, env cli.Env) error {
	debug.SetGCPercent(plegGarbage)
	limits := checks.DefaultLimits()
	limits.ExitedWarning = o.exitedWarning
	return diagnosis.Report(ctx, env, &o.Flags, diagnosis.Request{
		Command: "pleg",
		Measure: plegbench.Options{Samples: o.samples, Pause: 50 * time.Millisecond, Deep: o.deep},
		Limits:  limits,
		Probes:  diagnosis.Probes{Cheap: true, APIServer: !o.noAPIServer, Stacks: o.stacks},
	}, render.Report)
}
