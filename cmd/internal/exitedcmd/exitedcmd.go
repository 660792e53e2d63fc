// Package exitedcmd is kdiag exited: a census of what has exited and was not removed.
package exitedcmd

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/cmd/internal/target"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/gc"
	"github.com/kdiag/kdiag/plegbench"
)

type options struct {
	cli.Flags
	target.Sources
	watch time.Duration
	next  string // the command that shows what may go
	look  string // kdiag pleg for the same runtime
}

// NewCommand returns kdiag exited.
func NewCommand(env cli.Env) *cobra.Command {
	var opts options
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
			return run(cmd.Context(), env, opts)
		},
	}
	opts.AddRuntime(cmd, fake.Names())
	opts.AddOutput(cmd)
	opts.AddSources(cmd)
	cmd.Flags().DurationVar(&opts.watch, "watch", 0,
		"count again after this time and show the growth; extends --timeout")
	return cmd
}

func (o *options) check(cmd *cobra.Command, _ []string) error {
	if err := cmp.Or(
		cli.Reject(o.watch < 0 || o.watch == 0 && cmd.Flags().Changed("watch"), "--watch must be > 0",
			"for example --watch 60s"),
		o.Check(cmd, nil), o.CheckSources(cmd),
	); err != nil {
		return err
	}
	if !cmd.Flags().Changed("timeout") {
		o.Timeout += o.watch
	}
	o.look = target.CommandLine(cmd, "pleg", target.RuntimeFlags()...)
	o.next = target.CommandLine(cmd, "gc-exited", append(target.RuntimeFlags(), target.SourceFlags()...)...)
	return cli.Reject(o.watch >= o.Timeout,
		fmt.Sprintf("--watch %v leaves no time for the second count within --timeout %v", o.watch, o.Timeout),
		"leave out --timeout; --watch extends it")
}

func run(ctx context.Context, env cli.Env, opts options) error {
	env = opts.Host(env)
	doc := &render.ExitedCensus{
		Header: target.Header(env, "exited", "ExitedCensus"), Next: opts.next, Missing: []string{},
	}
	how, show := target.Render(env, &opts.Flags), render.Exited
	first := func() error {
		if how.Format != render.Text {
			return nil // a program gets one document
		}
		show = render.ExitedAgain
		return render.Exited(env.Out, doc, how)
	}
	if err := take(ctx, env, &opts, doc, first); err != nil {
		if doc.Problems, err = target.Unopened(err, opts.Output); err != nil {
			return err
		}
	}
	if doc.Status == checks.Healthy && ctx.Err() != nil {
		doc.Status = checks.Unknown
	}
	if err := show(env.Out, doc, how); err != nil {
		return err
	}
	return target.Exit(ctx, doc.Status, opts.FailOn)
}

// take takes one or two censuses, and calls first between them. The error is why there was no runtime to ask.
func take(ctx context.Context, env cli.Env, opts *options, doc *render.ExitedCensus, first func() error) error {
	asking, _ := opts.Budget()
	within, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	t, err := target.Open(within, env, &opts.Flags)
	if err != nil {
		return err
	}
	defer t.Close()
	doc.Runtime = t.Runtime()
	begun := time.Now()
	look, census := once(within, env, opts, t)
	conclude(ctx, env, opts, doc, look, census)
	if look.Problem != "" || opts.watch == 0 {
		return nil
	}
	if err := first(); err != nil {
		return err
	}
	if !wait(within, env, opts.watch) {
		doc.Problems = append(doc.Problems, "no second count")
		return nil
	}
	apart := time.Since(begun).Seconds()
	again, second := once(within, env, opts, t)
	if again.Problem != "" {
		doc.Problems = append(doc.Problems, "the second count: "+again.Problem)
		return nil
	}
	second.Growth = gc.Grow(census, second, apart)
	conclude(ctx, env, opts, doc, again, second)
	return nil
}

// wait waits for the second count, and reports whether it may be made.
func wait(ctx context.Context, env cli.Env, d time.Duration) bool {
	progress := target.NewProgress(env)
	defer progress.Done()
	progress.Update(plegbench.Progress{Phase: "next count at " + env.Now().Add(d).Format(time.TimeOnly)})
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// conclude fills in the document from one census.
func conclude(
	ctx context.Context, env cli.Env, opts *options, doc *render.ExitedCensus, look target.Snapshot, census *gc.Census,
) {
	doc.GeneratedAt = env.Now().UTC().Truncate(time.Second)
	doc.Runtime.Name, doc.Runtime.Version = look.Runtime.RuntimeName, look.Runtime.RuntimeVersion
	if look.Problem != "" {
		doc.Problems = append(doc.Problems, look.Problem)
		if !look.Denied && ctx.Err() == nil {
			doc.Status = checks.Unhealthy // a runtime that gives no list is an answer
			doc.NextSteps = []checks.NextStep{judge.StepWhenSilent(opts.look)}
		}
		return
	}
	doc.Census, doc.Missing = census, append([]string{}, look.Missing...)
	if census.Total > 0 {
		const why = "Show the removal plan (dry run)"
		doc.NextSteps = []checks.NextStep{{Why: why, Command: opts.next, Touches: checks.TouchesNothing}}
	}
	doc.Status = verdict(census, checks.DefaultLimits())
	if doc.Status == checks.Healthy && census.Partial {
		doc.Status = checks.Unknown
	}
}

func once(ctx context.Context, env cli.Env, opts *options, t *target.Target) (target.Snapshot, *gc.Census) {
	progress := target.NewProgress(env)
	defer progress.Done()
	look := t.TakeSnapshot(ctx, env, opts.Sources, progress)
	if look.Problem != "" {
		return look, nil
	}
	var newest []gc.Candidate
	for _, c := range gc.CountExited(look.Node.Containers) {
		if c.PodUID != "" {
			newest = append(newest, gc.Candidate{ID: c.NewestID, PodUID: c.PodUID})
		}
	}
	ends, _ := gc.ReadEnds(ctx, t.Client, newest, func(asked int) {
		progress.Update(plegbench.Progress{Phase: "inspect", Done: asked, Total: len(newest)})
	})
	return look, new(gc.TakeCensus(look.Node, ends, crictl.DefaultMessageLimit, env.Now()))
}

// verdict compares a census with the limits by which kdiag pleg finds TooManyExited and ListTooLarge.
func verdict(c *gc.Census, l checks.Limits) checks.Verdict {
	most := max(c.Total, c.Sandboxes)
	switch {
	case most >= l.ExitedCritical, c.ListOfLimit >= l.SizeCritical:
		return checks.Unhealthy
	case c.Total >= l.ExitedWarning, c.Sandboxes >= l.DeadSandboxes, c.ListOfLimit >= l.SizeWarning:
		return checks.Degraded
	}
	return checks.Healthy
}
