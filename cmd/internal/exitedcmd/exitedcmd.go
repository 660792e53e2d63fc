// Package exitedcmd is kdiag exited, a census of exited containers and dead sandboxes, and kdiag gc-exited, their
// clean-up.
package exitedcmd

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/bundle"
	"github.com/kdiag/kdiag/cmd/internal/archive"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/connection"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/cmd/internal/snapshot"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/gc"
	"github.com/kdiag/kdiag/plegbench"
)

type censusOptions struct {
	cli.Flags
	snapshot.Sources
	watch time.Duration
	gc    string // kdiag gc-exited for the same runtime
	pleg  string // kdiag pleg for the same runtime
}

// NewCommand returns kdiag exited.
func NewCommand(env cli.Env) *cobra.Command {
	var opts censusOptions
	cmd := &cobra.Command{
		Use:   "exited",
		Short: "Count exited containers and dead sandboxes: by pod, owner, namespace, reason, age; growth",
		Long: `Count exited containers and dead sandboxes that were not removed: by pod, owner, namespace, reason and
age; their share of the container list's limit of 16 MiB; with --watch, when that limit is reached. Works beyond the
limit and without a kubelet. Owners come from the labels of the sandboxes; no API server is needed.`,
		Example: `  kdiag exited
  kdiag exited --watch 60s                 # count twice and show the growth
  kdiag exited --simulate exited-flood     # anywhere: the embedded runtime with 20,000 exited containers`,
		Args:    cobra.NoArgs,
		PreRunE: opts.check,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.run(cmd.Context(), env)
		},
	}
	opts.AddRuntime(cmd, fake.Names())
	opts.AddFrom(cmd)
	opts.AddOutput(cmd)
	opts.AddDetails(cmd)
	opts.AddSources(cmd)
	cmd.Flags().DurationVar(&opts.watch, "watch", 0,
		"count again after this time and show the growth; extends --timeout")
	return cmd
}

func (o *censusOptions) check(cmd *cobra.Command, _ []string) error {
	if err := cmp.Or(
		o.CheckFrom(cmd, nil),
		cli.Reject(o.watch < 0 || o.watch == 0 && cmd.Flags().Changed("watch"), "--watch must be > 0",
			"for example --watch 60s"),
		o.Check(cmd, nil), o.CheckSources(cmd),
	); err != nil {
		return err
	}
	if !cmd.Flags().Changed("timeout") {
		o.Timeout += o.watch
	}
	o.pleg = cli.CommandLine(cmd, "pleg", cli.RuntimeFlags()...)
	o.gc = cli.CommandLine(cmd, "gc-exited", append(cli.RuntimeFlags(), snapshot.SourceFlags()...)...)
	return cli.Reject(o.watch >= o.Timeout,
		fmt.Sprintf("--watch %v leaves no time for the second count within --timeout %v", o.watch, o.Timeout),
		"leave out --timeout; --watch extends it")
}

func (o *censusOptions) run(ctx context.Context, env cli.Env) error {
	if o.From != "" {
		return o.stored(ctx, env)
	}
	env = o.Host(env)
	doc := &render.ExitedCensus{
		Header: document.Header(env, "exited", "ExitedCensus"), Next: o.gc, Missing: []string{},
	}
	how, show := document.Options(env, &o.Flags), render.Exited
	first := func() error {
		if how.Format != render.Text {
			return nil // a program gets one document
		}
		show = render.ExitedAgain
		return render.Exited(env.Out, doc, how)
	}
	if err := o.take(ctx, env, doc, first); err != nil {
		if doc.Problems, err = connection.Problems(err, o.Output); err != nil {
			return err
		}
	}
	if doc.Status == checks.Healthy && ctx.Err() != nil {
		doc.Status = checks.Unknown
	}
	return document.Show(ctx, env, &o.Flags, doc, doc.Status, show)
}

// stored shows the census in a bundle.
func (o *censusOptions) stored(ctx context.Context, env cli.Env) error {
	s, err := archive.Open(ctx, env, &o.Flags, "--from", o.From)
	if err != nil {
		return err
	}
	defer s.Close()
	doc := &render.ExitedCensus{}
	if err := s.Decode(bundle.ExitedName, doc); err != nil {
		return err
	}
	// The archive has steps too, but anybody may have written it.
	doc.Next, doc.NextSteps = o.gc, nil
	if doc.Census != nil && doc.Total > 0 {
		doc.NextSteps = snapshot.CensusSteps(o.gc)
	}
	s.Say(env)
	return document.Show(ctx, env, &o.Flags, doc, doc.Status, render.Exited)
}

// take takes one or two censuses, and calls first between them. The error is why there was no runtime to ask.
func (o *censusOptions) take(ctx context.Context, env cli.Env, doc *render.ExitedCensus, first func() error) error {
	within, cancel := o.Within(ctx)
	defer cancel()
	t, err := connection.Open(within, env, &o.Flags)
	if err != nil {
		return err
	}
	defer t.Close()
	doc.Runtime = t.Runtime()
	begun := time.Now()
	found, census := snapshot.TakeCensus(within, env, t, o.Sources)
	snapshot.ConcludeCensus(ctx, env, doc, found, census, o.pleg)
	if found.Problem != "" || o.watch == 0 {
		return nil
	}
	if err := first(); err != nil {
		return err
	}
	if !wait(within, env, o.watch) {
		doc.Problems = append(doc.Problems, "no second count")
		return nil
	}
	apart := time.Since(begun).Seconds()
	again, second := snapshot.TakeCensus(within, env, t, o.Sources)
	if again.Problem != "" {
		doc.Problems = append(doc.Problems, "the second count: "+again.Problem)
		return nil
	}
	second.Growth = gc.Grow(census, second, apart)
	snapshot.ConcludeCensus(ctx, env, doc, again, second, o.pleg)
	return nil
}

// wait waits for the second count, and reports whether it may be made.
func wait(ctx context.Context, env cli.Env, d time.Duration) bool {
	progress := document.NewProgress(env)
	defer progress.Done()
	progress.Update(plegbench.Progress{Phase: "next count at " + env.Now().Add(d).Format(time.TimeOnly)})
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
