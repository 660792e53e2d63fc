package gccmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/connection"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/cmd/internal/snapshot"
	"github.com/kdiag/kdiag/crictl/deadline"
	"github.com/kdiag/kdiag/crictl/gc"
	"github.com/kdiag/kdiag/plegbench"
)

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
	asking, _ := opts.Budget()
	within, cancel := context.WithTimeout(ctx, asking)
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
