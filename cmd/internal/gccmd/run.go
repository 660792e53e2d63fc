package gccmd

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/cmd/internal/answer"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/cmd/internal/target"
	"github.com/kdiag/kdiag/crictl/deadline"
	"github.com/kdiag/kdiag/crictl/gc"
	"github.com/kdiag/kdiag/plegbench"
)

// A session is the state of one command.
type session struct {
	env    cli.Env
	opts   *options
	t      *target.Target
	look   target.Snapshot
	ends   map[string]gc.End
	older  *gc.PlanFile // of --apply
	lock   io.Closer
	doc    *render.GCReport
	paused time.Time // since when the run pauses; zero if it does not
	noted  bool      // whether that was written to stderr
}

func run(ctx context.Context, env cli.Env, opts *options) error {
	if opts.Simulate == "help" {
		return target.PrintScenarios(env.Out)
	}
	s := &session{env: env, opts: opts, ends: map[string]gc.End{}, doc: &render.GCReport{
		Header: target.Header(env, "GCReport"), Missing: []string{}, Notes: []string{}, Problems: []string{},
		Report: gc.Report{DryRun: true, Result: gc.Result{Skipped: []gc.Skipped{}, Failed: []gc.Failed{}}},
	}}
	asking, _ := opts.Budget()
	within, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	defer s.close()
	err := s.run(ctx, within)
	if _, printed := errors.AsType[*cli.ExitError](err); err == nil || printed {
		return err
	}
	problems, err := answer.Unopened(err, opts.Output) // a program that asked for a document gets one
	if err != nil {
		return err
	}
	s.doc.Problems = append(s.doc.Problems, problems...)
	return s.print(cli.ExitUnknown)
}

func (s *session) close() {
	if s.t != nil {
		s.t.Close()
	}
	if s.lock != nil {
		_ = s.lock.Close() // the end of the process releases it in any case
	}
}

// run prepares a plan, and saves it, asks about it, removes what it lists, or prints it. within has the command's
// deadline.
func (s *session) run(ctx, within context.Context) error {
	var dest *cli.Destination
	if s.opts.plan != "" {
		var err error
		dest, err = disk(within, "--plan", func() (*cli.Destination, error) {
			return cli.OpenDestination("--plan", s.opts.plan)
		})
		if err != nil {
			return err
		}
		defer func() {
			_, _ = disk(within, "--plan", func() (any, error) { dest.Close(); return nil, nil })
		}()
	}
	code, err := s.prepare(ctx, within)
	switch {
	case err != nil:
		return err
	case code != 0:
		return s.print(code)
	case dest != nil:
		return s.save(within, dest)
	case s.opts.yes:
		return s.remove(ctx, within)
	case len(s.doc.Plan.Remove) > 0 && s.opts.Output == string(render.Text) && s.env.InTTY && s.env.OutTTY:
		return s.ask(ctx, within)
	case s.opts.audit != "" && len(s.doc.Plan.Remove) > 0:
		s.say("nothing is removed without --yes, so nothing is written to %s", s.opts.audit)
	}
	return s.print(cli.ExitHealthy)
}

// prepare reads the node and makes the plan. The code is that of an answer without a plan; 0 means that there is one.
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
	s.look = s.t.TakeSnapshot(within, s.env, s.opts.Sources)
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
		if err := s.readPlan(within); err != nil {
			return 0, err
		}
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

// readPlan reads the file of --apply, and takes its rules.
func (s *session) readPlan(ctx context.Context) error {
	name := s.opts.apply
	older, err := deadline.Run(ctx, func(context.Context) (*gc.PlanFile, error) {
		if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s is no regular file", name)
		}
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return gc.ReadPlan(f, s.look.Runtime)
	})
	if err != nil {
		return &cli.UsageError{
			Problem: "--apply " + name + ": " + err.Error(),
			Hint:    "kdiag gc-exited --plan FILE writes a plan; nothing was removed",
		}
	}
	switch risky := older.Plan.Rules.IgnorePodLiveness; {
	case risky && s.opts.yes && s.opts.liveness != livenessKnown:
		return &cli.UsageError{
			Problem: "the plan in " + name + " was made with --ignore-pod-liveness",
			Hint:    "give it again: --ignore-pod-liveness=" + livenessKnown,
		}
	case !risky && s.opts.liveness != "":
		s.say("the plan in %s was made without --ignore-pod-liveness, so that changes nothing here", name)
	}
	s.older, s.opts.Rules = older, older.Plan.Rules
	return nil
}

// makePlan asks for the ends that are not known yet, and plans.
func (s *session) makePlan(ctx context.Context, progress *render.Progress) {
	rules := s.opts.Rules
	if s.older != nil {
		rules.Limit = 0 // it applied to the older plan, of which all is asked for that may still be removed
	}
	s.look.Node.Finished = func(id string) (time.Time, bool) {
		end, ok := s.ends[id]
		return end.FinishedAt, ok
	}
	missed := s.readEnds(ctx, rules, progress)
	plan := gc.Make(s.look.Node, rules, s.env.Now())
	if s.older != nil {
		narrowed, skipped := gc.Narrow(s.older.Plan, plan)
		narrowed.Keep, narrowed.KeptBy = plan.Keep, plan.KeptBy
		plan, s.doc.Skipped = narrowed, skipped
	}
	s.doc.Plan, s.doc.EndsMissed, s.doc.Notes = plan, missed.Count, []string{}
	note := func(format string, args ...any) { s.doc.Notes = append(s.doc.Notes, fmt.Sprintf(format, args...)) }
	if missed.Count > 0 {
		if missed.First == "" {
			missed.First = "the time was up"
		}
		note("the runtime did not say of %d containers when they ended, so they stay: %s", missed.Count, missed.First)
	}
	if s.look.Keep != "" && rules.Keep == 0 {
		note("how many of each container the kubelet keeps is not known: %s; %d is taken, --keep N for more",
			s.look.Keep, plan.Newest)
	}
}

// readEnds asks for the ends of the candidates, oldest first: of all, or with a limit in batches until enough may be
// removed.
func (s *session) readEnds(ctx context.Context, rules gc.Rules, progress *render.Progress) gc.Missed {
	ask := slices.DeleteFunc(gc.Candidates(s.look.Node, rules, s.env.Now()), func(c gc.Candidate) bool {
		_, known := s.ends[c.ID]
		return known
	})
	total, batch := len(ask), max(1, len(ask))
	if rules.Limit > 0 {
		batch = max(64, rules.Limit)
	}
	var missed gc.Missed
	for len(ask) > 0 && !s.enough(rules) {
		n := min(batch, len(ask))
		ends, failed := gc.ReadEnds(ctx, s.t.Client, ask[:n], func(asked int) {
			progress.Update(plegbench.Progress{Phase: "inspect", Done: total - len(ask) + asked, Total: total})
		})
		for id, end := range ends {
			s.ends[id] = end
		}
		ask = ask[n:]
		missed.Count += failed.Count
		if missed.First == "" {
			missed.First = failed.First
		}
		if ctx.Err() != nil || failed.Count == n { // the runtime does not answer: the next batch would only wait as long
			missed.Count += len(ask)
			break
		}
	}
	return missed
}

// enough reports whether the containers whose ends are known reach the plan's limit.
func (s *session) enough(rules gc.Rules) bool {
	if rules.Limit == 0 || len(s.ends) < rules.Limit {
		return false
	}
	all := gc.Make(s.look.Node, rules, s.env.Now()).Remove // containers come first
	return len(all) >= rules.Limit && all[rules.Limit-1].Kind == gc.KindContainer
}

// save writes the plan to the file of --plan, and prints it.
func (s *session) save(ctx context.Context, dest *cli.Destination) error {
	var buf bytes.Buffer
	if err := gc.WritePlan(&buf, s.doc.Plan, s.look.Runtime, s.env.Now()); err != nil {
		return err
	}
	if _, err := disk(ctx, "--plan", func() (any, error) { return nil, dest.Write(buf.Bytes()) }); err != nil {
		return err
	}
	s.say("the plan is in %s; %s removes what of it may still go",
		s.opts.plan, s.opts.remove(s.opts.plan, s.opts.liveness != ""))
	return s.print(cli.ExitHealthy)
}

// ask shows the plan on a terminal and removes after a yes. The lists are read again then, because the answer may have
// taken long: what would not be planned now stays.
func (s *session) ask(ctx, within context.Context) error {
	if err := render.Plan(s.env.Out, s.doc, answer.Render(s.env, &s.opts.Flags)); err != nil {
		return err
	}
	in := bufio.NewReader(s.env.In)
	yes, err := s.question(within, in, fmt.Sprintf("Remove these %d? [y/N] ", len(s.doc.Plan.Remove)), "y", "yes")
	if yes && s.opts.IgnorePodLiveness && s.opts.liveness != livenessKnown {
		_, _ = fmt.Fprintf(s.env.Err, "Whether pods live is ignored. %s\n", render.LivenessRisk)
		yes, err = s.question(within, in, "Type "+livenessKnown+" to go on: ", livenessKnown)
	}
	if !yes {
		_, _ = io.WriteString(s.env.Err, "Nothing was removed.\n")
		if err != nil || ctx.Err() != nil {
			return &cli.ExitError{Code: cli.ExitUnknown}
		}
		return nil
	}
	shown := s.doc.Plan
	s.t.Relist(within, &s.look)
	if s.look.Problem != "" {
		return s.print(s.unable(ctx, s.look.Problem))
	}
	progress := s.progress()
	s.makePlan(within, progress)
	progress.Done()
	plan, changed := gc.Narrow(shown, s.doc.Plan)
	s.doc.Plan, s.doc.Skipped = plan, append(s.doc.Skipped, changed...)
	return s.remove(ctx, within)
}

// question asks on the terminal and reports whether the answer is one of want.
func (s *session) question(ctx context.Context, in *bufio.Reader, text string, want ...string) (bool, error) {
	_, _ = io.WriteString(s.env.Err, text)
	line, err := deadline.Run(ctx, func(context.Context) (string, error) {
		line, err := in.ReadString('\n')
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return line, err
	})
	return slices.Contains(want, strings.ToLower(strings.TrimSpace(line))), err
}

// remove runs the plan. Whatever fails before the first removal is an error without one.
func (s *session) remove(ctx, within context.Context) error {
	if err := s.acquire(); err != nil {
		return err
	}
	plan, before := s.doc.Plan, s.doc.Skipped
	var audit *gc.Audit
	if s.opts.audit != "" {
		var err error
		audit, err = disk(within, "--audit", func() (*gc.Audit, error) {
			return gc.OpenAudit(s.opts.audit, s.look.Runtime, len(plan.Remove), s.env.Now())
		})
		if err != nil {
			return &cli.HintError{Err: err, Code: cli.ExitUnknown, Hint: "nothing was removed; name a file on a disk with room"}
		}
	}
	progress := s.progress()
	result, runErr := gc.Run(within, s.t.Client, plan, gc.Options{
		Rate: s.opts.rate, Audit: audit, Progress: func(now gc.Progress) { progress.Removing(now); s.notePause(now) },
	})
	progress.Done()
	if audit != nil {
		_, err := disk(within, "--audit", func() (any, error) { return nil, audit.Close(result.Removed, s.env.Now()) })
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
	case s.doc.Stopped != "" || len(result.Failed)+result.Left > 0:
		return s.print(cli.ExitProblem)
	}
	return s.print(cli.ExitHealthy)
}

// notePause writes to a stderr that is no terminal when a run pauses for more than a second, and when it continues.
func (s *session) notePause(now gc.Progress) {
	switch {
	case s.env.ErrTTY:
	case now.Paused == "":
		if s.noted {
			s.say("going on (%d of %d removed)", now.Removed, now.Total)
		}
		s.paused, s.noted = time.Time{}, false
	case s.paused.IsZero():
		s.paused = time.Now()
	case !s.noted && time.Since(s.paused) > time.Second:
		s.noted = true
		s.say("paused: %s (%d of %d removed)", now.Paused, now.Removed, now.Total)
	}
}

// acquire keeps other runs away from the runtime from now on. The lock file is beside the socket: who can reach the one
// can reach the other, also from within a container, where the folder may have another name, so the file's name does
// not depend on that. Where nothing can be written there it is in /run/lock.
func (s *session) acquire() error {
	if s.lock != nil {
		return nil
	}
	socket := strings.TrimPrefix(s.t.Endpoint.URL, "unix://")
	if real, err := filepath.EvalSymlinks(socket); err == nil {
		socket = real
	}
	lock, err := gc.TakeLock(gc.LockPath(filepath.Dir(socket), filepath.Base(socket)))
	if err != nil && !errors.Is(err, gc.ErrLocked) {
		var second error
		lock, second = gc.TakeLock(gc.LockPath(filepath.Join(s.env.Root, "run/lock"), socket))
		if second == nil || errors.Is(second, gc.ErrLocked) {
			err = second
		}
	}
	switch {
	case errors.Is(err, gc.ErrLocked):
		return &cli.HintError{
			Err: err, Code: cli.ExitUnknown,
			Hint: "wait for it, or stop it with SIGINT: it then ends after the calls in flight",
		}
	case err != nil:
		return &cli.HintError{Err: err, Code: cli.ExitUnknown, Hint: "nothing was removed"}
	}
	s.lock = lock
	return nil
}

// disk runs what may block on a dead disk. It waits a little longer than ctx, because what was removed should be
// recorded then too.
func disk[T any](ctx context.Context, flag string, f func() (T, error)) (T, error) {
	grace := 2 * time.Second // after an interrupt
	if end, ok := ctx.Deadline(); ok {
		grace = min(grace, max(0, time.Until(end))+cli.Margin*2/3)
	}
	out, err := deadline.RunGrace(ctx, grace, func(context.Context) (T, error) { return f() })
	if errors.Is(err, deadline.ErrAbandoned) {
		err = &cli.HintError{
			Err: fmt.Errorf("the disk of %s does not answer", flag), Code: cli.ExitUnknown, Hint: "name a file on another disk",
		}
	}
	return out, err
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
