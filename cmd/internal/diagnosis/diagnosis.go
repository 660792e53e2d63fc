// Package diagnosis collects the facts of a node and reports what is wrong with it: once, again and again with --watch,
// or from a bundle with --from.
package diagnosis

import (
	"context"
	"io"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/plegbench"
)

// A Request says what a command collects.
type Request struct {
	Command string // without kdiag
	Measure plegbench.Options
	Limits  checks.Limits
	Probes  Probes
	Canary  bool // a canary is run too
}

// Probes select what is read of the node besides the runtime's socket. The zero value selects nothing.
type Probes struct {
	Cheap       bool // the probes that take little, for kdiag pleg
	All         bool
	Credentials kubelet.Credentials // for the kubelet's server
	APIServer   bool                // the server in the kubelet's kubeconfig may be asked
	// Stacks selects goroutine dumps: of the runtime and of stuck shims, and of the kubelet with All or when its sync
	// loop stands still.
	Stacks  bool
	Records bool // since when the agent has recorded what goes on
}

// Show writes a report, as render.Report does.
type Show = func(io.Writer, *checks.Report, render.Options) error

// Report is kdiag pleg and kdiag node: it collects the facts, judges them, shows the report and maps its verdict to the
// exit code.
func Report(ctx context.Context, env cli.Env, f *cli.Flags, r Request, show Show) error {
	switch {
	case f.From != "":
		return reportArchive(ctx, env, f, r.Command, show)
	case f.Watch:
		return reportAgain(ctx, env, f, r, show)
	}
	env, r.Probes.Records = f.Host(env), true
	began := env.Now()
	node, err := Collect(ctx, env, f, r)
	if err == nil && r.Canary {
		node.Facts.Canary, err = tryCanary(ctx, env, f, began)
	}
	if err != nil {
		return err
	}
	report := judge.NewReport(document.Header(env, r.Command, ""), node.Facts)
	if len(report.Causes) > 0 {
		report.Recorded = node.Recorded
	}
	document.Complete(report, node.Problems)
	if err := show(env.Out, report, document.Options(env, f)); err != nil {
		return err
	}
	return document.Exit(ctx, report.Status, f.FailOn)
}
