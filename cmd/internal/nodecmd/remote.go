package nodecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/fleet"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/cmd/internal/target"
	"github.com/kdiag/kdiag/plegbench"
)

const (
	startTime = 45 * time.Second // for a pod, with its image
	runTime   = time.Minute      // for kdiag node in it, and to read its log
)

// A remote has the flags of kdiag node NODE.
type remote struct {
	cluster target.Cluster
	image   string
	start   time.Duration
}

func remoteFlags() []string { return []string{"context", "kubeconfig", "image", "start-timeout"} }

func (r *remote) addRemote(cmd *cobra.Command) {
	r.cluster.AddCluster(cmd)
	cmd.Flags().StringVar(&r.image, "image", "",
		"image of kdiag for a pod on NODE (default that of an agent in the cluster)")
	cmd.Flags().DurationVar(&r.start, "start-timeout", startTime, "time for a pod on NODE to start")
}

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

// lookAt shows what the agent of another node last saw, else what kdiag node finds there in a pod.
func (o *options) lookAt(cmd *cobra.Command, env cli.Env, node string) error {
	asking, _ := o.Budget()
	ctx, cancel := context.WithTimeout(cmd.Context(), asking)
	defer cancel()
	r := &checks.Report{}
	cluster, agent, err := o.cluster.Agent(ctx, node)
	why, _ := errors.AsType[*fleet.NodeError](err)
	switch {
	case err == nil:
		err = agent.Read(ctx, "report", nil, checks.KindReport, r)
	case why != nil && why.NoAgent:
		progress := target.NewProgress(env)
		progress.Update(plegbench.Progress{Phase: "running kdiag in a pod on " + node})
		r, err = cluster.Debug(ctx, fleet.DebugOptions{
			Node: node, Image: o.image, Start: o.start, Run: min(cli.DefaultTimeout, (o.Timeout-o.start)/2),
			Left: func(problem string) { _, _ = fmt.Fprintln(env.Err, "kdiag: "+render.Printable(problem)) },
		})
		progress.Done()
	}
	if err != nil {
		return target.RemoteError(cmd.Context(), err)
	}
	more := target.CommandLine(cmd, "node "+target.Quote(node), remoteFlags()...)
	return target.ShowRemote(ctx, env, &o.Flags, r, more, render.Node)
}
