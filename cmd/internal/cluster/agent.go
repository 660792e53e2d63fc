package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/fleet"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/cmd/internal/render"
)

// oldReport is the age of a report whose agent stands still: three times the default of its --interval.
const oldReport = 90 * time.Second

// Agent finds the agent of a node in the cluster that the flags mean.
func (c *Flags) Agent(ctx context.Context, node string) (*fleet.Cluster, *fleet.Agent, error) {
	cfg, _, err := c.Config()
	if err != nil {
		return nil, nil, err
	}
	cluster, err := c.Connect(cfg)
	if err != nil {
		return nil, nil, err
	}
	agent, err := cluster.Agent(ctx, node)
	return cluster, agent, err
}

// Show shows the report of another node, and maps its verdict to the exit code. more is the command that prints
// all of it.
func Show(
	ctx context.Context, env cli.Env, f *cli.Flags, r *checks.Report, more string,
	show func(io.Writer, *checks.Report, render.Options) error,
) error {
	if age := env.Now().Sub(r.GeneratedAt); age > oldReport {
		note := "this report is " + units.Duration(age) + " old: the agent is stuck, or a clock is wrong"
		r.Notes = append([]string{note}, r.Notes...)
		if f.Output == string(render.Brief) { // a line without notes
			_, _ = fmt.Fprintln(env.Err, "kdiag: "+note)
		}
	}
	if len(r.Causes) > 0 {
		r.Notes = append(r.Notes, "next steps are for "+r.Host)
	}
	how := document.Options(env, f)
	how.More = env.Named(more + " --details")
	if err := show(env.Out, r, how); err != nil {
		return err
	}
	return document.Exit(ctx, r.Status, f.FailOn)
}

// Error gives the error of a command about another node its hint.
func Error(ctx context.Context, err error) error {
	problem, ok := errors.AsType[*fleet.NodeError](err)
	switch {
	case ok:
		return cli.Usage(problem.Problem, problem.Hint)
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
		return cli.Fail(errors.New("interrupted"), cli.ExitUnknown, "")
	}
	return err
}
