// Package gccmd is kdiag gc-exited: the clean-up of exited containers and dead sandboxes.
package gccmd

import (
	"context"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/target"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/gc"
)

// Timeouts of a clean-up, where they differ from those of reads: thousands of removals take minutes, and one of them may
// wait for a slow disk or for CNI.
const (
	defaultTimeout    = time.Hour
	defaultRPCTimeout = 30 * time.Second
)

// The values of --ignore-pod-liveness.
const (
	livenessAsk   = "ask"           // the flag without a value: asks again
	livenessKnown = "yes-i-know"    // no more questions
	podLogs       = "/var/log/pods" // where kubelets keep the pods' logs unless told otherwise
)

type options struct {
	cli.Flags
	target.Sources
	gc.Rules
	yes      bool
	liveness string
	logs     bool
	logsDir  string
	plan     string
	apply    string
	audit    string
	rate     float64
	next     nextStep
}

// NewCommand returns kdiag gc-exited.
func NewCommand(env cli.Env) *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use:   "gc-exited",
		Short: "Remove exited containers and dead sandboxes the way the kubelet would be allowed to; a plan unless --yes",
		Long: `Plan, and with --yes do, what the kubelet's own garbage collection would be allowed to do, never more. Works where the
kubelet is blind because the list is over 16 MiB.

Only exited containers go, and of these the newest of each pod and container name stays, as do all whose end is not known. Of
the dead sandboxes those go that hold no containers and are not the newest of their pod; they are stopped first, so that
the network is torn down. A pod counts as gone only when the kubelet's pods, its pod folders and its static
manifests all agree. Logs stay unless --logs.

The removal looks at each once more right before, watches how fast the runtime answers a small list on the side, and goes
only as fast as that stays fast. Interrupting it is safe.`,
		Example: `  kdiag gc-exited                                 # the plan; on a terminal it then asks
  kdiag gc-exited --yes --audit gc.jsonl          # do it, and write down what went
  kdiag gc-exited --plan gc.json                  # write the plan to a file, for a second pair of eyes
  kdiag gc-exited --apply gc.json --yes           # later: what of it may still go
  kdiag gc-exited --namespace batch --older-than 24h --limit 100 --yes
  kdiag gc-exited --simulate exited-flood --yes   # anywhere: 20,000 in the embedded runtime`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := opts.check(cmd); err != nil {
				return err
			}
			return run(cmd.Context(), env, opts)
		},
	}
	opts.AddRuntime(cmd, fake.Names())
	opts.AddOutput(cmd)
	opts.AddSources(cmd)
	opts.addFlags(cmd)
	for name, value := range map[string]time.Duration{"timeout": defaultTimeout, "rpc-timeout": defaultRPCTimeout} {
		f := cmd.Flags().Lookup(name)
		f.DefValue = value.String()
		_ = f.Value.Set(f.DefValue) // a duration's own words
	}
	return cmd
}

func (o *options) addFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.BoolVar(&o.yes, "yes", false, "remove without asking")
	fs.IntVar(&o.Keep, "keep", 0, "keep so many of the newest of each pod and container name (default: the kubelet's setting, at least 1; less than that is never kept)")
	fs.DurationVar(&o.MinAge, "min-age", 0, "remove nothing that ended less than this ago")
	fs.DurationVar(&o.OlderThan, "older-than", 0, "only what ended more than this ago")
	fs.StringVar(&o.Namespace, "namespace", "", "only pods of this namespace")
	fs.StringVar(&o.Pod, "pod", "", "only pods of this name, or the one with this UID")
	fs.StringToStringVar(&o.Labels, "label", nil, "only pods with this label, key=value; may be given more than once")
	fs.IntVar(&o.Limit, "limit", 0, "remove at most so many, the oldest (default: all)")
	fs.StringVar(&o.liveness, "ignore-pod-liveness", "", "treat every pod as gone; asks again, and says what it risks. With --yes it must be --ignore-pod-liveness="+livenessKnown)
	fs.Lookup("ignore-pod-liveness").NoOptDefVal = livenessAsk
	fs.BoolVar(&o.logs, "logs", false, "remove the logs of removed containers as well")
	fs.StringVar(&o.logsDir, "logs-dir", "", "the folder of the pods' logs, outside of which none is removed (default: the running kubelet's, usually "+podLogs+")")
	fs.StringVar(&o.plan, "plan", "", "write the plan to this file, and remove nothing")
	fs.StringVar(&o.apply, "apply", "", "remove what of the plan in this file may still go")
	fs.StringVar(&o.audit, "audit", "", "append what was removed to this file, one JSON object per line; a later run may go on with the same file")
	fs.Float64Var(&o.rate, "rate", gc.DefaultRate, "remove at most so many per second")
}

// check reports the first flag that makes no sense.
func (o *options) check(cmd *cobra.Command) error {
	changed := cmd.Flags().Changed
	for _, bad := range []struct {
		is         bool
		what, hint string
	}{
		{o.Keep < 0 || o.Keep == 0 && changed("keep"), "--keep must be at least 1", "the newest of each pod and container always stays: it holds the restart count, and shows that an init container has run"},
		{o.MinAge < 0, "--min-age must not be negative", "for example --min-age 10m"},
		{o.OlderThan < 0, "--older-than must not be negative", "for example --older-than 24h"},
		{o.Limit < 0 || o.Limit == 0 && changed("limit"), "--limit must be at least 1", "leave it out for all"},
		{!(o.rate > 0 && o.rate <= 1e6), "--rate must be more than 0, and at most 1000000", "leave it out: the runtime's own pace is the limit"},
		{o.yes && o.plan != "", "--plan writes the plan and --yes removes", "give one of them; --apply FILE --yes removes what a plan says"},
		{o.plan != "" && o.apply != "", "--plan and --apply exclude each other", "write a plan first, and apply it later"},
		{o.liveness != "" && o.liveness != livenessAsk && o.liveness != livenessKnown, "--ignore-pod-liveness takes no value but " + livenessKnown, "leave the value out to be asked"},
		{o.yes && o.liveness == livenessAsk, "--yes does not answer for --ignore-pod-liveness", "what it risks: see kdiag gc-exited --ignore-pod-liveness; then say --ignore-pod-liveness=" + livenessKnown},
		{o.logsDir != "" && !o.logs, "--logs-dir is for --logs", "add --logs, or leave it out"},
		{
			o.logsDir != "" && (!filepath.IsAbs(o.logsDir) || filepath.Clean(o.logsDir) == "/"),
			"--logs-dir must be the whole path of a folder, and not /", "for example --logs-dir " + podLogs,
		},
	} {
		if bad.is {
			return &cli.UsageError{Problem: bad.what, Hint: bad.hint}
		}
	}
	for _, name := range []string{"plan", "apply", "audit", "namespace", "pod", "logs-dir"} {
		if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "" {
			return &cli.UsageError{Problem: "--" + name + " is empty", Hint: "leave it out, or give it a value"}
		}
	}
	if _, unnamed := o.Labels[""]; unnamed {
		return &cli.UsageError{Problem: "--label has no key", Hint: "for example --label app=web"}
	}
	if o.apply != "" {
		for _, name := range []string{"keep", "min-age", "older-than", "namespace", "pod", "label", "limit"} {
			if changed(name) {
				return &cli.UsageError{Problem: "--" + name + " and --apply exclude each other", Hint: "the plan in the file has its own rules; make a new one for others"}
			}
		}
	}
	if err := o.CheckSources(cmd); err != nil {
		return err
	}
	o.IgnorePodLiveness = o.liveness != ""
	o.next = newNext(cmd, o)
	return o.Check(cmd)
}

// deadline is the command's time, short of what printing takes.
func (o *options) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	asking, _ := o.Budget()
	return context.WithTimeout(ctx, asking)
}
