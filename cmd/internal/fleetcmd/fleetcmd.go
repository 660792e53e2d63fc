// Package fleetcmd is kdiag fleet: all nodes of a cluster, the sick ones by cause, and what these have in common.
package fleetcmd

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/fleet"
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
	cfg, name, err := opts.cluster.Config()
	if err != nil {
		return err
	}
	cluster, err := opts.cluster.Connect(cfg)
	if err != nil {
		return err
	}
	asking, _ := opts.Budget()
	within, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	s, err := cluster.Read(within, fleet.Options{Selector: opts.selector, Pods: opts.pods})
	cli.Log(env, opts.Verbose).Debug("read", "server", cfg.Host, "context", name, "selector", opts.selector, "err", err)
	switch {
	case ctx.Err() != nil:
		return &cli.ExitError{Code: cli.ExitUnknown}
	case err != nil:
		return cli.Fail(fmt.Errorf("asking %s: %w", cfg.Host, err), cli.ExitUnknown, fleet.Hint(err))
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
		for i := range g.NextSteps { // those of the header are the same
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
