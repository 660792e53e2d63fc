// Package gccmd is kdiag gc-exited: the clean-up of exited containers and dead sandboxes.
package gccmd

import (
	"cmp"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/snapshot"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/gc"
)

// Timeouts of a clean-up, which are longer than those of reads: thousands of removals take minutes, and one of them may
// wait for a slow disk or for CNI.
const (
	defaultTimeout    = time.Hour
	defaultRPCTimeout = 30 * time.Second
)

// livenessKnown is the value of --ignore-pod-liveness without which --yes is refused.
const livenessKnown = "yes-i-know"

type options struct {
	cli.Flags
	snapshot.Sources
	gc.Rules
	yes       bool
	olderThan time.Duration
	liveness  string // of --ignore-pod-liveness; empty when not given
	audit     string
	keepLogs  bool
	rate      float64
	again     string // this command
	pleg      string // kdiag pleg for the same runtime
}

// NewCommand returns kdiag gc-exited.
func NewCommand(env cli.Env) *cobra.Command {
	opts := options{Flags: cli.Flags{Timeout: defaultTimeout, RPCTimeout: defaultRPCTimeout}}
	cmd := &cobra.Command{
		Use: "gc-exited",
		Short: "Remove exited containers and dead sandboxes that the kubelet may remove; " +
			"shows the plan unless --yes",
		Long: `Show what the kubelet's garbage collection may remove, and with --yes remove it: exited containers,
except the newest of each pod and container name, with their logs, and dead sandboxes without containers, except
the newest of a pod. Never more than the kubelet itself. A pod counts as gone only when the kubelet's pods, its pod
folders and its static manifests all agree.

Works when the container list is over 16 MiB and the kubelet can no longer read it. Each object is checked again right
before its removal; fewer are removed at a time when the runtime becomes slow. Interrupting the command is safe.`,
		Example: `  kdiag gc-exited                                 # show the removal plan (dry run)
  kdiag gc-exited --yes --audit gc.jsonl          # remove, and record each removal
  kdiag gc-exited -n batch --older-than 24h --limit 100 -y
  kdiag gc-exited --simulate exited-flood --yes   # anywhere: 20,000 in the embedded runtime`,
		Args:    cobra.NoArgs,
		PreRunE: opts.check,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), env, &opts)
		},
	}
	opts.AddRuntime(cmd, fake.Names())
	opts.AddOutput(cmd)
	opts.AddDetails(cmd)
	opts.AddSources(cmd)
	opts.addFlags(cmd)
	return cmd
}

func (o *options) addFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.BoolVarP(&o.yes, "yes", "y", false, "remove what the plan names (default: only print the plan)")
	fs.IntVar(&o.Keep, "keep", 0,
		"keep this many of each pod and container name (default: the kubelet's setting; can only raise it)")
	fs.DurationVar(&o.MinAge, "min-age", 0, "keep what ended less than this ago")
	fs.DurationVar(&o.olderThan, "older-than", 0, "the same as --min-age")
	fs.StringVarP(&o.Namespace, "namespace", "n", "", "only pods of this namespace")
	fs.StringVar(&o.Pod, "pod", "", "only pods of this name, or the one with this UID")
	fs.StringToStringVarP(&o.Labels, "label", "l", nil, "only pods with this label, key=value; may be repeated")
	fs.IntVar(&o.Limit, "limit", 0, "remove at most this many, the oldest first (default: all)")
	fs.StringVar(&o.liveness, "ignore-pod-liveness", "",
		"treat every pod as gone; the plan explains the risk. With --yes give --ignore-pod-liveness="+livenessKnown)
	fs.Lookup("ignore-pod-liveness").NoOptDefVal = "ask"
	fs.StringVar(&o.audit, "audit", "", "append each removal to this file as a line of JSON; runs may share a file")
	fs.BoolVar(&o.keepLogs, "keep-logs", false, "keep the logs of the removed containers")
	fs.Float64Var(&o.rate, "rate", gc.DefaultRate, "remove at most this many per second")
}

// check returns an error for the first flag that makes no sense.
func (o *options) check(cmd *cobra.Command, _ []string) error {
	changed := cmd.Flags().Changed
	_, unnamed := o.Labels[""]
	if err := cmp.Or(
		cli.Reject(
			o.Keep < 0 || o.Keep == 0 && changed("keep"), "--keep must be at least 1",
			"the newest of each pod and container is always kept: it holds the restart count, "+
				"and shows that an init container ran",
		),
		cli.Reject(min(o.MinAge, o.olderThan) < 0, "--min-age must not be negative",
			"for example --min-age 10m"),
		cli.Reject(o.Limit < 0 || o.Limit == 0 && changed("limit"), "--limit must be at least 1",
			"leave it out for all"),
		cli.Reject(!(o.rate > 0), "--rate must be more than 0", "leave it out to remove as fast as the runtime allows"),
		cli.Reject(
			o.yes && o.liveness != "" && o.liveness != livenessKnown, "--ignore-pod-liveness needs more than --yes",
			"kdiag gc-exited --ignore-pod-liveness shows the risk; then give --ignore-pod-liveness="+livenessKnown,
		),
		cli.Reject(unnamed, "--label has no key", "for example --label app=web"),
		cli.RejectEmpty(cmd, "audit", "namespace", "pod"),
	); err != nil {
		return err
	}
	if err := o.CheckSources(cmd); err != nil {
		return err
	}
	o.IgnorePodLiveness, o.MinAge = o.liveness != "", max(o.MinAge, o.olderThan)
	o.again = cli.CommandLine(cmd, "gc-exited", slices.Concat(cli.RuntimeFlags(), snapshot.SourceFlags(), []string{
		"keep", "min-age", "older-than", "namespace", "pod", "label", "limit", "timeout", "rpc-timeout", "rate",
		"keep-logs",
	})...)
	o.pleg = cli.CommandLine(cmd, "pleg", cli.RuntimeFlags()...)
	return o.Check(cmd, nil)
}

// remove returns the command that removes the candidates of the plan.
func (o *options) remove() string {
	line := o.again
	if o.IgnorePodLiveness {
		line += " --ignore-pod-liveness=" + livenessKnown
	}
	return line + " --yes --audit " + cli.Quote(cmp.Or(o.audit, "gc-audit.jsonl"))
}

// nextSteps returns the removal, while something is left to remove, or how to look at a silent runtime.
func (s *session) nextSteps() []checks.NextStep {
	r, step := s.doc, checks.NextStep{Command: s.opts.remove(), Touches: checks.TouchesExited}
	switch {
	case r.Status == checks.Unhealthy:
		return []checks.NextStep{judge.StepWhenSilent(s.opts.pleg)}
	case len(r.Problems) > 0:
		return nil
	case r.DryRun && len(r.Plan.Remove) > 0:
		step.Why = "Re-check each object and remove the plan"
	case !r.DryRun && (len(r.Failed)+r.Left > 0 || r.Stopped != ""):
		step.Why = "Fix the failures (see the runtime's log), then remove the rest"
	default:
		return nil
	}
	return []checks.NextStep{step}
}
