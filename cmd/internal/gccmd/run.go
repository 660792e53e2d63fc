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
	held  *gc.Lock
	doc   *render.GCReport
}

func run(ctx context.Context, env cli.Env, opts options) error {
	if opts.Simulate == "help" {
		return target.PrintScenarios(env.Out)
	}
	s := &session{env: env, opts: &opts, ends: map[string]gc.End{}, doc: &render.GCReport{
		Header: target.Header(env, "GCReport"), Missing: []string{}, Notes: []string{}, Problems: []string{},
		Report: gc.Report{DryRun: true, Plan: gc.NoPlan(), Result: gc.Result{Skipped: []gc.Skipped{}, Failed: []gc.Failed{}}},
	}}
	within, cancel := opts.deadline(ctx)
	defer cancel()
	defer s.close()
	return s.refused(s.run(ctx, within))
}

// close gives back what a session holds.
func (s *session) close() {
	if s.t != nil {
		s.t.Close()
	}
	if s.held != nil {
		_ = s.held.Close() // its end is the process's in any case
	}
}

// refused prints the document of a command that was refused, for a program that asked for one.
func (s *session) refused(err error) error {
	if _, printed := errors.AsType[*cli.ExitError](err); err == nil || printed {
		return err
	}
	problems, err := answer.Unopened(err, s.opts.Output)
	if err != nil {
		return err
	}
	s.doc.Problems = append(s.doc.Problems, problems...)
	return s.print(cli.ExitUnknown)
}

func (s *session) run(ctx, within context.Context) error {
	var dest *cli.Destination
	if s.opts.plan != "" {
		var err error
		if dest, err = s.destination(within); err != nil {
			return err
		}
		defer func() {
			_, _ = disk(within, "--plan", func() (struct{}, error) { dest.Close(); return struct{}{}, nil })
		}()
	}
	code, err := s.prepare(ctx, within)
	if err != nil {
		return err
	}
	if code != 0 {
		return s.print(code)
	}
	switch {
	case dest != nil:
		return s.save(within, dest)
	case s.opts.yes:
		return s.remove(ctx, within)
	case len(s.doc.Plan.Remove) == 0:
		return s.print(cli.ExitHealthy)
	case s.opts.Output == string(render.Text) && s.env.InTTY && s.env.OutTTY:
		return s.ask(ctx, within)
	}
	if s.opts.audit != "" {
		s.say("nothing is removed without --yes, so nothing is written to %s", s.opts.audit)
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
	if s.opts.yes { // before the runtime is asked for thousands of ends
		if err := s.acquire(); err != nil {
			return 0, err
		}
	}
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
		if s.opts.liveness != "" && !s.older.Plan.Rules.IgnorePodLiveness {
			s.say("the plan in %s was made without --ignore-pod-liveness, so that changes nothing here", s.opts.apply)
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
	s.doc.Down = true
	return cli.ExitProblem
}

// remove runs the plan. Everything that can go wrong before the first removal is an error without one.
func (s *session) remove(ctx, within context.Context) error {
	if err := s.acquire(); err != nil {
		return err
	}
	plan, before := s.doc.Plan, s.doc.Skipped
	audit, err := s.openAudit(within)
	if err != nil {
		return err
	}
	progress := s.progress()
	notes := notes{s.env, ""}
	result, runErr := gc.Run(within, s.t.Client, plan, gc.Options{
		Rate: s.opts.rate, Audit: audit, Logs: s.logs(), Progress: func(now gc.Progress) { progress.Removing(now); notes.take(now) },
	})
	progress.Done()
	if audit != nil {
		_, err := disk(within, "--audit", func() (struct{}, error) { return struct{}{}, audit.Close(result.Removed, s.env.Now()) })
		if err != nil && runErr == nil {
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

// acquire keeps other runs away from now on.
func (s *session) acquire() (err error) {
	if s.held == nil {
		s.held, err = s.lock()
	}
	return err
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
	if code == cli.ExitHealthy && s.doc.EndsMissed > 0 {
		code = cli.ExitProblem
	}
	s.doc.NextSteps = s.nextSteps()
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
