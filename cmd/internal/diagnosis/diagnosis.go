// Package diagnosis collects the facts of a node and reports what is wrong with it: once, again and again with --watch,
// or from a bundle with --from.
package diagnosis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/bundle"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/cmd/internal/archive"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/connection"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/canary"
	"github.com/kdiag/kdiag/crictl/deadline"
	"github.com/kdiag/kdiag/crictl/remote"
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
	return document.Show(ctx, env, f, report, report.Status, show)
}

// reportArchive is Report with --from: it judges the facts in a bundle again.
func reportArchive(ctx context.Context, env cli.Env, f *cli.Flags, command string, show Show) error {
	a, err := archive.Open(ctx, env, f, "--from", f.From)
	if err != nil {
		return err
	}
	defer a.Close()
	report, err := judgeArchive(ctx, env, a, command, f.From)
	if err != nil {
		return err
	}
	document.Complete(report, nil)
	return document.Show(ctx, env, f, report, report.Status, show)
}

// judgeArchive judges the facts in a bundle. Where they cannot be read, the report of the node stands for them.
func judgeArchive(
	ctx context.Context, env cli.Env, a *archive.Archive, command, name string,
) (*checks.Report, error) {
	var in facts.Input
	var then checks.Report
	errReport := a.Decode(bundle.ReportName, &then)
	if err := a.Decode(bundle.FactsName, &in); err != nil {
		if errReport != nil {
			return nil, err
		}
		quote(&then, a)
		then.Problems = slices.Concat([]string{err.Error()}, a.Manifest.Problems, then.Problems)
		then.Runtime.From = cli.Quote(name)
		return &then, nil
	}
	h := document.Header(env, command, "")
	h.Host, h.GeneratedAt, in.Runtime.From = a.Host, in.Now.UTC().Truncate(time.Second), cli.Quote(name)
	// Facts that no node has, made by hand, are an error and not the end of the program.
	report, err := deadline.Run(ctx, "judging the bundle",
		func(context.Context) (*checks.Report, error) { return judge.NewReport(h, &in), nil })
	if err != nil {
		return nil, cli.Usage(fmt.Sprintf("%s: %s: %v", a.Name, bundle.FactsName, err), archive.HintList)
	}
	if report.Status == checks.Unknown && len(report.Problems) == 0 {
		report.Problems = then.Problems // why no runtime was found or could be asked is in no fact
	}
	report.Problems = slices.Concat(a.Manifest.Problems, report.Problems)
	note := a.Note()
	if len(report.Causes) > 0 && report.Runtime.EndpointSource != string(crictl.SourceSimulated) {
		note += "; next steps are for " + cmp.Or(a.Host, "that node")
	}
	report.Notes = append([]string{note}, report.Notes...)
	return report, nil
}

// quote removes the next steps from a report of a bundle: they would be commands out of an archive that anybody may
// have written.
func quote(r *checks.Report, a *archive.Archive) {
	for i := range r.Causes {
		r.Causes[i].NextSteps = []checks.NextStep{}
	}
	r.NextSteps = nil
	r.Notes = append([]string{a.Note() + "; as it was reported there, without next steps"}, r.Notes...)
}

// cleanupShare is the part of the time that is kept for the clean-up: one call that hangs, and a second one.
const cleanupShare = 3

// TakeCanary opens the runtime and runs the canary that facts ask for; pull allows to pull its image. It completes the
// facts. The error is one of usage, or of kdiag itself.
func TakeCanary(ctx context.Context, env cli.Env, f *cli.Flags, facts *judge.CanaryFacts, pull bool) error {
	asking, rpc := f.Budget()
	start := env.Now()
	t, err := connection.Open(ctx, env, f)
	if err != nil {
		facts.Preceding, err = connection.Problems(err, f.Output)
		return err
	}
	defer t.Close()
	facts.Runtime, facts.Kubelet = t.Runtime(), t.Kubelet
	facts.NoSystemd = errors.Is(host.FindSystemd(env.Root), host.ErrNoSystemd)
	log := cli.Log(env, f.Verbose)
	asking -= env.Now().Sub(start) + connection.ProbeTimeout
	cleanup := max(asking, 0) / cleanupShare
	rpc = min(rpc, cleanup/2)
	cri, err := remote.Dial(t.Socket, remote.Options{
		Timeout: rpc, Dialer: env.Sockets.Dial,
		Observe: func(operation string, took time.Duration, err error) {
			log.Debug("call", "operation", operation, "took", took, "err", err)
		},
	})
	if err != nil {
		return fmt.Errorf("preparing a connection to %s: %w", t.Endpoint.URL, err)
	}
	defer func() { go cri.Close() }() // it would wait for a runtime that does not read
	progress := document.NewProgress(env)
	o := canary.Options{
		Image: facts.Asked, Pull: pull, Command: facts.Command, CNI: facts.CNI,
		LogDir: os.TempDir(), RPCTimeout: rpc, Course: asking - cleanup, Cleanup: cleanup,
		Progress: func(step string) { progress.Update(plegbench.Progress{Phase: "waiting for the runtime: " + step}) },
	}
	if f.HostRoot != "" {
		o.LogDir = "" // the runtime has another /tmp
	}
	facts.Result = canary.Run(ctx, cri, o)
	progress.Done()
	if facts.Result.Version == (crictl.Version{}) {
		facts.Connect, err = connection.Probe(ctx, env, t.Socket) // why, where that is not the runtime's doing
	}
	return err
}

// leastCanary is the shortest time in which a canary can be run and removed.
const leastCanary = 6 * time.Second

// tryCanary runs a canary with a pod network in the time that a command has left, and one on the host's network where
// the first shows nothing. It is nil where there is no time.
func tryCanary(ctx context.Context, env cli.Env, f *cli.Flags, began time.Time) (r *checks.CanaryReport, err error) {
	for _, cni := range []bool{true, false} {
		left := *f
		if left.Timeout -= env.Now().Sub(began); left.Timeout < leastCanary {
			return r, nil
		}
		facts := judge.CanaryFacts{CNI: cni, Again: "kdiag canary"}
		if err := TakeCanary(ctx, env, &left, &facts, false); err != nil {
			return nil, err
		}
		r = judge.NewCanaryReport(document.Header(env, "canary", checks.KindCanaryReport), facts)
		if r.Status != checks.Unknown {
			break
		}
	}
	return r, nil
}
