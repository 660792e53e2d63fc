package gccmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kdiag/kdiag/cmd/internal/answer"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/cmd/internal/target"
	"github.com/kdiag/kdiag/crictl/gc"
	"github.com/kdiag/kdiag/plegbench"
)

// A session is one clean-up on its way.
type session struct {
	env   cli.Env
	opts  *options
	t     *target.Target
	look  target.Look
	ends  map[string]gc.End
	older *gc.PlanFile // of --apply
	doc   *render.GCReport
}

func run(ctx context.Context, env cli.Env, opts options) error {
	if opts.Simulate == "help" {
		return target.PrintScenarios(env.Out)
	}
	s := &session{env: env, opts: &opts, ends: map[string]gc.End{}, doc: &render.GCReport{
		Header: target.Header(env, "GCReport"), Missing: []string{}, Problems: []string{},
		Report: gc.Report{DryRun: true, Plan: gc.NoPlan(), Result: gc.Result{Skipped: []gc.Skipped{}, Failed: []gc.Failed{}}},
	}}
	var dest *cli.Destination
	if opts.plan != "" {
		var err error
		if dest, err = cli.OpenDestination("--plan", opts.plan); err != nil {
			return err
		}
		defer dest.Close()
	}
	within, cancel := opts.deadline(ctx)
	defer cancel()
	code, err := s.prepare(ctx, within)
	if s.t != nil {
		defer s.t.Close()
	}
	if err != nil {
		return err
	}
	if code != 0 {
		return s.print(code)
	}
	switch {
	case dest != nil:
		return s.save(dest)
	case len(s.doc.Plan.Remove) == 0:
		return s.print(cli.ExitHealthy)
	case opts.yes:
		return s.remove(ctx, within)
	case opts.Output == string(render.Text) && env.InTTY && env.OutTTY:
		return s.ask(ctx, within)
	}
	return s.print(cli.ExitHealthy)
}

// prepare looks at the node and makes the plan. The code is that of an answer without a plan; 0 means that there is one.
func (s *session) prepare(ctx, within context.Context) (code int, err error) {
	s.t, err = target.Open(within, s.env, &s.opts.Flags)
	if err != nil {
		s.doc.Problems, err = answer.Unopened(err, s.opts.Output)
		return cli.ExitUnknown, err
	}
	s.doc.Runtime = s.t.Runtime()
	progress := s.progress()
	defer progress.Done()
	progress.Update(plegbench.Progress{Phase: "connect"})
	s.look = s.t.LookAtDead(within, s.env, s.opts.Sources)
	s.doc.Runtime.Name, s.doc.Runtime.Version = s.look.Runtime.RuntimeName, s.look.Runtime.RuntimeVersion
	if s.look.Problem != "" {
		return s.unable(ctx, s.look.Problem), nil
	}
	s.doc.Missing = append(s.doc.Missing, s.look.Missing...)
	if s.opts.apply != "" {
		if s.older, err = readPlan(within, s.opts.apply, s.look.Runtime); err != nil {
			return 0, err
		}
		if s.opts.yes && s.older.Plan.Rules.IgnorePodLiveness && s.opts.liveness != livenessKnown {
			return 0, &cli.UsageError{
				Problem: "the plan in " + s.opts.apply + " was made with --ignore-pod-liveness",
				Hint:    "say it again: --ignore-pod-liveness=" + livenessKnown,
			}
		}
		s.opts.Rules = s.older.Plan.Rules
	}
	if len(s.opts.Labels) > 0 {
		if s.look.Node.Selected, err = s.t.Selected(within, s.opts.Labels); err != nil {
			return s.unable(ctx, err.Error()), nil
		}
	}
	s.makePlan(within, progress)
	if ctx.Err() != nil {
		return s.unable(ctx, "interrupted"), nil
	}
	return 0, nil
}

// unable notes why there is no plan, and returns the exit code of that.
func (s *session) unable(ctx context.Context, problem string) int {
	s.doc.Problems = append(s.doc.Problems, problem)
	if s.look.Denied || ctx.Err() != nil {
		return cli.ExitUnknown
	}
	return cli.ExitProblem
}

// makePlan asks for the ends that are not known yet and plans.
func (s *session) makePlan(ctx context.Context, progress *render.Progress) {
	rules, now := s.opts.Rules, s.env.Now()
	if s.older != nil {
		rules.Limit = 0 // it was the older plan's; what of that may still go is asked here
	}
	var ask []string
	for _, id := range gc.Candidates(s.look.Node, rules, now) {
		if _, known := s.ends[id]; !known {
			ask = append(ask, id)
		}
	}
	ends, _ := gc.Look(ctx, s.t.Client, ask, func(asked int) {
		progress.Update(plegbench.Progress{Phase: "inspect", Done: asked, Total: len(ask)})
	})
	for id, end := range ends {
		s.ends[id] = end
	}
	s.look.Node.Finished = func(id string) (time.Time, bool) {
		end, ok := s.ends[id]
		return end.FinishedAt, ok
	}
	plan := gc.Make(s.look.Node, rules, s.env.Now())
	if s.older != nil {
		narrowed, skipped := gc.Narrow(s.older.Plan, plan)
		narrowed.Keep, narrowed.KeptBy = plan.Keep, plan.KeptBy
		plan, s.doc.Skipped = narrowed, skipped
	}
	s.doc.Plan = plan
}

// remove runs the plan. Everything that can go wrong before the first removal is an error without one.
func (s *session) remove(ctx, within context.Context) error {
	lock, err := s.lock()
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }() // its end is the process's in any case
	plan, before := s.doc.Plan, s.doc.Skipped
	var audit *gc.Audit
	if s.opts.audit != "" {
		audit, err = gc.OpenAudit(s.opts.audit, s.look.Runtime, len(plan.Remove), s.env.Now())
		if err != nil {
			return &cli.HintError{Err: err, Code: cli.ExitUnknown, Hint: "nothing was removed; name a file on a disk with room"}
		}
		s.noteMended(audit)
		var recorded []gc.Skipped
		plan, recorded = gc.WithoutRecorded(plan, audit)
		before = append(before, recorded...)
	}
	progress := s.progress()
	notes := notes{s.env, ""}
	result, runErr := gc.Run(within, s.t.Client, plan, gc.Options{
		Rate: s.opts.rate, Audit: audit, Logs: s.logs(), Progress: func(now gc.Progress) { progress.Removing(now); notes.take(now) },
	})
	progress.Done()
	if audit != nil {
		if err := audit.Close(result.Removed, s.env.Now()); err != nil && runErr == nil {
			runErr = fmt.Errorf("closing the audit file: %w", err)
		}
	}
	result.Skipped = append(before, result.Skipped...)
	s.doc.DryRun, s.doc.Plan, s.doc.Result = false, plan, result
	if runErr != nil {
		s.doc.Stopped = runErr.Error()
	}
	switch {
	case ctx.Err() != nil:
		return s.print(cli.ExitUnknown)
	case runErr != nil || result.Stopped != "" || len(result.Failed)+len(result.LogsFailed)+result.Left > 0:
		return s.print(cli.ExitProblem)
	}
	return s.print(cli.ExitHealthy)
}

func (s *session) noteMended(a *gc.Audit) {
	bytes, foreign := a.Mended()
	if bytes > 0 {
		s.say("the audit file ended in a line that a crash had cut short; its %d bytes were taken off", bytes)
	}
	if foreign > 0 {
		s.say("the audit file has %d lines that are no records of kdiag; they stay", foreign)
	}
}

// logs says where logs may be removed; nil leaves them.
func (s *session) logs() *gc.Logs {
	if !s.opts.logs {
		return nil
	}
	dir := s.opts.logsDir
	if dir == "" && s.t.Kubelet != nil {
		dir = s.t.Kubelet.Collection.PodLogsDir
	}
	if dir == "" {
		dir = podLogs
	}
	return &gc.Logs{Dir: dir, Root: s.env.Root}
}

func (s *session) progress() *render.Progress {
	p := render.NewProgress(s.env.Err, s.env.ErrTTY, s.env.Width)
	p.ASCII = s.env.ASCII()
	return p
}

// say writes a line to standard error.
func (s *session) say(format string, args ...any) {
	_, _ = fmt.Fprintf(s.env.Err, "kdiag: "+format+"\n", args...)
}

// print prints the document and ends the command with a code.
func (s *session) print(code int) error {
	s.doc.GeneratedAt = s.env.Now().UTC().Truncate(time.Second)
	if err := render.GC(s.env.Out, s.doc, answer.Render(s.env, &s.opts.Flags)); err != nil {
		return err
	}
	if code != 0 {
		return &cli.ExitError{Code: code}
	}
	return nil
}

// notes say on a standard error that is no terminal when a run pauses and when it goes on.
type notes struct {
	env    cli.Env
	paused string
}

func (n *notes) take(now gc.Progress) {
	if n.env.ErrTTY || now.Paused == n.paused {
		return
	}
	n.paused = now.Paused
	line := "going on"
	if now.Paused != "" {
		line = "paused: " + now.Paused
	}
	_, _ = fmt.Fprintf(n.env.Err, "kdiag: %s (%d of %d removed)\n", line, now.Removed, now.Total)
}

// lockedHint is the advice when another run is at work.
func lockedHint(err error) error {
	if locked, ok := errors.AsType[*gc.LockedError](err); ok {
		return &cli.HintError{Err: locked, Code: cli.ExitUnknown, Hint: "wait for it, or stop it with SIGINT: it then ends after the calls in flight"}
	}
	return &cli.HintError{Err: err, Code: cli.ExitUnknown, Hint: "nothing was removed"}
}
