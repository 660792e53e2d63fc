// Package nodecmd is kdiag node: every check on this node, and the verdict.
package nodecmd

import (
	"cmp"
	"context"
	"errors"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/cmd/internal/target"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/plegbench"
)

type options struct {
	cli.Flags
	tokenFile   string
	certificate string
	key         string
	noAPIServer bool
	deep        bool
}

// NewCommand returns kdiag node.
func NewCommand(env cli.Env) *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Check everything around PLEG on this node: host, systemd, runtime, kubelet, logs",
		Long: `Look at all that makes a node NotReady: pressure, disks, mounts, stuck processes, limits, cgroups and
the clock of the host; systemd and its units; the runtime, as kdiag pleg does; the kubelet's settings, health,
certificates and its way to the API server; the logs of the last minutes. Print what is not ok in a line each (--all:
every check), then the verdict.

Reads only, but for a few writes of 4 KiB into an unlinked file, which time the runtime's disk. Whatever hangs is left
behind and named. As root it sees everything; without, each check says what it could not see.

From a pod: privileged, with hostPID, hostNetwork and the host's root mounted, kdiag node --host-root /host.

The kubelet's server refuses the node's own certificate (403). A token that opens it, once for the cluster:
  kubectl create serviceaccount -n kube-system kdiag
  kubectl create clusterrole kdiag --verb=get --resource=nodes/metrics,nodes/healthz,nodes/configz
  kubectl create clusterrolebinding kdiag --clusterrole=kdiag --serviceaccount=kube-system:kdiag
  kubectl create token -n kube-system kdiag > FILE
Before Kubernetes 1.33 /healthz and /configz need nodes/proxy, which also allows exec.`,
		Example: `  kdiag node                        # on the sick node
  kdiag node -o brief               # one line
  kdiag node --host-root /host      # from a privileged pod
  kdiag node --kubelet-token FILE   # with a token that may read nodes/metrics and nodes/healthz`,
		Args:    cobra.NoArgs,
		PreRunE: opts.check,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), env, opts)
		},
	}
	opts.AddRuntime(cmd, fake.Names())
	opts.AddOutput(cmd)
	fs := cmd.Flags()
	fs.StringVar(&opts.tokenFile, "kubelet-token", "", "a file with a bearer token for the kubelet's server")
	fs.StringVar(&opts.certificate, "kubelet-cert", "",
		"a client certificate (PEM) for the kubelet's server; default: the node's own")
	fs.StringVar(&opts.key, "kubelet-key", "", "the key of --kubelet-cert, when it is not in the same file")
	fs.BoolVar(&opts.noAPIServer, "no-api-server", false,
		"do not ask the API server that the kubelet's kubeconfig names")
	fs.BoolVar(&opts.Details, "details", false, "print all evidence, steps and measurements")
	fs.BoolVar(&opts.All, "all", false, "print every check, also those that are ok")
	fs.BoolVar(&opts.deep, "deep", false, "ask for the status of every container, however many, until --timeout")
	return cmd
}

func (o *options) check(cmd *cobra.Command, _ []string) error {
	const hint = "see kdiag node --help"
	return cmp.Or(
		cli.RejectEmpty(cmd, "kubelet-token", "kubelet-cert", "kubelet-key"),
		cli.Regular("kubelet-token", &o.tokenFile, hint),
		cli.Regular("kubelet-cert", &o.certificate, hint),
		cli.Regular("kubelet-key", &o.key, hint),
		cli.Reject(o.key != "" && o.certificate == "", "--kubelet-key without --kubelet-cert",
			"name both, or leave both out"),
		o.Check(cmd, nil),
	)
}

// maxToken bounds a file with a token, in bytes: service account tokens have one to two thousand.
const maxToken = 64 << 10

func (o *options) credentials() (kubelet.Credentials, error) {
	c := kubelet.Credentials{CertFile: o.certificate, KeyFile: o.key}
	if o.tokenFile == "" {
		return c, nil
	}
	data, err := cli.ReadFile(o.tokenFile, maxToken)
	c.Token = strings.TrimSpace(string(data))
	if err == nil && c.Token == "" {
		err = errors.New("the file is empty")
	}
	if err != nil {
		err = cli.Usage("--kubelet-token: "+err.Error(), "")
	}
	return c, err
}

// garbagePercent makes the collector work more often than usual: a node that is short of memory has more use for some
// MiB than for a tenth of a second of CPU.
const garbagePercent = 25

func run(ctx context.Context, env cli.Env, opts options) error {
	debug.SetGCPercent(garbagePercent)
	credentials, err := opts.credentials()
	if err != nil {
		return err
	}
	return target.Diagnose(ctx, env, &opts.Flags, target.Question{
		Name:    "node",
		Measure: plegbench.Options{Samples: 5, Pause: 50 * time.Millisecond, Deep: opts.deep},
		Limits:  checks.DefaultLimits(),
		Looks:   target.Looks{All: true, Credentials: credentials, APIServer: !opts.noAPIServer},
	}, judge.NewReport, render.Node)
}
