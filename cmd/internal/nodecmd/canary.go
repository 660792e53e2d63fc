package nodecmd

import (
	"cmp"
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/diagnosis"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/crictl/fake"
)

// Timeouts of a canary, where they differ from those of reads: making a sandbox takes a few disk writes, processes
// and CNI, so a call of five seconds may be slow and not hung.
const (
	canaryTimeout    = time.Minute
	canaryRPCTimeout = 10 * time.Second
	leastCanary      = 3 * time.Second
)

type canaryOptions struct {
	cli.Flags
	image   string
	pull    bool
	cni     bool
	command []string
	again   string // this command, to be run again
}

// NewCanary returns kdiag canary.
func NewCanary(env cli.Env) *cobra.Command {
	opts := canaryOptions{Flags: cli.Flags{Timeout: canaryTimeout, RPCTimeout: canaryRPCTimeout}}
	cmd := &cobra.Command{
		Use:   "canary [flags] [-- COMMAND ARG...]",
		Short: "Create, start, stop and remove one pod sandbox and container, and time each step",
		Long: `Create one pod sandbox with a container, use it, and remove both; each call is timed and bounded. This
tests what reading cannot: whether the runtime can still start and stop pods, and which step is slow or hangs. More
than 5 s in all, image pulls apart, is DEGRADED.

It changes the node for about a second: one pod in namespace kdiag-canary, on the host's network (with --cni a pod
network), unprivileged, without mounts, with kdiag's label and none of the kubelet's. It runs sleep from
a busybox or alpine image on the node, else the pause image. It is also removed after an error, at --timeout, and when
interrupted; the next run removes what a killed run left. Nothing without the label is touched.

A running kubelet stops sandboxes that it does not know every 2 s. A canary stopped that way is tried again; if that
fails too, the answer is unknown. containerd 2 may then keep an idle shim of the stopped canary (17 MB; see host.shims
in kdiag node). While the kubelet skips pods because PLEG is unhealthy, it does not interfere.

With --cni, network add-ons that look for the pod in the API server, such as Calico and Multus, refuse the canary: the
answer is unknown.`,
		Example: `  kdiag canary
  kdiag canary --cni                                     # with a pod network: CNI too
  kdiag canary --image docker.io/library/busybox:1.36 --pull
  kdiag canary --image registry.example/app:1 -- /bin/app --wait
  kdiag canary --simulate runtime-slow                   # anywhere: the embedded runtime`,
		Args: func(cmd *cobra.Command, args []string) error {
			return cli.Reject(len(args) > 0 && cmd.ArgsLenAtDash() != 0,
				"kdiag canary takes no arguments but a command after --",
				"for example: kdiag canary --image IMAGE -- sleep 60")
		},
		PreRunE: opts.check,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.run(cmd.Context(), env)
		},
	}
	opts.AddRuntime(cmd, fake.Names())
	opts.AddOutput(cmd)
	fs := cmd.Flags()
	fs.Lookup("rpc-timeout").Usage = "count a call that takes longer as hung, and RunPodSandbox after twice as long"
	fs.StringVar(&opts.image, "image", "",
		"run this image (default: one on the node with a shell, else the pause image)")
	fs.BoolVar(&opts.pull, "pull", false, "pull --image if it is not on the node; it is kept")
	fs.BoolVar(&opts.cni, "cni", false, "use a pod network (CNI) instead of the host's")
	return cmd
}

// check reports the first flag that makes no sense.
func (o *canaryOptions) check(cmd *cobra.Command, args []string) error {
	o.command = args
	if err := cmp.Or(
		cli.Reject(o.image == "" && cmd.Flags().Changed("image"), "--image is empty",
			"leave it out to let kdiag pick one that is on the node"),
		cli.Reject(o.pull && o.image == "", "--pull needs --image",
			"name what to pull, for example --image docker.io/library/busybox:1.36"),
		cli.Reject(len(o.command) > 0 && o.image == "", "a command needs --image", "name the image that holds it"),
		cli.Reject(o.Timeout < leastCanary, "--timeout "+o.Timeout.String()+" leaves no time to clean up",
			"give at least "+leastCanary.String()),
	); err != nil {
		return err
	}
	o.again = cli.CommandLine(cmd, "canary",
		append(cli.RuntimeFlags(), "image", "cni", "timeout", "rpc-timeout")...)
	return o.Check(cmd, nil)
}

func (o *canaryOptions) run(ctx context.Context, env cli.Env) error {
	env = o.Host(env)
	facts := judge.CanaryFacts{CNI: o.cni, Command: o.command, Asked: o.image, Again: o.again}
	if err := diagnosis.TakeCanary(ctx, env, &o.Flags, &facts, o.pull); err != nil {
		return err
	}
	report := judge.NewCanaryReport(document.Header(env, "canary", checks.KindCanaryReport), facts)
	return document.Show(ctx, env, &o.Flags, report, report.Status, render.Canary)
}
