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
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/cmd/internal/answer"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/cmd/internal/target"
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
		if s.page, err = cli.OpenDestination("--html", opts.html); err != nil {
			return err
		}
		defer s.page.Close()
		if s.page.Exists && !isPage(s.page.Path) {
			return &cli.UsageError{
				Problem: "--html " + opts.html + " is there, and kdiag did not make it",
				Hint:    "name another file; only an older page of kdiag is replaced",
			}
		}
	}
	for _, in := range reading.Inputs {
		s.log.Debug("input", "kind", in.Kind, "path", in.Path)
	}
	limited, cancel := opts.limit(ctx, own, timeoutAsked)
	defer cancel()
	var r *journal.Report
	if opts.follow {
		r, err = s.follow(limited, reading)
	} else {
		r, err = s.read(limited, reading)
	}
	s.log.Debug("read", "err", err, "ended", context.Cause(limited))
	return s.finish(ctx, limited, r, reading, err)
}

// An outcome is what a reading came to; the report may be there beside an error.
type outcome struct {
	report *journal.Report
	err    error
}

// read reads all, with progress on standard error.
func (s *session) read(ctx context.Context, reading journal.Options) (*journal.Report, error) {
	progress := render.NewProgress(s.env.Err, s.env.ErrTTY, s.env.Width)
	progress.ASCII = s.env.ASCII()
	reading.Progress = func(p journal.Progress) { progress.Reading(p.Source, p.Read, p.Total, p.Records) }
	defer progress.Done()
	return await(ctx, func() outcome {
		r, err := journal.Read(ctx, reading)
		if r != nil {
			checks.JudgeJournal(r)
		}
		return outcome{r, err}
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
	_, err := await(ctx, func() outcome {
		err := journal.Follow(ctx, reading, func(r *journal.Report, e journal.Event) {
			mu.Lock()
			defer mu.Unlock()
			last = r
			checks.JudgeJournal(r)
			if s.how.Format != render.Text {
				return
			}
			if err := live.Update(r, e); err != nil {
				cancel(err) // nobody reads any more
			}
		})
		return outcome{nil, err}
	})
	mu.Lock()
	defer mu.Unlock()
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) || errors.Is(err, context.Canceled) {
		err = nil
	}
	return last, err
}

// await returns what work came to. When the context ends, work has a moment to return what it has; after that it is
// left behind: a read may hang in the kernel.
func await(ctx context.Context, work func() outcome) (*journal.Report, error) {
	done := make(chan outcome, 1)
	go func() { done <- work() }()
	select {
	case o := <-done:
		return o.report, o.err
	case <-ctx.Done():
	}
	select {
	case o := <-done:
		return o.report, o.err
	case <-time.After(cli.Margin):
		return nil, context.Cause(ctx)
	}
}

// finish prints the answer, writes the page, and chooses the exit code.
func (s *session) finish(ctx, limited context.Context, r *journal.Report, reading journal.Options, err error) error {
	late := limited.Err() != nil && ctx.Err() == nil
	interrupted := ctx.Err() != nil && !s.opts.follow
	incident := r != nil && hasIncident(r)
	if s.opts.follow && r == nil && err == nil {
		r = empty() // a quiet log
		r.Notes = []string{"nothing was logged while kdiag followed"}
	} else if !lookedAt(r) && !incident {
		return s.nothing(r, reading, cause(limited, err), interrupted)
	}
	s.stamp(r)
	if note := rangeNote(r, reading); note != "" {
		r.Notes = append(r.Notes, note)
	}
	if err != nil {
		r.Notes = append(r.Notes, render.NotAll+cause(limited, err).Error())
	}
	if err := s.print(r); err != nil {
		return err
	}
	if s.page != nil {
		if err := s.save(r); err != nil {
			return err
		}
	}
	s.sayUnread(r)
	switch {
	case interrupted, (late || err != nil) && !incident && !s.opts.follow:
		return s.cutShort(interrupted, late)
	case incident:
		return &cli.ExitError{Code: cli.ExitProblem}
	}
	return nil
}

// cause returns why a reading ended: what it says itself, unless it only says that its context ended.
func cause(limited context.Context, err error) error {
	if limited.Err() != nil && (err == nil || errors.Is(err, limited.Err())) {
		return context.Cause(limited)
	}
	return err
}

// cutShort is how a command ends that was stopped before it had found anything.
func (s *session) cutShort(interrupted, late bool) error {
	if interrupted || !late {
		return &cli.ExitError{Code: cli.ExitUnknown}
	}
	return &cli.HintError{
		Err: errOutOfTime, Code: cli.ExitUnknown,
		Hint: "give it more time, such as --timeout 5m, or less to read, such as --since -1h",
	}
}

// print prints the whole answer; after following, in text, only how it ended.
func (s *session) print(r *journal.Report) error {
	if s.opts.follow && s.how.Format == render.Text {
		return render.JournalHeadline(s.env.Out, r, s.how)
	}
	return render.JournalReport(s.env.Out, r, s.how)
}

func (s *session) save(r *journal.Report) error {
	var page bytes.Buffer
	if err := render.JournalHTML(&page, r); err != nil {
		return err
	}
	return s.page.Write(page.Bytes())
}

// rangeNote says which range of time was asked for, and whether nothing of what was read lies in it: then that nothing
// was found means nothing.
func rangeNote(r *journal.Report, reading journal.Options) string {
	since, until := reading.Since, reading.Until
	if since.IsZero() && until.IsZero() {
		return ""
	}
	const layout = "2006-01-02 15:04:05 -07:00"
	text := "only what lies"
	if !since.IsZero() {
		text += " after " + since.Format(layout)
	}
	if !until.IsZero() {
		if !since.IsZero() {
			text += " and"
		}
		text += " before " + until.Format(layout)
	}
	text += " was asked for"
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

// sayUnread says on standard error what the answer is without, where its format does not show that to a person.
func (s *session) sayUnread(r *journal.Report) {
	if s.how.Format == render.Text && !s.opts.follow {
		return
	}
	for i, problem := range problems(r) {
		const most = 5
		if i == most {
			_, _ = fmt.Fprintf(s.env.Err, "kdiag: and %d more sources were not read whole\n", len(problems(r))-most)
			return
		}
		_, _ = fmt.Fprintln(s.env.Err, "kdiag: "+render.Printable(problem))
	}
}

// problems returns what kept sources from being read, with their names.
func problems(r *journal.Report) []string {
	var list []string
	if r == nil {
		return list
	}
	for _, src := range r.Sources {
		if src.Problem == "" {
			continue
		}
		if strings.Contains(" "+src.Problem, " "+src.Name+":") {
			list = append(list, src.Problem)
			continue
		}
		list = append(list, src.Name+": "+src.Problem)
	}
	return list
}

// isPage reports whether a file is a page of kdiag, which may be replaced by a newer one. Anything else may be the very log
// that was asked about.
func isPage(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close() // was only read
	head, err := io.ReadAll(io.LimitReader(f, 4096))
	return err == nil && (len(head) == 0 || bytes.Contains(head, []byte(render.PageMark)))
}

// hasIncident reports whether there was an incident, or something fails until the log ends.
func hasIncident(r *journal.Report) bool {
	if r.Failing != nil {
		return true
	}
	for _, e := range r.Episodes {
		if e.Kind == journal.Incident {
			return true
		}
	}
	return false
}

// lookedAt reports whether there was something to judge by: a record, or a source that was read and has none.
func lookedAt(r *journal.Report) bool {
	if r == nil {
		return false
	}
	if r.Lines > r.Unparsed {
		return true
	}
	return len(r.Sources) > len(problems(r))
}

// nothing ends a command that could look at nothing: one line, and a hint. A program that asked for a document gets one.
func (s *session) nothing(r *journal.Report, reading journal.Options, err error, interrupted bool) error {
	list := problems(r)
	if err == nil {
		err = errors.New("there was nothing to read")
	}
	message := err
	if len(list) > 0 && !errors.Is(err, errOutOfTime) {
		message = errors.New(list[0])
	}
	if more := len(list) - 1; more > 0 {
		message = fmt.Errorf("%w; and %d more that could not be read", message, more)
	}
	if s.how.Format != render.Text {
		if r == nil {
			r = empty()
		}
		s.stamp(r)
		if len(r.Sources) == 0 {
			for _, in := range reading.Inputs {
				r.Sources = append(r.Sources, journal.Source{Name: in.Path, Problem: message.Error()})
			}
		}
		if printErr := render.JournalReport(s.env.Out, r, s.how); printErr != nil {
			return printErr
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

// empty returns a report of nothing.
func empty() *journal.Report {
	return &journal.Report{
		Episodes: []journal.Episode{}, Signatures: []journal.Count{}, Events: []journal.Event{},
		Sources: []journal.Source{}, Unreadable: []journal.Unreadable{},
	}
}

// generalHint is for errors about which nothing more is known.
const generalHint = "kdiag journal --help says what can be read"

// hint says what to do about an error. Errors that came through a report are words only.
func hint(err error) string {
	text := err.Error()
	is := func(target error) bool { return errors.Is(err, target) || strings.Contains(text, target.Error()) }
	switch {
	case is(errOutOfTime):
		return "give it more time, such as --timeout 5m, or less to read, such as --since -1h"
	case is(fs.ErrPermission) || strings.Contains(text, "permission denied"):
		return "run kdiag as root (sudo kdiag journal ...), or as a member of the group systemd-journal or adm"
	case is(fs.ErrNotExist) || strings.Contains(text, "no such file"):
		return "check the path; without one, kdiag journal reads this node's own logs"
	case is(journal.ErrNoJournal):
		return "name what to read: kdiag journal FILE..., --directory DIR, --root DIR, or a pipe"
	case is(journal.ErrNoLogs):
		return "name a folder that holds *.journal files or text logs, or the files themselves"
	case is(journal.ErrNoMatch):
		return "quote the pattern, and try it with ls"
	case is(journal.ErrNoBoot):
		return "journalctl --list-boots lists the boots; --boot 0 is the last"
	case is(journal.ErrEmpty):
		return "was it copied whole? kdiag journal </dev/null reads this node's own logs"
	case is(journal.ErrBinary):
		return "give a journal file or text, plain or compressed with gzip, xz, zstd or bzip2"
	}
	return generalHint
}
