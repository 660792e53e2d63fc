package exitedcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/connection"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/cmd/internal/snapshot"
	"github.com/kdiag/kdiag/crictl/deadline"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/crictl/gc"
	"github.com/kdiag/kdiag/plegbench"
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

// NewCleanUp returns kdiag gc-exited.
func NewCleanUp(env cli.Env) *cobra.Command {
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

// A session is the state of one command.
type session struct {
	env    cli.Env
	opts   *options
	t      *connection.Connection
	look   snapshot.Snapshot
	logs   gc.Logs
	doc    *render.GCReport
	paused string // why the run pauses
}

func run(ctx context.Context, env cli.Env, opts *options) error {
	env = opts.Host(env)
	s := &session{env: env, opts: opts, doc: &render.GCReport{
		Header: document.Header(env, "gc-exited", "GCReport"), Missing: []string{}, Notes: []string{},
		Report: gc.Report{DryRun: true, Result: gc.Result{Skipped: []gc.Skipped{}, Failed: []gc.Failed{}}},
	}}
	within, cancel := opts.Within(ctx)
	defer cancel()
	if err := s.run(ctx, within); err != nil {
		problems, err := connection.Problems(err, opts.Output) // a program that asked for a document gets one
		if err != nil {
			return err
		}
		s.doc.Problems, s.doc.Status = append(s.doc.Problems, problems...), checks.Unknown
	}
	if s.doc.Status == checks.Healthy && s.doc.EndsMissed > 0 {
		s.doc.Status = checks.Degraded
	}
	s.doc.NextSteps = s.nextSteps()
	s.doc.GeneratedAt = env.Now().UTC().Truncate(time.Second)
	if err := render.GC(env.Out, s.doc, document.Options(env, &opts.Flags)); err != nil {
		return err
	}
	return document.Exit(ctx, s.doc.Status, "warning")
}

// run makes a plan, and with --yes removes its candidates. within has the command's deadline.
func (s *session) run(ctx, within context.Context) (err error) {
	s.t, err = connection.Open(within, s.env, &s.opts.Flags)
	if err != nil {
		return err
	}
	defer s.t.Close()
	s.doc.Runtime = s.t.Runtime()
	progress := document.NewProgress(s.env)
	s.look = snapshot.Take(within, s.env, s.t, s.opts.Sources, progress)
	progress.Done()
	if !s.opts.keepLogs {
		s.logs = snapshot.Logs(s.t, s.env.Root)
	}
	s.doc.Runtime.Name, s.doc.Runtime.Version = s.look.Version.RuntimeName, s.look.Version.RuntimeVersion
	if s.look.Problem != "" {
		s.unable(ctx, s.look.Problem)
		return nil
	}
	s.doc.Missing = append(s.doc.Missing, s.look.Missing...)
	if s.opts.yes { // before the runtime is asked for thousands of ends
		socket := strings.TrimPrefix(s.t.Socket, "unix://")
		lock, err := cli.Look(socket, func() (io.Closer, error) { return gc.Lock(socket) })
		if err != nil {
			return cli.Fail(err, cli.ExitUnknown, "nothing was removed; wait for the other run, or interrupt it")
		}
		defer lock.Close()
	}
	if len(s.opts.Labels) > 0 {
		if s.look.Node.Selected, err = snapshot.Selected(within, s.t, s.opts.Labels); err != nil {
			s.unable(ctx, err.Error())
			return nil
		}
	}
	s.makePlan(within)
	if ctx.Err() != nil {
		s.unable(ctx, "interrupted")
		return nil
	}
	s.doc.Status = checks.Healthy
	if s.opts.yes {
		return s.remove(ctx, within)
	}
	return nil
}

// unable notes why there is no plan.
func (s *session) unable(ctx context.Context, problem string) {
	s.doc.Problems = append(s.doc.Problems, problem)
	if !s.look.Denied && ctx.Err() == nil {
		s.doc.Status = checks.Unhealthy // the runtime's fault
	}
}

// measureLogs bounds the look at the sizes of the logs.
const measureLogs = 10 * time.Second

// makePlan plans, for which it asks the runtime when the candidates ended.
func (s *session) makePlan(ctx context.Context) {
	var missed gc.Missed
	plan := gc.Make(s.look.Node, s.opts.Rules, s.env.Now(), func(of []gc.Candidate) (ends map[string]gc.End) {
		progress := document.NewProgress(s.env)
		defer progress.Done()
		ends, missed = gc.ReadEnds(ctx, s.t.Client, of, func(asked int) {
			progress.Update(plegbench.Progress{Phase: "inspect", Done: asked, Total: len(of)})
		})
		return ends
	})
	soon, cancel := context.WithTimeout(ctx, measureLogs)
	defer cancel()
	err := s.logs.Measure(soon, &plan)
	s.doc.Plan, s.doc.EndsMissed, s.doc.Notes = plan, missed.Count, []string{}
	note := func(format string, args ...any) { s.doc.Notes = append(s.doc.Notes, fmt.Sprintf(format, args...)) }
	if missed.Count > 0 {
		note("end time unknown for %d containers, so they are kept: %s", missed.Count,
			cmp.Or(missed.First, "--timeout was reached"))
	}
	if err != nil {
		note("size of the logs unknown: %v", err)
	}
	if s.look.Keep != "" && s.opts.Keep == 0 {
		note("kubelet retention unknown (%s), assuming %d (--keep N)", s.look.Keep, plan.Newest)
	}
}

// remove runs the plan. Whatever fails before the first removal is an error.
func (s *session) remove(ctx, within context.Context) (err error) {
	plan := s.doc.Plan
	var audit *gc.Audit
	if s.opts.audit != "" {
		audit, err = disk(within, func() (*gc.Audit, error) {
			return gc.OpenAudit(s.opts.audit)
		})
		if errors.Is(err, deadline.ErrAbandoned) {
			err = errors.New("--audit " + s.opts.audit + ": the file system does not answer")
		}
		if err != nil {
			return cli.Fail(err, cli.ExitUnknown, "nothing was removed; name a file on a disk with free space")
		}
	}
	progress := document.NewProgress(s.env)
	result, err := gc.Run(within, s.t.Client, plan, gc.Options{
		Rate: s.opts.rate, Audit: audit, Logs: s.logs, Progress: func(now gc.Progress) {
			progress.Removing(now)
			if now.Paused != s.paused && now.Paused != "" && !s.env.ErrTTY {
				_, _ = fmt.Fprintf(s.env.Err, "kdiag: paused: %s (%d of %d removed)\n", now.Paused, now.Removed,
					now.Total)
			}
			s.paused = now.Paused
		},
	})
	progress.Done()
	if audit != nil {
		_, closeErr := disk(within, func() (any, error) { return nil, audit.Close() })
		if err == nil {
			err = closeErr
		}
	}
	s.doc.DryRun, s.doc.Result = false, result
	if err != nil {
		s.doc.Stopped = err.Error()
	}
	switch {
	case ctx.Err() != nil:
		s.doc.Status = checks.Unknown
	case s.doc.Stopped != "" || !done(result, len(s.doc.Plan.Remove)):
		s.doc.Status = checks.Degraded
	}
	return nil
}

// done reports whether a run has carried out its plan. Candidates that have gone or changed meanwhile need not be
// removed, but a run that removed nothing at all did not do its work.
func done(r gc.Result, planned int) bool {
	return len(r.Failed)+len(r.LogsLeft)+r.Left == 0 && (r.Removed > 0 || planned == 0)
}

// disk works on a disk that may not answer. It waits a little longer than ctx, so that the last removals are recorded.
func disk[T any](ctx context.Context, f func() (T, error)) (T, error) {
	grace := 2 * time.Second // after an interrupt
	if end, ok := ctx.Deadline(); ok {
		grace = min(grace, max(0, time.Until(end))+cli.Margin*2/3)
	}
	return deadline.RunGrace(ctx, "writing to disk", grace, func(context.Context) (T, error) { return f() })
}
