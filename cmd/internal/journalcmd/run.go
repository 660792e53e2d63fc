package journalcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/cmd/internal/answer"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/cmd/internal/target"
	"github.com/kdiag/kdiag/crictl/deadline"
	"github.com/kdiag/kdiag/journal"
)

// A session is one run of the command.
type session struct {
	env  cli.Env
	opts *options
	how  render.Options
	log  *slog.Logger
	page *cli.Destination // of --html; nil without
}

func run(ctx context.Context, env cli.Env, opts *options, args []string, timeoutAsked bool) error {
	reading, own, err := opts.reading(env, args)
	if err != nil {
		return err
	}
	s := &session{env: env, opts: opts, how: answer.Render(env, &opts.Flags), log: cli.Log(env, opts.Verbose)}
	if opts.html != "" {
		if s.page, err = openPage(opts.html); err != nil {
			return err
		}
		defer s.page.Close()
	}
	for _, in := range reading.Inputs {
		s.log.Debug("input", "kind", in.Kind, "path", in.Path)
	}
	limited, cancel := opts.limit(ctx, own, timeoutAsked)
	defer cancel()
	read := s.read
	if opts.follow {
		read = s.follow
	}
	r, err := read(limited, reading)
	s.log.Debug("read", "err", err, "ended", context.Cause(limited))
	return s.finish(ctx, limited, r, reading, err)
}

// openPage prepares for writing the page. Only an older page of kdiag is replaced: anything else may be the very log
// that was asked about.
func openPage(name string) (*cli.Destination, error) {
	d, err := cli.OpenDestination("--html", name)
	if err != nil || !d.Exists {
		return d, err
	}
	var head []byte
	f, err := os.Open(d.Path)
	if err == nil {
		head, err = io.ReadAll(io.LimitReader(f, 4096))
		_ = f.Close() // was only read
	}
	if err != nil || len(head) > 0 && !bytes.Contains(head, []byte(render.PageMark)) {
		d.Close()
		return nil, &cli.UsageError{
			Problem: "--html " + name + " is there, and kdiag did not make it",
			Hint:    "name another file; only an older page of kdiag is replaced",
		}
	}
	return d, nil
}

// read reads all, with progress on standard error. When the context ends, it has a moment to return what was read;
// after that it is left behind: a read may hang in the kernel.
func (s *session) read(ctx context.Context, reading journal.Options) (*journal.Report, error) {
	progress := render.NewProgress(s.env.Err, s.env.ErrTTY, s.env.Width)
	progress.ASCII = s.env.ASCII()
	reading.Progress = func(p journal.Progress) { progress.Reading(p.Source, p.Read, p.Total, p.Records) }
	defer progress.Done()
	return deadline.RunGrace(ctx, cli.Margin, func(ctx context.Context) (*journal.Report,
		error,
	) {
		return journal.Read(ctx, reading)
	})
}

// follow prints what happens until it is interrupted. Formats for programs get one document, at the end.
func (s *session) follow(ctx context.Context, reading journal.Options) (*journal.Report, error) {
	live := render.NewJournalFollower(s.env.Out, s.how)
	var (
		mu   sync.Mutex
		last *journal.Report
	)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	_, err := deadline.RunGrace(ctx, cli.Margin, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, journal.Follow(ctx, reading, func(r *journal.Report, e journal.Event) {
			mu.Lock()
			defer mu.Unlock()
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
	})
	mu.Lock()
	defer mu.Unlock()
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) || errors.Is(err, context.Canceled) {
		err = nil
	}
	return last, err
}

// finish prints the answer, writes the page, and chooses the exit code.
func (s *session) finish(ctx, limited context.Context, r *journal.Report, reading journal.Options, err error) error {
	late := limited.Err() != nil && ctx.Err() == nil
	interrupted := ctx.Err() != nil && !s.opts.follow
	why := err // why the reading ended: its own error, unless that only is the end of its context
	if limited.Err() != nil && (err == nil || errors.Is(err, limited.Err()) || errors.Is(err, deadline.ErrAbandoned)) {
		why = context.Cause(limited)
	}
	quiet := s.opts.follow && r == nil && err == nil
	if r == nil {
		r = &journal.Report{
			Episodes: []journal.Episode{}, Signatures: []journal.Count{}, Events: []journal.Event{},
			Sources: []journal.Source{}, Unreadable: []journal.Unreadable{},
		}
	}
	if quiet {
		r.Notes = []string{"nothing was logged while kdiag followed"}
	}
	r.Partial = err != nil
	judge.Journal(r)
	s.stamp(r)
	if r.Status == string(checks.Unknown) && !quiet {
		return s.nothing(r, reading, why, interrupted)
	}
	if note := rangeNote(r, reading); note != "" {
		r.Notes = append(r.Notes, note)
	}
	if err != nil {
		r.Notes = append(r.Notes, "this is not all: "+why.Error())
	}
	if err := s.print(r); err != nil {
		return err
	}
	incident := r.Headline() != nil
	switch {
	case interrupted, !late && err != nil && !incident && !s.opts.follow:
		return &cli.ExitError{Code: cli.ExitUnknown}
	case late && !incident && !s.opts.follow:
		return &cli.HintError{Err: errOutOfTime, Code: cli.ExitUnknown, Hint: hint(errOutOfTime)}
	case incident:
		return &cli.ExitError{Code: cli.ExitProblem}
	}
	return nil
}

// print prints the whole answer, after following in text only how it ended; it writes the page, and prints on
// standard error what the answer is without, where its format does not show that to a person.
func (s *session) print(r *journal.Report) error {
	show := render.JournalReport
	if s.opts.follow && s.how.Format == render.Text {
		show = render.JournalHeadline
	}
	if err := show(s.env.Out, r, s.how); err != nil {
		return err
	}
	if s.page != nil {
		var page bytes.Buffer
		if err := render.JournalHTML(&page, r); err != nil {
			return err
		}
		if err := s.page.Write(page.Bytes()); err != nil {
			return err
		}
	}
	if s.how.Format == render.Text && !s.opts.follow {
		return nil
	}
	const most = 5
	list := unread(r)
	for _, problem := range list[:min(len(list), most)] {
		_, _ = fmt.Fprintln(s.env.Err, "kdiag: "+render.Printable(problem))
	}
	if n := len(list) - most; n > 0 {
		_, _ = fmt.Fprintf(s.env.Err, "kdiag: and %d more sources were not read whole\n", n)
	}
	return nil
}

// rangeNote returns which range of time was asked for, and whether nothing of what was read lies in it: then that nothing
// was found means nothing.
func rangeNote(r *journal.Report, reading journal.Options) string {
	since, until := reading.Since, reading.Until
	var ends []string
	if !since.IsZero() {
		ends = append(ends, "after "+since.Format(zoned))
	}
	if !until.IsZero() {
		ends = append(ends, "before "+until.Format(zoned))
	}
	if ends == nil {
		return ""
	}
	text := "only what lies " + strings.Join(ends, " and ") + " was asked for"
	early := r.To != nil && !since.IsZero() && r.To.Before(since)
	late := r.From != nil && !until.IsZero() && r.From.After(until)
	if early || late || r.From == nil && r.To == nil {
		text += ", and no record that was read does"
	}
	return text
}

// stamp fills in what only the command knows.
func (s *session) stamp(r *journal.Report) {
	r.APIVersion, r.Kind, r.KdiagVersion = journal.APIVersion, "JournalReport", target.Version()
	if r.GeneratedAt.IsZero() {
		r.GeneratedAt = s.env.Now().UTC()
	}
	r.GeneratedAt = r.GeneratedAt.Truncate(time.Second)
}

// unread returns what kept sources from being read, with their names.
func unread(r *journal.Report) []string {
	var list []string
	for _, src := range r.Sources {
		if src.Problem != "" {
			list = append(list, src.Name+": "+src.Problem)
		}
	}
	return list
}

// nothing ends a command that could look at nothing: one line, and a hint. A program that asked for a document gets
// one.
func (s *session) nothing(r *journal.Report, reading journal.Options, err error, interrupted bool) error {
	if err == nil {
		err = errors.New("there was nothing to read")
	}
	message := err
	if list := unread(r); len(list) > 0 && !errors.Is(err, errOutOfTime) {
		message = errors.New(list[0])
		if len(list) > 1 {
			message = fmt.Errorf("%w; and %d more that could not be read", message, len(list)-1)
		}
	}
	if s.how.Format != render.Text {
		if len(r.Sources) == 0 {
			for _, in := range reading.Inputs {
				r.Sources = append(r.Sources, journal.Source{Name: in.Path, Problem: message.Error()})
			}
			judge.Journal(r)
		}
		if err := render.JournalReport(s.env.Out, r, s.how); err != nil {
			return err
		}
	}
	if interrupted {
		return &cli.ExitError{Code: cli.ExitUnknown}
	}
	advice := hint(message)
	if advice == generalHint {
		advice = hint(err)
	}
	return &cli.HintError{Err: message, Hint: advice, Code: cli.ExitUnknown}
}

// generalHint is for errors about which nothing more is known.
const generalHint = "kdiag journal --help says what can be read"

// hint returns what to do about an error. Errors that came through a report are words only.
func hint(err error) string {
	for _, h := range []struct {
		err  error
		text string
	}{
		{errOutOfTime, "give it more time, such as --timeout 5m, or less to read, such as --since -1h"},
		{fs.ErrPermission, "run kdiag as root (sudo kdiag journal ...), or as a member of the group systemd-journal or adm"},
		{fs.ErrNotExist, "check the path; without one, kdiag journal reads this node's own logs"},
		{syscall.ENOENT, "check the path; without one, kdiag journal reads this node's own logs"},
		{journal.ErrNoJournal, "name what to read: kdiag journal FILE..., --directory DIR, --root DIR, or a pipe"},
		{journal.ErrNoLogs, "name a folder that holds *.journal files or text logs, or the files themselves"},
		{journal.ErrNoMatch, "quote the pattern, and try it with ls"},
		{journal.ErrNoBoot, "journalctl --list-boots lists the boots; --boot 0 is the last"},
		{journal.ErrEmpty, "was it copied whole? kdiag journal </dev/null reads this node's own logs"},
	} {
		if errors.Is(err, h.err) || strings.Contains(err.Error(), h.err.Error()) {
			return h.text
		}
	}
	return generalHint
}
