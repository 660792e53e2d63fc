// Package bundlecmd is kdiag bundle: the evidence of an incident in one archive.
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

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/bundle"
	"github.com/kdiag/kdiag/checks/collect"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/checks/redact"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/checks/upload"
	"github.com/kdiag/kdiag/cmd/internal/archive"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/connection"
	"github.com/kdiag/kdiag/cmd/internal/diagnosis"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/cmd/internal/snapshot"
	"github.com/kdiag/kdiag/crictl/deadline"
	"github.com/kdiag/kdiag/crictl/fake"
	"github.com/kdiag/kdiag/plegbench"
)

type options struct {
	cli.Flags
	connection.KubeletFlags
	archive.UploadFlags
	format   string
	size     string
	maxBytes int64
	redact   string
	noStacks bool
	since    time.Duration
	list     string
	file     string        // empty for a name by host and time, - for standard output
	asking   time.Duration // for the node
}

// The defaults: a node where everything hangs has its bundle within ten seconds, and a slow disk gets more.
const (
	defaultTimeout = time.Minute
	defaultSize    = "100MiB"
	defaultSince   = time.Hour
)

// NewCommand returns kdiag bundle.
func NewCommand(env cli.Env) *cobra.Command {
	opts := options{Flags: cli.Flags{Timeout: defaultTimeout}}
	cmd := &cobra.Command{
		Use:   "bundle [FILE]",
		Short: "Pack the evidence of an incident into one archive, without secrets, to read elsewhere",
		Long: `Collect what explains an incident before a restart destroys it: the report of kdiag node and its facts,
goroutine dumps of the runtime, of stuck shims and of the kubelet, logs, configurations, processes, mounts, pressure,
disks, units, versions, the node's object. Whatever hangs is left behind, and the manifest has what is missing and why.

Secrets are removed; --redact strict also replaces addresses and names. No environment and no command line of a
container is ever copied. The archive is readable by its owner only. kdiag node, pleg, journal, stacks and exited read
it on any machine with --from.

For the dumps the runtime's daemon and stuck shims get SIGUSR1, after proof that they handle it; nothing stops.
--no-stacks leaves the dumps out.

With --upload the archive is sent as well, by PUT or POST: to a presigned URL of an object store, or to a plain server.
What fails is tried again until --timeout.

Exit codes: 0 written, also where the node is unhealthy; 1 written, and logs or another vital part is missing or cut, or
it could not be sent; 2 nothing written.`,
		Example: `  kdiag bundle                                   # kdiag-HOST-TIME.tar.zst in this folder
  ssh node sudo kdiag bundle - > node.tar.zst    # nothing is written to the node's disk
  kdiag bundle --upload 'https://logs.example.com/kdiag/{node}/{time}-{cause}.tar.zst'
  kdiag bundle --list node.tar.zst               # what it holds, and what is missing
  kdiag node --from node.tar.zst                 # the verdict again, anywhere`,
		Args:    cobra.MaximumNArgs(1),
		PreRunE: opts.check,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if opts.list != "" {
				return archive.List(cmd.Context(), env, &opts.Flags, "--list", opts.list)
			}
			return run(cmd.Context(), env, opts)
		},
	}
	opts.AddRuntime(cmd, fake.Names())
	cli.AddAdvisories(cmd)
	opts.AddOutput(cmd)
	opts.AddKubeletFlags(cmd, "do not ask the API server for the node's object and events")
	fs := cmd.Flags()
	_ = fs.MarkHidden("fail-on") // it is there; the state of the node does not decide the exit code
	fs.StringVar(&opts.format, "format", bundle.Zst, "how the archive is compressed: zst or tgz")
	fs.StringVar(&opts.size, "max-size", defaultSize, "largest size of the archive; the most valuable files come first")
	fs.StringVar(&opts.redact, "redact", string(redact.Standard),
		"what is removed: standard (secrets) or strict (also addresses and names)")
	fs.BoolVar(&opts.noStacks, "no-stacks", false, "take no goroutine dumps, so send no signal")
	fs.DurationVar(&opts.since, "since", defaultSince, "how far back logs are copied")
	fs.StringVar(&opts.list, "list", "", "list and check this archive instead")
	opts.AddUpload(cmd)
	for flag, values := range map[string][]string{"format": formats(), "redact": levels()} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

func formats() []string { return []string{bundle.Zst, bundle.Tgz} }

func levels() []string { return []string{string(redact.Standard), string(redact.Strict)} }

func (o *options) check(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		o.file = args[0]
	}
	o.asking = askingUsual
	if cmd.Flags().Changed("timeout") {
		o.asking = time.Duration(float64(o.Timeout) * askingShare)
	}
	var err error
	o.maxBytes, err = cli.ParseSize("max-size", o.size, bundle.LeastBytes)
	return cmp.Or(
		cli.RejectEmpty(cmd, "list", "max-size"),
		cli.Reject(len(args) > 0 && o.file == "", "FILE is empty", "leave it out for a name by host and time"),
		cli.Reject(o.list != "" && len(args) > 0, "--list takes the archive itself: "+o.file+" is one too many",
			"for example: kdiag bundle --list "+o.list),
		o.CheckUpload(cmd),
		cli.Reject(o.URL != "" && (o.file == "-" || o.list != ""), "--upload sends a file that is written",
			"name a new FILE, or leave out --upload"),
		cli.OneOf(cmd, "format", o.format, formats()), cli.OneOf(cmd, "redact", o.redact, levels()),
		err,
		cli.Reject(o.since <= 0, "--since must be > 0", "for example --since 2h"),
		o.CheckKubeletFlags(cmd), o.Check(cmd, nil),
	)
}

// garbagePercent trades CPU time for memory: a sick node is short of memory.
const garbagePercent = 25

// The time for asking the node before its files are collected. A frozen runtime costs one call; a list that hangs, and
// finding the object whose status hangs, take all of it: a bundle should be written in ten seconds. With --timeout it
// is a share of that.
const (
	askingUsual = 9 * time.Second
	askingShare = 0.6
)

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
	dest, err := open(env, &opts)
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
	asked.Timeout, asked.Output = opts.asking, string(render.Text)
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
	failed := send(rest, env, target, doc)
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
	ctx context.Context, env cli.Env, target *upload.Target, doc *render.WrittenBundle,
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

// open opens the destination, before anything is collected.
func open(env cli.Env, opts *options) (*destination, error) {
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
	d, err := cli.Look(dir, func() (*destination, error) {
		most, err := bundle.Room(dir, opts.maxBytes)
		if err != nil {
			return nil, err
		}
		f, err := bundle.Create(name)
		return &destination{out: f, file: f, name: name, most: most}, err
	})
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
