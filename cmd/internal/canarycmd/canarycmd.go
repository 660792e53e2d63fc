// Package canarycmd is kdiag canary: one new sandbox and container through their whole life, timed and cleaned up.
package canarycmd

import (
	"cmp"
	"time"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/target"
	"github.com/kdiag/kdiag/crictl/fake"
)

// Timeouts of a canary, where they differ from those of reads: making a sandbox takes a few disk writes, processes
// and CNI, so what takes five seconds may be slow and not hung.
const (
	defaultTimeout    = time.Minute
	defaultRPCTimeout = 10 * time.Second
	leastTimeout      = 3 * time.Second
)

type options struct {
	cli.Flags
	image   string
	pull    bool
	cni     bool
	command []string
	again   string // this command, to be run again
}

// NewCommand returns kdiag canary.
func NewCommand(env cli.Env) *cobra.Command {
	opts := options{Flags: cli.Flags{Timeout: defaultTimeout, RPCTimeout: defaultRPCTimeout}}
	cmd := &cobra.Command{
		Use:   "canary [flags] [-- COMMAND ARG...]",
		Short: "Run one new sandbox and container through their whole life, time each step, and clean up",
		Long: `Make one new pod sandbox and a container in it, use it, and remove both again; each call timed and
bounded. This shows what reading cannot: whether the runtime can still start and stop pods, and which step is slow or
hangs.

It changes the node for about a second: one pod in namespace kdiag-canary, on the host's network (with --cni its own),
unprivileged, without mounts, with a label of its own and none of the kubelet's. It runs sleep from an image that is
on the node already. It is removed again also after an error, at the end of --timeout, and after an interrupt; what a
killed run left, the next one removes once that run's time is over. Nothing without the label is touched.

A running kubelet stops sandboxes that it does not know, each 2 s. A canary that meets it is tried again, and when
that does not help, the answer is unknown. containerd 2 may then keep an idle shim of the stopped canary (17 MB; kdiag
node shows it at host.shims). While the kubelet skips pods because PLEG is unhealthy, it does not interfere.

With --cni a network add-on that looks the pod up in the API server, as Calico and Multus do, does not find the canary
there and refuses it: the answer is unknown.`,
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
			return run(cmd.Context(), env, opts)
		},
	}
	opts.AddRuntime(cmd, fake.Names())
	opts.AddOutput(cmd)
	fs := cmd.Flags()
	fs.StringVar(&opts.image, "image", "",
		"run this image (default: one on the node that holds sleep, else the pause image)")
	fs.BoolVar(&opts.pull, "pull", false, "pull --image if it is not on the node; it then stays there")
	fs.BoolVar(&opts.cni, "cni", false, "give the sandbox a pod network, by CNI, instead of the host's")
	return cmd
}

// check reports the first flag that makes no sense.
func (o *options) check(cmd *cobra.Command, args []string) error {
	o.command = args
	if err := cmp.Or(
		cli.Reject(o.image == "" && cmd.Flags().Changed("image"), "--image is empty",
			"leave it out to let kdiag pick one that is on the node"),
		cli.Reject(o.pull && o.image == "", "--pull needs --image",
			"name what to pull, for example --image docker.io/library/busybox:1.36"),
		cli.Reject(len(o.command) > 0 && o.image == "", "a command needs --image", "name the image that holds it"),
		cli.Reject(o.Timeout < leastTimeout, "--timeout "+o.Timeout.String()+" leaves no time to clean up",
			"give at least "+leastTimeout.String()),
	); err != nil {
		return err
	}
	o.again = target.CommandLine(cmd, "canary",
		append(target.RuntimeFlags(), "image", "cni", "timeout", "rpc-timeout")...)
	return o.Check(cmd, nil)
}
