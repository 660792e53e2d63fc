// Package fleetcmd is kdiag fleet: all nodes of a cluster, the sick ones by cause, and what these have in common.
package fleetcmd

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/bundle"
	"github.com/kdiag/kdiag/checks/fleet"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/cluster"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/cmd/internal/screen"
	"github.com/kdiag/kdiag/plegbench"
)

// logsTimeout is the default of --timeout with --logs, which take a minute for 500 nodes.
const logsTimeout = 2 * time.Minute

type options struct {
	cli.Flags
	cluster  cluster.Flags
	selector string
	checks   bool
	pods     bool
	logs     bool
	bare     bool
	more     string // what was typed, without the output
	same     string // flags that name the cluster, for commands that are printed
}

// NewCommand returns kdiag fleet.
func NewCommand(env cli.Env) *cobra.Command {
	opts := options{Flags: cli.Flags{Formats: []string{string(render.Wide), string(render.Name)}}}
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "Show all nodes of a cluster, the sick ones by cause, and what these have in common",
		Long: `Read the nodes of a cluster and their leases from its API server, and group those that are not ready, or
whose kdiag agent found a critical cause, by cause. It works without agents, from what the kubelets post; with them the
causes are those of kdiag node. What the nodes of a group have in common (versions, zone, pool, age) is shown where
nodes that are well have it less often than chance explains. That is no cause.

It only reads, needs no root, and makes a few requests however many nodes there are; with --logs one more for each node,
four at a time. Kubelets answer that with enableSystemLogQuery: true in their configuration. Their logs are judged as
kdiag journal does, and not kept.

Exit codes: 0 no node is sick; 1 at least one is; 2 the nodes could not be read, bad usage, or interrupted.`,
		Example: `  kdiag fleet                                # the cluster of the current context
  kdiag fleet --context prod-eu -o wide      # all nodes in one table, worst first
  kdiag fleet -l pool=batch --pods           # some nodes; compare DaemonSets too
  kdiag fleet --checks                       # also metrics-server, webhooks, version skew, clocks
  kdiag fleet --logs -l pool=batch           # also what these kubelets logged in the last hour
  kdiag fleet -w                             # stay, and show what changes`,
		Args:    cobra.NoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error { return opts.check(cmd) },
		RunE:    func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), env, &opts) },
	}
	opts.AddOutput(cmd)
	cli.AddAdvisories(cmd)
	opts.cluster.Add(cmd)
	fs := cmd.Flags()
	fs.StringVarP(&opts.selector, "selector", "l", "", "only nodes with these labels, such as pool=batch,arch!=arm64")
	fs.BoolVarP(&opts.Watch, "watch", "w", false, "stay, and show what changes; --timeout bounds the first reading")
	fs.BoolVar(&opts.checks, "checks", false, "also check the cluster: metrics-server, webhooks, version skew, clocks")
	fs.BoolVar(&opts.pods, "pods", false, "also read all pods: their number by node, and DaemonSets in common")
	fs.BoolVar(&opts.logs, "logs", false, "also judge the kubelets' logs of the last hour, read through the API server")
	fs.BoolVar(&opts.Details, "details", false, "print all groups, sick nodes, columns and events")
	fs.BoolVar(&opts.bare, "no-headers", false, "print tables without the names of their columns")
	fs.DurationVarP(&opts.Timeout, "timeout", "t", cli.DefaultTimeout, "end by then, whatever hangs; 2m with --logs")
	opts.AddVerbose(cmd, "print kdiag's log to stderr")
	cmd.AddCommand(newRemoteCommands(env, &opts.cluster)...)
	return cmd
}

// check reports the first flag with a bad value, before anything is asked.
func (o *options) check(cmd *cobra.Command) error {
	o.more = cli.CommandLine(cmd, "fleet", "context", "kubeconfig", "selector", "checks", "pods", "logs")
	o.same = strings.TrimPrefix(cli.CommandLine(cmd, "", "context", "kubeconfig"), "kdiag ")
	if o.logs && !cmd.Flags().Changed("timeout") {
		o.Timeout = logsTimeout
	}
	err := fleet.CheckSelector(o.selector)
	return cmp.Or(
		o.Check(cmd, nil), cli.RejectEmpty(cmd, "context", "kubeconfig", "selector"),
		cli.Reject(err != nil, fmt.Sprintf("--selector %q: %v", o.selector, err), "for example -l pool=batch,arch!=arm64"),
	)
}

func run(ctx context.Context, env cli.Env, opts *options) error {
	cluster, server, name, err := opts.cluster.Connect()
	if err != nil {
		return err
	}
	within, cancel := opts.Within(ctx)
	defer cancel()
	s, err := cluster.Read(within, fleet.Options{Selector: opts.selector, Pods: opts.pods})
	cli.Log(env, opts.Verbose).Debug("read", "server", server, "context", name, "selector", opts.selector, "err", err)
	switch {
	case ctx.Err() != nil:
		return &cli.ExitError{Code: cli.ExitUnknown}
	case err != nil:
		return cli.Fail(fmt.Errorf("asking %s: %w", server, err), cli.ExitUnknown, fleet.Hint(err))
	}
	if opts.logs {
		progress := document.NewProgress(env)
		cluster.ReadLogs(within, s, func(done int) {
			progress.Update(plegbench.Progress{Phase: "reading the kubelets' logs:", Done: done, Total: len(s.Nodes)})
		})
		progress.Done()
	}
	v := &view{env: env, opts: opts, name: name}
	v.take(s)
	if opts.Watch {
		if err := v.watch(ctx, s); err != nil {
			return err
		}
		return document.Exit(context.WithoutCancel(ctx), v.last.Status, "")
	}
	if opts.checks {
		v.last.Checks = cluster.Check(within, s)
		for _, c := range v.last.Checks {
			bad := c.Status == checks.StatusWarning || c.Status == checks.StatusCritical
			if bad && v.last.Status == checks.Healthy {
				v.last.Status = checks.Degraded
			}
		}
	}
	return cmp.Or(v.print(env.Out, v.options()), document.Exit(ctx, v.last.Status, ""))
}

// A view is what was read last, and what has changed.
type view struct {
	env  cli.Env
	opts *options
	name string // of the cluster

	mu      sync.Mutex
	last    *checks.FleetReport
	changes []string // the newest last; since they were printed, or mostChanges for a screen
}

// mostChanges is how many changes are kept for a screen.
const mostChanges = 100

// take analyses a snapshot, and reports whether a node became sick, or well, has another cause, came or went.
func (v *view) take(s *fleet.Snapshot) bool {
	r := fleet.Report(s)
	head := document.Header(v.env, "fleet", checks.KindFleetReport)
	head.GeneratedAt, head.Status, head.Problems, head.NextSteps = r.GeneratedAt, r.Status, r.Problems, r.NextSteps
	r.Header, r.Cluster = head, v.name
	for _, g := range r.Groups {
		for i := range g.NextSteps { // the header has the same ones
			g.NextSteps[i].Command = v.command(g.NextSteps[i].Command)
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	before, changed := map[string]string{}, v.last == nil
	note := func(node, what string) {
		changed = true
		v.changes = append(v.changes, r.GeneratedAt.Format(time.TimeOnly)+" "+node+" "+what)
	}
	if v.last != nil {
		for _, n := range v.last.Nodes {
			before[n.Name] = state(n)
		}
	}
	for _, n := range r.Nodes {
		if now := state(n); v.last != nil && before[n.Name] != now {
			note(n.Name, now)
		}
		delete(before, n.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		note(name, "deleted")
	}
	v.changes = v.changes[max(0, len(v.changes)-mostChanges):]
	v.last = r
	return changed
}

// state is what a change of a node is noticed by.
func state(n checks.FleetNode) string {
	if n.Cause != "" {
		return "sick: " + n.Cause
	}
	return "well"
}

// command returns a command that means the same cluster, and this program.
func (v *view) command(line string) string {
	line, into, piped := strings.Cut(line, " | ")
	if !strings.HasPrefix(line, "kdiag explain ") && !strings.HasPrefix(line, "scp ") {
		line += v.opts.same
	}
	line = v.env.Named(line)
	if !piped {
		return line
	}
	if v.env.Plugin {
		into = strings.Replace(into, "kdiag ", "kubectl kdiag ", 1)
	}
	return line + " | " + into
}

// options are how to print.
func (v *view) options() render.Options {
	o := document.Options(v.env, &v.opts.Flags)
	o.More, o.Bare = v.env.Named(v.opts.more+" --details"), v.opts.bare
	return o
}

func (v *view) print(w io.Writer, o render.Options) error { return render.Fleet(w, v.last, o) }

// watch shows what changes until ctx ends. In a terminal the answer stays on top, with what changed below. Else the
// first answer is printed, and then what changes, in a line each; in other formats the answer, for each change.
func (v *view) watch(ctx context.Context, s *fleet.Snapshot) error {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	text := v.opts.Output == string(render.Text)
	if terminal, err := screen.Open(v.env); err == nil && text {
		err = terminal.Show(ctx, leave, v.draw, func(ctx context.Context) error {
			s.Watch(ctx, func(s *fleet.Snapshot) { v.take(s) })
			return nil
		})
		return cmp.Or(err, v.print(v.env.Out, v.options()))
	}
	err := v.print(v.env.Out, v.options())
	if err != nil {
		return err
	}
	s.Watch(ctx, func(s *fleet.Snapshot) {
		switch changed := v.take(s); {
		case !changed:
		case text:
			for _, line := range v.changes {
				_, _ = fmt.Fprintln(v.env.Out, render.Printable(line)) // app ends a command whose reader is gone
			}
		default:
			err = cmp.Or(err, v.print(v.env.Out, v.options()))
		}
		v.changes = nil
	})
	return err
}

// draw draws the answer, and below it what changed, the newest last.
func (v *view) draw(width, height int) []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	o := v.options()
	o.Width, o.NoWrap = min(width-1, o.Width), false // as wide as Fit leaves it
	var text bytes.Buffer
	if err := v.print(&text, o); err != nil {
		return []string{err.Error()}
	}
	last := "read at " + v.last.GeneratedAt.Format(time.TimeOnly) + " UTC; q ends"
	return render.Above(text.String(), v.changes, last, width, height)
}

const (
	oldRecord  = 5 * time.Minute // as in kdiag history
	bundleTime = 5 * time.Minute // for one archive to arrive
	maxArchive = 1 << 30         // no larger one is read again
)

// A remote is a command about what the agent of one node has.
type remote struct {
	cli.Flags
	cluster *cluster.Flags
	since   string
	capture string
	list    bool

	node, file string
	agent      *fleet.Agent
	// line returns a command about the same cluster that a person may type next.
	line func(name string, flags ...string) string
}

// newRemoteCommands returns fleet report, history and bundle.
func newRemoteCommands(env cli.Env, cluster *cluster.Flags) []*cobra.Command {
	r, h, b := &remote{cluster: cluster}, &remote{cluster: cluster}, &remote{cluster: cluster}
	b.Timeout = bundleTime
	report := r.command(env, r.report, &cobra.Command{
		Use: "report NODE", Short: "Show the last report of a node's agent, as kdiag pleg does on the node",
		Long: `Get the last report of kdiag agent on a node through the API server, and print it as kdiag pleg does there.
This works while the node's kubelet is dead, since the agent's pod is on the host's network. It takes the rights to list
pods and to get pods/proxy where the agents run. Exit codes are those of kdiag pleg.`,
		Example: "  kdiag fleet report worker-7", Args: nodeAnd(0),
	})
	report.Flags().BoolVar(&r.Details, "details", false, "print all evidence, steps, measurements and checks")
	history := h.command(env, h.history, &cobra.Command{
		Use: "history NODE", Short: "Show what a node's agent recorded, as kdiag history does on the node",
		Example: "  kdiag fleet history worker-7 --since -24h --details", Args: nodeAnd(0),
	})
	history.Flags().StringVar(&h.since, "since", "", "only what was recorded since then, such as -24h (default -2h)")
	history.Flags().BoolVar(&h.Details, "details", false, "print all incidents, causes and transitions")
	fetch := b.command(env, b.bundle, &cobra.Command{
		Use: "bundle NODE [FILE]", Short: "Fetch an archive of evidence that a node's agent captured",
		Long: `Fetch the newest archive that kdiag agent captured on a node, or the one that --capture names, and check that
it is whole. FILE is a new file, by default of the archive's own name in this folder; - is standard output. The agent
serves archives to who knows the token in the secret kdiag-captures; docs/fleet-node.md has how to make it.

Exit codes: 0 written; 1 written, and the archive is damaged or lacks a vital part; 2 nothing written.`,
		Example: "  kdiag fleet bundle worker-7 --list\n  kdiag fleet bundle worker-7 - | kdiag node --from -",
		Args:    nodeAnd(1),
	})
	fetch.Flags().BoolVar(&b.list, "list", false, "list the archives of the node instead")
	fetch.Flags().StringVar(&b.capture, "capture", "", "name of the archive to fetch (default the newest)")
	return []*cobra.Command{report, history, fetch}
}

// nodeAnd expects the name of a node, and at most so many more arguments.
func nodeAnd(more int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return cli.Usage("the name of a node is missing",
				"kubectl get nodes lists the nodes; for example "+cmd.CommandPath()+" worker-7")
		case len(args) > 1+more:
			return cli.Usage(fmt.Sprintf("%q is one argument too many", args[1+more]), cmd.CommandPath()+" --help")
		}
		return nil
	}
}

// command gives a command what all three have.
func (r *remote) command(
	env cli.Env, run func(context.Context, cli.Env) error, cmd *cobra.Command,
) *cobra.Command {
	cmd.ValidArgsFunction = r.cluster.CompleteNode
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		r.node, r.file = args[0], slices.Concat(args[1:], []string{""})[0]
		r.line = func(name string, flags ...string) string {
			return cli.CommandLine(cmd, name+" "+cli.Quote(r.node), append(flags, "context", "kubeconfig")...)
		}
		_, _, err := cli.ParseRange(r.since, "", env.Now())
		return cmp.Or(
			cli.Reject(slices.Contains(args, ""), "an argument is empty", "kubectl get nodes lists the nodes"),
			cli.Reject(r.list && (len(args) > 1 || r.capture != ""), "--list fetches nothing",
				"leave out --list, or FILE and --capture"),
			cli.RejectEmpty(cmd, "since", "capture"), err, r.Check(cmd, nil),
		)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, cancel := r.Within(cmd.Context())
		defer cancel()
		var err error
		if _, r.agent, err = r.cluster.Agent(ctx, r.node); err == nil {
			cli.Log(env, r.Verbose).Debug("found", "agent", r.agent)
			err = run(ctx, env)
		}
		return cluster.Error(cmd.Context(), err)
	}
	r.AddOutput(cmd)
	cmd.Flags().DurationVarP(&r.Timeout, "timeout", "t", cmp.Or(r.Timeout, cli.DefaultTimeout),
		"end by then, whatever hangs")
	r.AddVerbose(cmd, "print kdiag's log to stderr")
	return cmd
}

func (r *remote) report(ctx context.Context, env cli.Env) error {
	report := &checks.Report{}
	if err := r.agent.Read(ctx, "report", nil, checks.KindReport, report); err != nil {
		return err
	}
	return cluster.Show(ctx, env, &r.Flags, report, r.line("fleet report"), render.Report)
}

func (r *remote) history(ctx context.Context, env cli.Env) error {
	query := url.Values{}
	if since, _, _ := cli.ParseRange(r.since, "", env.Now()); !since.IsZero() { // was checked
		query.Set("since", max(env.Now().Sub(since), time.Second).Round(time.Second).String())
	}
	h := &checks.History{}
	if err := r.agent.Read(ctx, "history", query, checks.KindHistory, h); err != nil {
		return err
	}
	if age := env.Now().Sub(h.To); age > oldRecord {
		h.Problems = append(h.Problems, "the last record is "+units.Duration(age)+" old: the agent is stuck")
	}
	h.NextSteps = document.CaptureSteps(h, time.UTC, func(c checks.TakenCapture) string {
		return r.line("fleet bundle") + " --capture " + cli.Quote(filepath.Base(c.Path))
	})
	how := document.Options(env, &r.Flags)
	how.More = r.line("fleet history", "since") + " --details"
	if err := render.History(env.Out, h, how); err != nil {
		return err
	}
	return document.ExitHistory(ctx, h)
}

func (r *remote) bundle(ctx context.Context, env cli.Env) error {
	r.agent.Authorize(ctx)
	list := &checks.CaptureList{}
	if err := r.agent.Read(ctx, "captures/", nil, checks.KindCaptureList, list); err != nil {
		return err
	}
	if r.list {
		return render.CaptureList(env.Out, list, document.Options(env, &r.Flags))
	}
	var c checks.Capture // the newest
	for _, other := range list.Captures {
		if (r.capture == "" || other.Name == r.capture) && !other.At.Before(c.At) {
			c = other
		}
	}
	if _, ok := checks.ParseCapture(c.Name); !ok { // also a path, which would be one here
		return cli.Usage("the agent on "+r.node+" has no such archive", r.line("fleet bundle")+" --list shows what it has")
	}
	return r.fetch(ctx, env, c)
}

// fetch copies an archive into a temporary file, checks it, and puts it in place.
func (r *remote) fetch(ctx context.Context, env cli.Env, c checks.Capture) error {
	name, toOut := cmp.Or(r.file, c.Name), r.file == "-"
	_, there := cli.Look(name, func() (fs.FileInfo, error) { return os.Lstat(name) })
	if err := cmp.Or(
		cli.Reject(toOut && env.OutTTY, "standard output is a terminal", "name a file, or pipe it into kdiag node --from -"),
		cli.Reject(!toOut && there == nil, name+" is there already", "name a new file"),
	); err != nil {
		return err
	}
	dir := filepath.Dir(name)
	if toOut {
		dir = ""
	}
	tmp, err := cli.Look(name, func() (*os.File, error) { return os.CreateTemp(dir, ".kdiag-*") })
	if err != nil {
		return cli.Usage(err.Error(), "name a file in a folder that you may write to")
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	if err := r.agent.Copy(ctx, "captures/"+c.Name, nil, tmp, min(c.Bytes, maxArchive)); err != nil {
		return err
	}
	_, _ = tmp.Seek(0, io.SeekStart) // a file
	b, err := bundle.Open(ctx, tmp)
	if err != nil {
		return cli.Fail(fmt.Errorf("%s arrived damaged: %w", c.Name, err), cli.ExitUnknown, "fetch it again")
	}
	defer b.Close()
	doc := &render.WrittenBundle{Manifest: &b.Manifest, Archive: name, ArchiveBytes: c.Bytes}
	out, how := env.Out, document.Options(env, &r.Flags)
	if toOut { // standard output is the archive
		out, how.NoWrap, doc.Archive = env.Err, !env.ErrTTY, ""
		_, _ = tmp.Seek(0, io.SeekStart)
		_, err = io.Copy(env.Out, tmp)
	} else {
		err = os.Rename(tmp.Name(), name)
	}
	if err != nil {
		return err
	}
	if !b.Intact {
		doc.Status = checks.Degraded
	}
	doc.NextSteps = []checks.NextStep{{
		Why: "Read it, on any machine", Command: "kdiag node --from " + cli.Quote(cmp.Or(doc.Archive, "FILE")),
		Touches: checks.TouchesNothing,
	}}
	if err := render.BundleWritten(out, doc, how); err != nil || doc.Status == checks.Healthy {
		return err
	}
	return &cli.ExitError{Code: cli.ExitProblem}
}
