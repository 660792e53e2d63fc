// Package nodecmd has the commands that look at one node: kdiag node, with every check and the verdict, kdiag pleg,
// relist, runtime and canary.
package nodecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/fleet"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/cluster"
	"github.com/kdiag/kdiag/cmd/internal/connection"
	"github.com/kdiag/kdiag/cmd/internal/diagnosis"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/plegbench"
)

type options struct {
	cli.Flags
	connection.KubeletFlags
	deep   bool
	stacks bool
	canary bool

	// With NODE:
	cluster cluster.Flags
	image   string
	start   time.Duration
}

// NewCommand returns kdiag node.
func NewCommand(env cli.Env) *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use:   "node [NODE]",
		Short: "Check everything around PLEG on this node: host, systemd, runtime, kubelet, logs",
		Long: `Look at all that makes a node NotReady: pressure, disks, mounts, stuck processes, limits, cgroups and
the clock of the host; systemd and its units; the runtime, as kdiag pleg does; the kubelet's settings, health,
certificates and its way to the API server; the logs of the last minutes. Print what is not ok in a line each (--all:
every check), then the verdict.

Reads only, but for a few writes of 4 KiB into an unlinked file, which time the runtime's disk. Whatever hangs is left
behind and named. As root it sees everything; without, each check says what it could not see.

With --stacks the runtime writes a goroutine dump while a call hangs: kdiag sends SIGUSR1 to its daemon (into the log
and /tmp; nothing stops) or reads its debug socket, sends it to shims that are stuck too, and reads the
kubelet's goroutines from its endpoint. The report then names the goroutine that holds up the others, and why.

With --canary one pod is created and removed, as kdiag canary does: its failure proves that no pod can start.

From a pod: privileged, with hostPID, hostNetwork and the host's root mounted, kdiag node --host-root /host.

The kubelet's server refuses the node's own certificate (403). A token that opens it, once for the cluster:
  kubectl create serviceaccount -n kube-system kdiag
  kubectl create clusterrole kdiag --verb=get --resource=nodes/metrics,nodes/healthz,nodes/configz,nodes/pods
  kubectl create clusterrolebinding kdiag --clusterrole=kdiag --serviceaccount=kube-system:kdiag
  kubectl create token -n kube-system kdiag > FILE
Before Kubernetes 1.33 /healthz and /configz need nodes/proxy, which also allows exec.

With NODE another node of the cluster is looked at, from anywhere: what its agent last saw, as kdiag fleet report has
it; without an agent by a pod there, with the rights that the agent has, which is removed again. Where the node starts
no pods, the commands are printed that copy kdiag to it.`,
		Example: `  kdiag node                        # on the sick node
  kdiag node -o brief               # one line
  kdiag node --host-root /host      # from a privileged pod
  kdiag node --from x.tar.zst       # anywhere, out of an archive of kdiag bundle
  kdiag node --kubelet-token FILE   # with a token that may read nodes/metrics and nodes/healthz
  kdiag node worker-7               # another node, by its agent or a pod`,
		Args:    cobra.MaximumNArgs(1),
		PreRunE: opts.check,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return opts.remote(cmd, env, args[0])
			}
			return run(cmd.Context(), env, opts)
		},
	}
	opts.AddRuntime(cmd, fake.Names())
	opts.AddFrom(cmd)
	cli.AddAdvisories(cmd)
	opts.AddOutput(cmd)
	opts.AddWatch(cmd)
	opts.cluster.Add(cmd)
	cmd.ValidArgsFunction = opts.cluster.CompleteNode
	fs := cmd.Flags()
	fs.StringVar(&opts.image, "image", "",
		"image of kdiag for a pod on NODE (default that of the DaemonSet kdiag in the namespace kdiag, "+
			"else the published image of this release)")
	fs.DurationVar(&opts.start, "start-timeout", startTime, "time for a pod on NODE to start")
	opts.AddKubeletFlags(cmd, "do not ask the API server that the kubelet's kubeconfig names")
	fs.BoolVar(&opts.stacks, "stacks", false,
		"take goroutine dumps too: SIGUSR1 to the runtime's daemon and stuck shims, and the kubelet's endpoint")
	fs.BoolVar(&opts.canary, "canary", false,
		"try whether a pod can start: create one as kdiag canary --cni does, and remove it")
	fs.BoolVar(&opts.Details, "details", false, "print all evidence, steps and measurements")
	fs.BoolVar(&opts.All, "all", false, "print every check, also those that are ok")
	fs.BoolVar(&opts.deep, "deep", false, "ask for the status of every container, however many, until --timeout")
	return cmd
}

func (o *options) check(cmd *cobra.Command, args []string) error {
	return cmp.Or(cli.Reject(o.canary && (o.Watch || o.From != ""), "--canary excludes --watch and --from",
		"leave one of them out"), o.checkRemote(cmd, args), o.CheckFrom(cmd, nil), o.CheckKubeletFlags(cmd),
		o.Check(cmd, nil))
}

// garbagePercent makes the collector work more often than usual: a node that is short of memory has more use for some
// MiB than for a tenth of a second of CPU.
const garbagePercent = 25

func run(ctx context.Context, env cli.Env, opts options) error {
	debug.SetGCPercent(garbagePercent)
	credentials, err := opts.Credentials()
	if err != nil {
		return err
	}
	return diagnosis.Report(ctx, env, &opts.Flags, diagnosis.Request{
		Command: "node",
		Measure: plegbench.Options{Samples: 5, Pause: 50 * time.Millisecond, Deep: opts.deep},
		Limits:  checks.DefaultLimits(),
		Probes:  diagnosis.Probes{All: true, Credentials: credentials, APIServer: !opts.NoAPIServer, Stacks: opts.stacks},
		Canary:  opts.canary,
	}, render.Node)
}

const (
	startTime = 45 * time.Second // for a pod, with its image
	runTime   = time.Minute      // for kdiag node in it, and to read its log
)

func remoteFlags() []string { return []string{"context", "kubeconfig", "image", "start-timeout"} }

// checkRemote reports a flag that makes no sense with NODE, or without.
func (o *options) checkRemote(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		for _, name := range remoteFlags() {
			if cmd.Flags().Changed(name) {
				return cli.Usage("--"+name+" is for another node", "name it: "+cmd.CommandPath()+" NODE")
			}
		}
		return nil
	}
	switch given := cmd.Flags().Changed; {
	case !given("timeout"):
		o.Timeout = o.start + runTime
	case !given("start-timeout"):
		o.start = min(o.start, o.Timeout/2)
	}
	other := cli.Other(cmd, remoteFlags()...)
	return cmp.Or(
		cli.Reject(args[0] == "", "NODE is empty", "kubectl get nodes lists the nodes"),
		cli.Reject(other != "", "NODE excludes "+other, "leave out "+other+", or run kdiag node on that node"),
		cli.RejectEmpty(cmd, "image", "kubeconfig", "context"),
		cli.Reject(o.start < time.Second || o.start >= o.Timeout,
			fmt.Sprintf("--start-timeout %s is not between 1s and --timeout %s", o.start, o.Timeout),
			"leave out --timeout, or for example --start-timeout "+startTime.String()),
	)
}

// remote shows the last report of another node's agent, or the report of a pod that runs kdiag node there.
func (o *options) remote(cmd *cobra.Command, env cli.Env, node string) error {
	ctx, cancel := o.Within(cmd.Context())
	defer cancel()
	r := &checks.Report{}
	api, agent, err := o.cluster.Agent(ctx, node)
	why, _ := errors.AsType[*fleet.NodeError](err)
	switch {
	case err == nil:
		err = agent.Read(ctx, "report", nil, checks.KindReport, r)
	case why != nil && why.NoAgent:
		progress := document.NewProgress(env)
		progress.Update(plegbench.Progress{Phase: "running kdiag in a pod on " + node})
		r, err = api.Debug(ctx, fleet.DebugOptions{
			Node: node, Image: o.image, Released: cli.Image(), Start: o.start,
			Run:  min(cli.DefaultTimeout, (o.Timeout-o.start)/2),
			Left: func(problem string) { _, _ = fmt.Fprintln(env.Err, "kdiag: "+render.Printable(problem)) },
		})
		progress.Done()
	}
	if err != nil {
		return cluster.Error(cmd.Context(), err)
	}
	more := cli.CommandLine(cmd, "node "+cli.Quote(node), remoteFlags()...)
	return cluster.Show(ctx, env, &o.Flags, r, more, render.Node)
}
