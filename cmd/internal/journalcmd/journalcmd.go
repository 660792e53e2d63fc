// Package journalcmd is kdiag journal: what the logs of a node know of PLEG.
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

	"github.com/spf13/cobra"

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

type options struct {
	cli.Flags
	since, until string
	units        []string
	boot         string
	follow       bool
	directories  []string
	files        []string
	root         string
	html         string
	year         int
	zone         string

	timed bool // the reading ends by --timeout
}

const long = `Read the logs of a node and show when PLEG was not healthy: each incident with its beginning, end and
worst age, its likely cause and evidence. The text fits one screen; --details adds what happened in each incident, the
timeline, signatures and sources.

Without FILE, --directory, --file or --root the node's own journal is read, and text logs where there is none. A FILE
is a journal file, a folder of logs, or text of any kind, compressed or not; "-" is standard input, which is also read
when nothing is named and a pipe or a file is there.

An incident begins with the last good relist: the time of a record minus the age in it. That the node was NotReady for
another reason (no pod network, runtime not ready or down) is an incident too. A kubelet that has just started also logs
that PLEG is not healthy, until its first relist; that is not an incident.

Times are shown in the zone of the log. --since and --until take RFC 3339, "2026-11-21 03:12:09", 03:12 (the last time
that it was that late) and -15m; what names no zone is in --zone, else in this machine's.

Exit codes: 0 no incident found; 1 there was an incident, recovered or not, or relists fail or the kubelet crashes again
and again until the log ends; 2 nothing could be looked at, bad usage, or interrupted or out of time before an incident
was found.`

const example = `  kdiag journal                                        # this node, all that its journal has
  kdiag journal -f --unit kubelet --unit containerd    # live
  kdiag journal --root /mnt/dead --boot -1             # its disk, mounted; the boot before the last
  kdiag journal kubelet.log kubelet.log.1.gz           # text, rotated and compressed
  journalctl -u kubelet -o export | kdiag journal      # a pipe
  kdiag journal --from kdiag-node-7.tar.zst            # the logs in an archive of kdiag bundle
  kdiag journal --since -24h --html incident.html      # a page for the post-mortem`

// NewCommand returns kdiag journal.
func NewCommand(env cli.Env) *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use:     "journal [FILE...]",
		Short:   "Find PLEG incidents in kubelet, runtime and kernel logs: a timeline, causes, evidence",
		Long:    long,
		Example: example,
		Args:    cobra.ArbitraryArgs,
		PreRunE: opts.check,
		RunE: func(cmd *cobra.Command, args []string) error {
			return run(cmd.Context(), opts.Host(env), &opts, args)
		},
	}
	opts.AddFrom(cmd)
	opts.AddOutput(cmd)
	fs := cmd.Flags()
	fs.StringVar(&opts.since, "since", "", `only records since then, such as -15m, 03:12, "2026-11-21 03:12:09"`)
	fs.StringVar(&opts.until, "until", "", "only records until then")
	fs.StringArrayVar(&opts.units, "unit", nil, "only records of this unit, such as kubelet; may be repeated")
	fs.StringVar(&opts.boot, "boot", "", "only records of this boot: 0 the last, -1 the one before, or a boot ID")
	fs.BoolVarP(&opts.follow, "follow", "f", false, "follow new records until Ctrl-C")
	fs.StringArrayVar(&opts.directories, "directory", nil, "a folder of journal files or text logs; may be repeated")
	fs.StringArrayVar(&opts.files, "file", nil, "a pattern of files, such as 'system@*.journal'; may be repeated")
	fs.StringVar(&opts.root, "root", "", "read the journal and logs of a disk mounted here")
	fs.BoolVar(&opts.Details, "details", false, "print all incidents, signatures, sources and notes")
	fs.StringVar(&opts.html, "html", "", "also write the report to this file as one self-contained page")
	fs.IntVar(&opts.year, "year", 0, "year of the last record, for logs without years")
	fs.StringVar(&opts.zone, "zone", "", "time zone of times without one, such as +08:00 (default: this machine's)")
	fs.DurationVarP(&opts.Timeout, "timeout", "t", cli.DefaultTimeout,
		"end by then; logs named on the command line have no limit without it")
	opts.AddHostRoot(cmd)
	opts.AddVerbose(cmd, "print kdiag's log to stderr")
	return cmd
}

// check reports the first flag with a bad value, before anything is read.
func (o *options) check(cmd *cobra.Command, args []string) error {
	given := cmd.Flags().Changed
	o.timed = given("timeout")
	return cmp.Or(
		cli.RejectEmpty(cmd, "since", "until", "root", "html", "zone"),
		cli.Reject(given("year") && (o.year < 2014 || o.year > 9999),
			fmt.Sprintf("--year %d is not a year of a kubelet", o.year), "for example --year 2026"),
		cli.Reject(given("root") && len(args)+len(o.directories)+len(o.files) > 0,
			"--root excludes FILE, --file and --directory", "name the files below the root instead"),
		o.CheckFrom(cmd, args, "since", "until", "unit", "boot", "year", "zone", "html"), o.Check(cmd, nil),
	)
}

// stdinName is how a person names standard input.
const stdinName = "-"

// reading returns the options for package journal. from are the logs of --from.
func (o *options) reading(env cli.Env, args []string, from []journal.Input) (r journal.Options, err error) {
	now := env.Now()
	r = journal.Options{Units: o.units, Boot: o.boot, Now: env.Now, Local: now.Location(), Year: o.year}
	if o.zone != "" {
		if r.Local, err = parseZone(o.zone); err != nil {
			return r, err
		}
	}
	r.Since, r.Until, err = cli.ParseRange(o.since, o.until, now.In(r.Local))
	stdin := journal.Input{Kind: journal.Stream, Path: stdinName, Reader: env.In}
	for _, name := range args {
		r.Inputs = append(r.Inputs, journal.Input{Path: name})
	}
	if i := slices.Index(args, stdinName); i >= 0 {
		r.Inputs[i] = stdin
	}
	for _, pattern := range o.files {
		r.Inputs = append(r.Inputs, journal.Input{Kind: journal.Glob, Path: pattern})
	}
	for _, dir := range o.directories {
		r.Inputs = append(r.Inputs, journal.Input{Path: dir})
	}
	switch {
	case from != nil:
		r.Inputs = from
	case o.root != "":
		r.Inputs = []journal.Input{{Kind: journal.Root, Path: o.root}}
	case len(r.Inputs) > 0:
	case cli.HoldsText(env.In):
		r.Inputs = []journal.Input{stdin}
	default:
		r.Inputs = []journal.Input{{Kind: journal.Root, Path: env.Root}}
		o.timed = o.timed || !o.follow // this node's own logs may be endless, or hang
	}
	return r, err
}

// parseZone reads the name of a zone, or how far it is from UTC.
func parseZone(s string) (*time.Location, error) {
	if at, err := time.Parse("Z07:00", s); err == nil {
		_, offset := at.Zone()
		return time.FixedZone(s, offset), nil
	}
	zone, err := time.LoadLocation(s)
	if err != nil {
		return nil, cli.Usage(fmt.Sprintf("--zone: %q is not a time zone", s),
			"give the distance from UTC, such as --zone +08:00, or a name such as Europe/Berlin")
	}
	return zone, nil
}

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
	show := func() error { return render.JournalReport(s.env.Out, r, s.how) }
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
		if err := render.JournalReport(s.env.Out, r, s.how); err != nil {
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
