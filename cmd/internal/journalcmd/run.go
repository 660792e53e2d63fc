package journalcmd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/cmd/internal/archive"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/cmd/internal/dumps"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/crictl/deadline"
	"github.com/kdiag/kdiag/journal"
)

// A session is one run of the command.
type session struct {
	env  cli.Env
	opts *options
	how  render.Options
	page *cli.Destination // of --html; nil without
}

// errOutOfTime is why a reading ended that took longer than --timeout.
var errOutOfTime = errors.New("what was left after --timeout")

func run(ctx context.Context, env cli.Env, opts *options, args []string) error {
	var from []journal.Input
	if opts.From != "" {
		b, err := archive.Open(ctx, env, &opts.Flags, "--from", opts.From)
		if err != nil {
			return err
		}
		defer b.Close()
		if from, err = b.Logs(); err != nil {
			return err
		}
		b.Say(env)
		if !b.At.IsZero() {
			at := b.At.In(env.Now().Location())
			env.Now = func() time.Time { return at } // what lasts, lasted until then
		}
	}
	reading, err := opts.reading(env, args, from)
	if err != nil {
		return err
	}
	s := &session{env: env, opts: opts, how: document.Options(env, &opts.Flags)}
	if s.page, err = cli.OpenPage(opts.html); err != nil {
		return err
	}
	defer s.page.Close()
	limited, cancel := context.WithCancel(ctx)
	if opts.timed {
		asking, _ := opts.Budget()
		limited, cancel = context.WithTimeoutCause(ctx, asking, errOutOfTime)
	}
	defer cancel()
	read := s.read
	if opts.follow {
		read = s.follow
	}
	r, err := read(limited, reading)
	cli.Log(env, opts.Verbose).Debug("read", "inputs", reading.Inputs, "timed", opts.timed, "err", err,
		"ended", context.Cause(limited))
	return s.finish(ctx, limited, r, reading, err)
}

// read reads all, with progress on standard error. When the context ends, it has a moment to return what was read;
// after that it is abandoned: a read may hang in the kernel.
func (s *session) read(ctx context.Context, reading journal.Options) (*journal.Report, error) {
	progress := document.NewProgress(s.env)
	defer progress.Done()
	reading.Progress = func(p journal.Progress) { progress.Reading(p.Source, p.Read, p.Total, p.Records) }
	return deadline.RunGrace(ctx, "reading the logs", cli.Margin, func(ctx context.Context) (*journal.Report, error) {
		return journal.Read(ctx, reading)
	})
}

// follow prints what happens until it is interrupted. Formats for programs get one document, at the end.
func (s *session) follow(ctx context.Context, reading journal.Options) (*journal.Report, error) {
	live := render.NewJournalFollower(s.env.Out, s.how)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var last *journal.Report
	err := journal.Follow(ctx, reading, func(r *journal.Report, e journal.Event) {
		if r != last {
			judge.Journal(r)
		}
		last = r
		if s.how.Format != render.Text {
			return
		}
		if err := live.Update(r, e); err != nil {
			cancel(err) // nobody reads any more
		}
	})
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) || errors.Is(err, context.Canceled) {
		err = nil
	}
	return last, err
}

// finish prints the answer, writes the page, and chooses the exit code. err is why the reading ended early.
func (s *session) finish(ctx, limited context.Context, r *journal.Report, reading journal.Options, err error) error {
	quiet := s.opts.follow && r == nil && err == nil
	interrupted := ctx.Err() != nil && !s.opts.follow
	if cause := context.Cause(limited); cause != nil && !s.opts.follow && (r == nil || err != nil) {
		err = cause
	}
	if r == nil {
		r = &journal.Report{
			Episodes: []journal.Episode{}, Signatures: []journal.Count{}, Events: []journal.Event{},
			Sources: []journal.Source{}, Unreadable: []journal.Unreadable{},
		}
	}
	for i := range r.Sources { // the next record may be the first of an empty file
		if s.opts.follow && err == nil && r.Sources[i].Problem == journal.ErrEmpty.Error() {
			r.Sources[i].Problem = ""
		}
	}
	if quiet {
		r.Notes = []string{"nothing was logged while kdiag followed"}
	}
	r.APIVersion, r.Kind, r.KdiagVersion = journal.APIVersion, "JournalReport", cli.Version()
	r.Command = "kdiag journal"
	r.GeneratedAt = cmp.Or(r.GeneratedAt, s.env.Now().UTC()).Truncate(time.Second)
	r.Partial = err != nil
	r.Goroutines = judge.DumpLines(dumps.FromLogs(ctx, r))
	judge.Journal(r)
	if r.Verdict == checks.LogUnknown && !quiet {
		return s.nothing(r, reading, err, interrupted)
	}
	if note := rangeNote(r, reading); note != "" {
		r.Notes = append(r.Notes, note)
	}
	if err != nil {
		r.Notes = append(r.Notes, "Not read: "+err.Error())
	}
	if err := s.print(r); err != nil {
		return err
	}
	switch {
	case interrupted:
		return &cli.ExitError{Code: cli.ExitUnknown}
	case r.Headline() != nil || r.Status == string(checks.Unhealthy):
		return &cli.ExitError{Code: cli.ExitProblem}
	case err != nil && !s.opts.follow:
		return cli.Fail(err, cli.ExitUnknown, hint(err))
	}
	return nil
}

// print prints the whole answer, after following in text only how it ended; it writes the page, and prints on
// standard error what the answer is without, where its format does not show that to a person.
func (s *session) print(r *journal.Report) error {
	show := func() error { return render.JournalReport(s.env.Out, r, s.how, s.opts.details) }
	if s.opts.follow && s.how.Format == render.Text {
		show = func() error { return render.JournalHeadline(s.env.Out, r, s.how) }
	}
	if err := show(); err != nil {
		return err
	}
	if problem := unread(r); problem != "" && (s.how.Format != render.Text || s.opts.follow) {
		_, _ = fmt.Fprintln(s.env.Err, "kdiag: "+render.Printable(problem))
	}
	if s.page == nil {
		return nil
	}
	var page bytes.Buffer
	if err := render.JournalHTML(&page, r); err != nil {
		return err
	}
	return s.page.Write(page.Bytes())
}

// rangeNote returns which range of time was asked for, and whether nothing of what was read lies in it: then that
// nothing was found means nothing.
func rangeNote(r *journal.Report, reading journal.Options) string {
	since, until, text := reading.Since, reading.Until, "only records"
	if since.IsZero() && until.IsZero() {
		return ""
	}
	if !since.IsZero() {
		text += " after " + since.Format(cli.Zoned)
	}
	if !until.IsZero() {
		text += " before " + until.Format(cli.Zoned)
	}
	text += " count"
	if r.From == nil || r.To == nil || r.To.Before(since) || !until.IsZero() && r.From.After(until) {
		text += ", and no record that was read does"
	}
	return text
}

// unread returns what kept the first source from being read, and how many others there are; empty if all were.
func unread(r *journal.Report) string {
	bad := slices.DeleteFunc(slices.Clone(r.Sources), func(s journal.Source) bool { return s.Problem == "" })
	switch len(bad) {
	case 0:
		return ""
	case 1:
		return bad[0].Name + ": " + bad[0].Problem
	}
	return fmt.Sprintf("%s: %s; and %d more that could not be read", bad[0].Name, bad[0].Problem, len(bad)-1)
}

// nothing ends a command that could look at nothing: one line, and a hint. A program that asked for a document gets
// one.
func (s *session) nothing(r *journal.Report, reading journal.Options, err error, interrupted bool) error {
	if problem := unread(r); problem != "" && !errors.Is(err, errOutOfTime) {
		err = errors.New(problem)
	}
	err = cmp.Or(err, errors.New("there was nothing to read"))
	advice := hint(err)
	if errors.Is(err, errOutOfTime) && len(r.Sources) == 0 && len(reading.Inputs) > 0 {
		err = fmt.Errorf("%s: nothing was read by the end of --timeout",
			cmp.Or(reading.Inputs[0].Path, "standard input"))
	}
	if s.how.Format != render.Text {
		if len(r.Sources) == 0 {
			for _, in := range reading.Inputs {
				r.Sources = append(r.Sources, journal.Source{Name: in.Path, Problem: err.Error()})
			}
		}
		judge.Journal(r)
		if err := render.JournalReport(s.env.Out, r, s.how, s.opts.details); err != nil {
			return err
		}
	}
	if interrupted {
		return &cli.ExitError{Code: cli.ExitUnknown}
	}
	return cli.Fail(err, cli.ExitUnknown, advice)
}

// hint returns what to do about an error. Errors that came through a report are words only.
func hint(err error) string {
	for _, h := range []struct {
		err  error
		text string
	}{
		{errOutOfTime, "give it more time, such as --timeout 5m, or less to read, such as --since -1h"},
		{fs.ErrPermission, "run kdiag as root (sudo kdiag journal ...), or as a member of the group systemd-journal"},
		{syscall.ENOENT, "check the path; without one, kdiag journal reads this node's own logs"},
		{journal.ErrNoJournal, "name what to read: kdiag journal FILE..., --directory DIR, --root DIR, or a pipe"},
		{journal.ErrNoLogs, "name a folder that holds *.journal files or text logs, or the files themselves"},
		{journal.ErrNoMatch, "quote the pattern, and try it with ls"},
		{journal.ErrNoBoot, "journalctl --list-boots lists the boots; --boot 0 is the last"},
		{journal.ErrNotLog, "name a log of the kubelet, the runtime or the kernel, such as that of journalctl -u kubelet > " +
			"kubelet.log; --from FILE reads an archive of kdiag bundle"},
		{journal.ErrEmpty, "was it copied whole? kdiag journal </dev/null reads this node's own logs"},
	} {
		if errors.Is(err, h.err) || strings.Contains(err.Error(), h.err.Error()) {
			return h.text
		}
	}
	return "kdiag journal --help shows what can be read"
}
