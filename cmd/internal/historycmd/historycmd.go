// Package historycmd is kdiag history: the agent's records of a node, also from a dead node's disk.
package historycmd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/recorder"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/diagnosis"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/deadline"
)

type options struct {
	cli.Flags
	since, until string
	dir, root    string
	html         string
	more         string // the command that prints all
}

const (
	defaultSince = 2 * time.Hour   // before the last record
	oldRecord    = 5 * time.Minute // by default an agent writes each 30 s
)

// NewCommand returns kdiag history.
func NewCommand(env cli.Env) *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use:   "history",
		Short: "Show what the agent recorded on this node, or on a dead node's disk, as a timeline",
		Long: `Read what kdiag agent recorded: how long relists took, what hung first, when each cause began and was
gone, restarts of the node, times without records, and the archives that were captured. The text fits one screen;
--details prints all.

It only reads, also while the agent writes, and from a disk that is mounted read-only. Times such as -2h and 03:12 are
counted from the last record, in this machine's zone; others are RFC 3339 or "2026-11-21 03:12:09".

Exit codes: 0 no critical cause within the time; 1 a critical cause, gone or not; 2 nothing could be read, bad usage, or
interrupted.`,
		Example: `  kdiag history                             # the last two hours that were recorded
  kdiag history --since -24h --details      # all that happened in a day
  kdiag history --root /mnt/dead-disk       # the disk of another node, mounted
  kdiag history --since 03:00 --until 04:30 --html incident.html`,
		Args:    cobra.NoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error { return opts.check(cmd, env) },
		RunE:    func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), env, &opts) },
	}
	opts.AddOutput(cmd)
	fs := cmd.Flags()
	fs.StringVar(&opts.since, "since", "", "only what was recorded since then, such as -24h, 03:12 (default -2h)")
	fs.StringVar(&opts.until, "until", "", "only what was recorded until then (default the last record)")
	fs.StringVar(&opts.dir, "data-dir", diagnosis.DefaultDataDir, "folder of the agent's records")
	fs.StringVar(&opts.root, "root", "", "read the disk of another node, mounted here")
	fs.StringVar(&opts.html, "html", "", "also write the history to this file as one self-contained page")
	fs.BoolVar(&opts.Details, "details", false, "print all incidents, causes and transitions")
	fs.DurationVarP(&opts.Timeout, "timeout", "t", cli.DefaultTimeout, "end by then, whatever hangs")
	return cmd
}

// check reports the first flag with a bad value, before anything is read.
func (o *options) check(cmd *cobra.Command, env cli.Env) error {
	o.more = cli.CommandLine(cmd, "history", "since", "until", "data-dir", "root") + " --details"
	_, _, since := cli.ParseRange(o.since, "", env.Now())
	_, _, until := cli.ParseRange("", o.until, env.Now())
	return cmp.Or(cli.RejectEmpty(cmd, "since", "until", "data-dir", "root", "html"), since, until, o.Check(cmd, nil))
}

func run(ctx context.Context, env cli.Env, opts *options) error {
	page, err := cli.OpenPage(opts.html)
	if err != nil {
		return err
	}
	defer page.Close()
	within, cancel := opts.Within(ctx)
	defer cancel()
	h, err := deadline.Run(within, "reading the records",
		func(ctx context.Context) (*checks.History, error) { return opts.read(ctx, env) })
	if errors.Is(err, deadline.ErrAbandoned) && ctx.Err() == nil {
		err = cli.Fail(fmt.Errorf("reading the records in %s: %w", filepath.Join(opts.root, opts.dir), err),
			cli.ExitUnknown, "give it more time, such as --timeout 2m; a file system that hangs needs a repair first")
	}
	if err != nil {
		return err
	}
	how := document.Options(env, &opts.Flags)
	how.More = opts.more
	if err := render.History(env.Out, h, how); err != nil {
		return err
	}
	var text bytes.Buffer
	if err := render.HistoryHTML(&text, h); err != nil {
		return err
	}
	if err := page.Write(text.Bytes()); err != nil {
		return err
	}
	return document.ExitHistory(ctx, h)
}

// read returns the history of the folder of records.
func (o *options) read(ctx context.Context, env cli.Env) (*checks.History, error) {
	dir, last, err := o.last(ctx, env)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, cli.Fail(err, cli.ExitUnknown, "run kdiag as root: sudo kdiag history ...")
	case err != nil:
		if at, ok := errors.AsType[*fs.PathError](err); ok && errors.Is(err, fs.ErrNotExist) {
			err = errors.New("no records in " + filepath.Join(o.root, strings.TrimPrefix(at.Path, o.root)))
		}
		return nil, cli.Fail(err, cli.ExitUnknown,
			"kdiag agent records; name its folder with --data-dir DIR, or another node's disk with --root DIR")
	}
	since, until, err := cli.ParseRange(o.since, o.until, last)
	if err != nil {
		return nil, err
	}
	if since.IsZero() {
		since = cmp.Or(until, last).Add(-defaultSince)
	}
	h, err := recorder.History(ctx, dir, since, until)
	if errors.Is(err, recorder.ErrNoRecords) {
		return nil, cli.Usage("nothing was recorded then; the last record is of "+last.Format(cli.Zoned),
			"for example --since -24h: a day before the last record")
	}
	if err != nil {
		return nil, err
	}
	head := document.Header(env, "history", checks.KindHistory)
	head.Problems, head.Status = h.Problems, h.Status
	h.Header = head
	if age := env.Now().Sub(last); o.root == "" && age > oldRecord {
		h.Problems = append(h.Problems, "the last record is "+units.Duration(age)+" old: is kdiag agent running?")
	}
	if o.root != "" { // not this node; links stay on its disk
		name, _ := crictl.SeenBy(o.root, 0).Read("/etc/hostname")
		h.Host = strings.TrimSpace(string(name))
	}
	h.NextSteps = document.CaptureSteps(h, last.Location(), func(c checks.TakenCapture) string {
		return "kdiag node --from " + cli.Quote(c.Path)
	})
	return h, nil
}

// last returns the folder of the records, as a person would type it, and the time of the last record.
func (o *options) last(ctx context.Context, env cli.Env) (dir string, last time.Time, err error) {
	if dir = o.dir; o.root == "" {
		dir, _ = filepath.Abs(dir) // else it stays as it is
	}
	err = crictl.InRoot(cmp.Or(o.root, env.Root), dir, func(opened string) (err error) {
		dir, err = filepath.EvalSymlinks(opened)
		return err
	})
	if err != nil {
		return "", last, err
	}
	last, err = recorder.Last(ctx, dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, recorder.ErrNoRecords) {
		err = errors.New(dir + " holds no records of kdiag agent")
	}
	return dir, last.In(env.Now().Location()), err
}
