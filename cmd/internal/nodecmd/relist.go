package nodecmd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/diagnosis"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/plegbench"
)

type relistOptions struct {
	cli.Flags
	count    int
	duration time.Duration
	interval time.Duration
	deep     bool
	save     string
	against  string
}

// NewRelist returns kdiag relist.
func NewRelist(env cli.Env) *cobra.Command {
	var opts relistOptions
	cmd := &cobra.Command{
		Use:   "relist",
		Short: "Time relists as PLEG makes them: percentiles, distribution, headroom, forecast",
		Long: `Repeat the kubelet's relist from outside, one each second as PLEG does, and show how long each RPC
takes, how large the answers are, and when they will reach gRPC's limit or the PLEG threshold at today's growth.

Save a healthy node's figures and compare a sick one with them. Reads only.`,
		Example: `  kdiag relist --for 1m
  kdiag relist --count 30 --save healthy.json       # on a healthy node
  kdiag relist --count 30 --against healthy.json    # on the sick one`,
		Args:    cobra.NoArgs,
		PreRunE: opts.check,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.run(cmd.Context(), env)
		},
	}
	opts.AddRuntime(cmd, fake.Names())
	opts.AddOutput(cmd)
	opts.AddDetails(cmd)
	fs := cmd.Flags()
	fs.IntVar(&opts.count, "count", 10, "number of relists to time")
	fs.DurationVar(&opts.duration, "for", 0, "time relists for this long instead of --count; extends --timeout")
	fs.DurationVar(&opts.interval, "interval", plegbench.RelistPeriod, "pause between two relists; the kubelet's is 1s")
	fs.BoolVar(&opts.deep, "deep", false,
		"ask for the status of every container at the end, however many, until --timeout")
	fs.StringVar(&opts.save, "save", "", "write the result to this file as JSON")
	fs.StringVar(&opts.against, "against", "", "compare with a result that --save wrote")
	return cmd
}

func (o *relistOptions) check(cmd *cobra.Command, _ []string) error {
	if err := cmp.Or(
		cli.Reject(o.count < 1 || o.count > 1_000_000, "--count must be between 1 and 1000000",
			"leave it out for 10 relists"),
		cli.Reject(o.duration < 0, "--for must not be negative", "for example --for 1m"),
		cli.Reject(o.interval < 0, "--interval must not be negative", "the kubelet pauses 1s between relists"),
		cli.RejectEmpty(cmd, "save", "against"),
		o.Check(cmd, nil),
	); err != nil {
		return err
	}
	if !cmd.Flags().Changed("timeout") {
		// A series lasts as long as it is asked to; the default timeout comes on top of it.
		o.Timeout += cmp.Or(o.duration, time.Duration(o.count-1)*o.interval)
	}
	return nil
}

func (o *relistOptions) run(ctx context.Context, env cli.Env) error {
	against, err := load(o.against)
	if err != nil {
		return err
	}
	var dest *cli.Destination
	if o.save != "" {
		if dest, err = cli.OpenDestination("--save", o.save); err != nil {
			return err
		}
		defer dest.Close()
	}
	series := plegbench.Options{
		Samples: o.count, For: o.duration, Pause: o.interval, Record: true, Deep: o.deep,
	}
	if o.duration > 0 {
		series.Samples = 0
	}
	env = o.Host(env)
	node, err := diagnosis.Collect(ctx, env, &o.Flags, diagnosis.Request{
		Command: "relist", Measure: series, Limits: checks.RuntimeLimits(),
	})
	if err != nil {
		return err
	}
	bench := judge.NewRelistBenchmark(document.Header(env, "relist", ""), node.Facts)
	document.Complete(bench, node.Problems)
	if err := render.RelistBenchmark(env.Out, bench, against, document.Options(env, &o.Flags)); err != nil {
		return err
	}
	if dest != nil {
		if err := save(ctx, dest, bench); err != nil {
			return err
		}
	}
	return document.Exit(ctx, bench.Status, o.FailOn)
}

// save saves a result, but not in place of an earlier one when the new one is cut short or has no figures.
func save(ctx context.Context, dest *cli.Destination, bench *checks.RelistBenchmark) error {
	useless := bench.Relist == nil || bench.Relist.List == nil || bench.Relist.List.P50Seconds == nil
	if dest.Exists && (useless || ctx.Err() != nil) {
		return cli.Fail(fmt.Errorf("%s was left as it is: this series is cut short or has no figures", dest.Path),
			cli.ExitUnknown, "give --save another name to keep this one too")
	}
	data, err := json.MarshalIndent(bench, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the result: %w", err)
	}
	return dest.Write(append(data, '\n'))
}

// maxSaved bounds a saved result: a week of samples is less.
const maxSaved = 256 << 20

// load reads a file of --save. It returns nil for an empty name.
func load(name string) (*checks.RelistBenchmark, error) {
	if name == "" {
		return nil, nil
	}
	saved := &checks.RelistBenchmark{}
	data, err := cli.ReadFile(name, maxSaved)
	if err == nil {
		err = json.Unmarshal(data, saved)
	}
	if err == nil && (saved.APIVersion != checks.APIVersion || saved.Kind != checks.KindRelistBenchmark) {
		err = fmt.Errorf("%s: apiVersion %q kind %q, want %s %s", name, saved.APIVersion, saved.Kind,
			checks.APIVersion, checks.KindRelistBenchmark)
	}
	if err != nil {
		return nil, cli.Usage("--against "+err.Error(), "kdiag relist --save FILE writes such a file")
	}
	return saved, nil
}
