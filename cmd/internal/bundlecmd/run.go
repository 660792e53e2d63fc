package bundlecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/bundle"
	"github.com/kdiag/kdiag/checks/collect"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/checks/redact"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/checks/upload"
	"github.com/kdiag/kdiag/cmd/internal/archive"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/diagnosis"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/cmd/internal/snapshot"
	"github.com/kdiag/kdiag/crictl/deadline"
	"github.com/kdiag/kdiag/plegbench"
)

// garbagePercent trades CPU time for memory: a sick node is short of memory.
const garbagePercent = 25

// The time for asking the node before its files are collected. A frozen runtime costs one call; a list that hangs, and
// finding the object whose status hangs, take all of it: a bundle should be written in ten seconds. With --timeout it
// is a share of that.
const (
	askingUsual = 9 * time.Second
	askingShare = 0.6
)

func (o *options) asking() time.Duration {
	if o.timeoutGiven {
		return time.Duration(float64(o.Timeout) * askingShare)
	}
	return askingUsual
}

func run(ctx context.Context, env cli.Env, opts options) (err error) {
	debug.SetGCPercent(garbagePercent)
	env = opts.Host(env)
	credentials, err := opts.Credentials()
	if err != nil {
		return err
	}
	target, err := opts.UploadTarget(env)
	if err != nil {
		return err
	}
	dest, err := open(ctx, env, &opts)
	if err != nil {
		return err
	}
	defer func() { err = dest.close(err) }()
	log := &collect.Log{}
	env.Log = log
	in := collect.Input{
		Since: env.Now().Add(-opts.since), Credentials: credentials, APIServer: !opts.NoAPIServer, Log: log,
	}
	if opts.Simulate == "" {
		in.Root = env.Root
	}
	if opts.noStacks {
		in.NoDumps = "not asked for (--no-stacks)"
	}
	asked := opts.Flags
	asked.Timeout, asked.Output = opts.asking(), string(render.Text)
	rest, cancel := context.WithTimeout(ctx, opts.Timeout-cli.Margin)
	defer cancel()
	node, err := diagnosis.Collect(ctx, env, &asked, diagnosis.Request{
		Command: "node",
		Measure: plegbench.Options{Samples: 5, Pause: 50 * time.Millisecond},
		Limits:  checks.DefaultLimits(),
		Probes: diagnosis.Probes{
			All: true, Credentials: credentials, APIServer: !opts.NoAPIServer, Stacks: !opts.noStacks,
		},
	})
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return cli.Fail(errors.New("interrupted before there was anything to write"), cli.ExitUnknown, "")
	}
	in.Facts, in.Dumps = node.Facts, node.Dumps
	in.Report = judge.NewReport(document.Header(env, "node", ""), node.Facts)
	document.Complete(in.Report, node.Problems)
	in.Census = func(ctx context.Context) (any, error) {
		if m := node.Facts.Measurement; m == nil || m.Sandboxes == nil || m.Containers == nil {
			return nil, errors.New("the runtime gives no list of containers")
		}
		return snapshot.Census(ctx, env, &asked)
	}
	doc, err := write(rest, env, &opts, dest, in)
	if err != nil {
		return err
	}
	failed := send(rest, env, &opts, target, doc)
	out, how := env.Out, document.Options(env, &opts.Flags)
	if dest.name == "" { // standard output is the archive
		out, how.NoWrap = env.Err, !env.ErrTTY
	}
	if err := render.BundleWritten(out, doc, how); err != nil {
		return err
	}
	if failed == nil && doc.Status != checks.Healthy {
		return &cli.ExitError{Code: cli.ExitProblem}
	}
	return failed
}

// send sends the archive with --upload, again and again until ctx ends.
func send(
	ctx context.Context, env cli.Env, opts *options, target *upload.Target, doc *render.WrittenBundle,
) error {
	if target == nil {
		return nil
	}
	a := upload.Archive{Path: doc.Archive, At: doc.GeneratedAt, Node: doc.Host}
	if len(doc.Report.Causes) > 0 {
		a.Cause = doc.Report.Causes[0].Code
	}
	progress := document.NewProgress(env)
	progress.Update(plegbench.Progress{Phase: "uploading"})
	err := target.SendAgain(ctx, a)
	progress.Done()
	if err != nil {
		return cli.Fail(err, cli.ExitProblem, "the archive is "+doc.Archive+": send it in another way")
	}
	doc.UploadedTo = target.Where(a)
	return nil
}

// write collects everything into the archive and describes it.
func write(ctx context.Context, env cli.Env, opts *options, dest *destination, in collect.Input) (
	*render.WrittenBundle, error,
) {
	progress := document.NewProgress(env)
	in.Progress = func(part string) { progress.Update(plegbench.Progress{Phase: "collecting " + part}) }
	manifest, n, err := archive.Write(ctx, env, dest.out, opts.format, dest.most, redact.Level(opts.redact), in)
	progress.Done()
	if dest.bytes = n; err != nil && n == 0 {
		return nil, cli.Fail(err, cli.ExitUnknown, "")
	}
	if dest.file != nil {
		// The next step may be a restart of the machine.
		_, err := deadline.Run(ctx, "syncing "+dest.name,
			func(context.Context) (struct{}, error) { return struct{}{}, dest.file.Sync() })
		if err != nil {
			return nil, cli.Fail(fmt.Errorf("writing %s to disk: %w", dest.name, err), cli.ExitProblem,
				"copy it to another machine before a reboot")
		}
	}
	doc := &render.WrittenBundle{Manifest: manifest, Archive: dest.name, ArchiveBytes: n, Report: in.Report}
	doc.NextSteps = []checks.NextStep{{
		Why: "Read it again, on any machine", Touches: checks.TouchesNothing,
		Command: "kdiag node --from " + cli.Quote(filepath.Base(cmp.Or(dest.name, "FILE"))),
	}}
	return doc, nil
}

// A destination is a file or standard output.
type destination struct {
	out   io.Writer
	file  *os.File // nil for standard output
	name  string   // of the file
	most  int64    // bytes
	bytes int64    // that were written
}

// close closes the file, and removes it if it is empty.
func (d *destination) close(err error) error {
	if d.file == nil {
		return err
	}
	if d.bytes == 0 {
		_ = os.Remove(d.name) // the caller returns why it is empty
	}
	return cmp.Or(err, d.file.Close())
}

// openTimeout bounds opening the destination, whose file system may hang.
const openTimeout = 2 * time.Second

// open opens the destination, before anything is collected.
func open(ctx context.Context, env cli.Env, opts *options) (*destination, error) {
	if opts.file == "-" {
		return &destination{out: env.Out, most: opts.maxBytes}, cli.Reject(env.OutTTY,
			"standard output is a terminal", "for example: ssh node sudo kdiag bundle - > node.tar.zst")
	}
	name := opts.file
	if name == "" {
		host, _ := env.Hostname() // the name does without
		if redact.Level(opts.redact) == redact.Strict {
			host = ""
		}
		name = bundle.DefaultName(host, env.Now(), opts.format)
	}
	dir := filepath.Dir(name)
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	d, err := deadline.Run(ctx, "opening "+name, func(context.Context) (*destination, error) {
		most, err := bundle.Room(dir, opts.maxBytes)
		if err != nil {
			return nil, err
		}
		f, err := bundle.Create(name)
		return &destination{out: f, file: f, name: name, most: most}, err
	})
	if errors.Is(err, deadline.ErrAbandoned) {
		err = errors.New(dir + ": the file system does not answer")
	}
	if err != nil {
		return nil, cli.Usage(err.Error(),
			"name a new file in a folder that you may write to, or - for standard output")
	}
	if d.most < opts.maxBytes {
		const line = "kdiag: little space left: the archive is limited to %s; - writes to standard output\n"
		_, _ = fmt.Fprintf(env.Err, line, units.Size(d.most))
	}
	return d, nil
}
