package fleetcmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/bundle"
	"github.com/kdiag/kdiag/checks/fleet"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/cmd/internal/target"
)

const (
	oldRecord  = 5 * time.Minute // as in kdiag history
	bundleTime = 5 * time.Minute // for one archive to arrive
	maxArchive = 1 << 30         // no larger one is read again
)

// A remote is a command about what the agent of one node has.
type remote struct {
	cli.Flags
	cluster *target.Cluster
	since   string
	capture string
	list    bool

	node, file string
	agent      *fleet.Agent
	// line returns a command about the same cluster that a person may type next.
	line func(name string, flags ...string) string
}

// newRemoteCommands returns fleet report, history and bundle.
func newRemoteCommands(env cli.Env, cluster *target.Cluster) []*cobra.Command {
	return []*cobra.Command{newReport(env, cluster), newHistory(env, cluster), newBundle(env, cluster)}
}

func newReport(env cli.Env, cluster *target.Cluster) *cobra.Command {
	r := &remote{cluster: cluster}
	cmd := r.command(env, r.report, &cobra.Command{
		Use:   "report NODE",
		Short: "Show the last report of a node's agent, as kdiag pleg does on the node",
		Long: `Get the last report of kdiag agent on a node through the API server, and print it as kdiag pleg does there.
The kubelet takes no part in that: the agent's pod is on the host's network, so this works while the kubelet is dead.

It takes the rights to list pods and to get pods/proxy where the agents run. Exit codes are those of kdiag pleg.`,
		Example: "  kdiag fleet report worker-7\n  kdiag fleet report worker-7 -o json",
		Args:    cobra.ExactArgs(1),
	})
	cmd.Flags().BoolVar(&r.Details, "details", false, "print all evidence, steps, measurements and checks")
	return cmd
}

func newHistory(env cli.Env, cluster *target.Cluster) *cobra.Command {
	r := &remote{cluster: cluster}
	cmd := r.command(env, r.history, &cobra.Command{
		Use:     "history NODE",
		Short:   "Show what a node's agent recorded, as kdiag history does on the node",
		Example: "  kdiag fleet history worker-7\n  kdiag fleet history worker-7 --since -24h --details",
		Args:    cobra.ExactArgs(1),
	})
	cmd.Flags().StringVar(&r.since, "since", "", "only what was recorded since then, such as -24h, 03:12 (default -2h)")
	cmd.Flags().BoolVar(&r.Details, "details", false, "print all incidents, causes and transitions")
	return cmd
}

func newBundle(env cli.Env, cluster *target.Cluster) *cobra.Command {
	r := &remote{cluster: cluster, Flags: cli.Flags{Timeout: bundleTime}}
	cmd := r.command(env, r.bundle, &cobra.Command{
		Use:   "bundle NODE [FILE]",
		Short: "Fetch an archive of evidence that a node's agent captured",
		Long: `Fetch the newest archive that kdiag agent captured on a node, or the one that --capture names, and check that
it is whole. FILE is a new file, by default of the archive's own name in this folder; - is standard output. The agent
must run with --serve-captures, as that of deploy/kubernetes does.

Exit codes: 0 written; 1 written, and the archive is damaged or lacks a vital part; 2 nothing written.`,
		Example: `  kdiag fleet bundle worker-7 --list
  kdiag fleet bundle worker-7              # the newest, into this folder
  kdiag fleet bundle worker-7 - | kdiag node --from -`,
		Args: cobra.RangeArgs(1, 2),
	})
	cmd.Flags().BoolVar(&r.list, "list", false, "list the archives of the node instead")
	cmd.Flags().StringVar(&r.capture, "capture", "", "name of the archive to fetch (default the newest)")
	return cmd
}

// command gives a command what all three have.
func (r *remote) command(
	env cli.Env, run func(context.Context, cli.Env) error, cmd *cobra.Command,
) *cobra.Command {
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		r.node, r.file = args[0], slices.Concat(args[1:], []string{""})[0]
		r.line = func(name string, flags ...string) string {
			return target.CommandLine(cmd, name+" "+target.Quote(r.node), append(flags, "context", "kubeconfig")...)
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
		asking, _ := r.Budget()
		ctx, cancel := context.WithTimeout(cmd.Context(), asking)
		defer cancel()
		var err error
		if _, r.agent, err = r.cluster.Agent(ctx, r.node); err == nil {
			err = run(ctx, env)
		}
		return target.RemoteError(cmd.Context(), err)
	}
	r.AddOutput(cmd)
	cmd.Flags().DurationVarP(&r.Timeout, "timeout", "t", cmp.Or(r.Timeout, cli.DefaultTimeout),
		"end by then, whatever hangs")
	return cmd
}

func (r *remote) report(ctx context.Context, env cli.Env) error {
	report, err := target.AgentReport(ctx, r.agent)
	if err != nil {
		return err
	}
	return target.ShowRemote(ctx, env, &r.Flags, report, r.line("fleet report"), render.Report)
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
		h.Problems = append(h.Problems, "the last record is "+units.Duration(age)+" old: the agent stands still")
	}
	h.NextSteps = nil
	for _, c := range slices.Backward(h.Captures) {
		if c.Error == "" {
			h.NextSteps = append(h.NextSteps, checks.NextStep{
				Why:     c.Cause + ", " + c.At.Format(cli.Zoned) + ", " + units.Size(c.Bytes),
				Command: r.line("fleet bundle") + " --capture " + target.Quote(filepath.Base(c.Path)),
				Touches: checks.TouchesNothing,
			})
		}
	}
	if err := render.History(env.Out, h, r.line("fleet history", "since")+" --details",
		target.Render(env, &r.Flags)); err != nil {
		return err
	}
	verdict := checks.Healthy
	if slices.ContainsFunc(h.Incidents, func(i checks.Incident) bool { return i.Severity == checks.Critical }) {
		verdict = checks.Unhealthy
	}
	return target.Exit(ctx, verdict, "")
}

func (r *remote) bundle(ctx context.Context, env cli.Env) error {
	list := &checks.CaptureList{}
	if err := r.agent.Read(ctx, "captures/", nil, checks.KindCaptureList, list); err != nil {
		return err
	}
	if r.list {
		return render.CaptureList(env.Out, list, target.Render(env, &r.Flags))
	}
	named := func(c checks.Capture) bool { return c.Name == cmp.Or(r.capture, c.Name) }
	newest := -1
	for i, c := range list.Captures {
		if named(c) && (newest < 0 || !c.At.Before(list.Captures[newest].At)) {
			newest = i
		}
	}
	if newest < 0 {
		return cli.Usage("the agent on "+r.node+" has no such archive", r.line("fleet bundle")+" --list shows what it has")
	}
	c := list.Captures[newest]
	if _, ok := checks.ParseCapture(c.Name); !ok { // it becomes a file here
		return cli.Usage(fmt.Sprintf("the agent on %s has an archive of a strange name: %q", r.node, c.Name), "")
	}
	return r.fetch(ctx, env, c)
}

// fetch copies an archive into a temporary file, checks it, and puts it in place.
func (r *remote) fetch(ctx context.Context, env cli.Env, c checks.Capture) error {
	name, toOut := cmp.Or(r.file, c.Name), r.file == "-"
	if toOut {
		name = filepath.Join(os.TempDir(), c.Name) // never put there
	}
	to, err := cli.OpenDestination("FILE", name)
	if err != nil {
		return err
	}
	defer to.Close()
	if err := cmp.Or(
		cli.Reject(toOut && env.OutTTY, "standard output is a terminal", "name a file, or pipe it into kdiag node --from -"),
		cli.Reject(to.Exists && !toOut, name+" is there already", "name a new file"),
	); err != nil {
		return err
	}
	if err := r.agent.Copy(ctx, "captures/"+c.Name, nil, to.File(), min(c.Bytes, maxArchive)); err != nil {
		return err
	}
	_, _ = to.File().Seek(0, io.SeekStart) // a file
	b, err := bundle.Open(ctx, to.File())
	if err != nil {
		return cli.Fail(fmt.Errorf("%s arrived damaged: %w", c.Name, err), cli.ExitUnknown, "fetch it again")
	}
	defer b.Close()
	doc := &render.WrittenBundle{Manifest: &b.Manifest, Archive: name, ArchiveBytes: c.Bytes, Report: &checks.Report{}}
	if (&target.Stored{Bundle: b}).Decode(bundle.ReportName, doc.Report) != nil {
		doc.Report = nil
	}
	if !b.Intact {
		doc.Status = checks.Degraded
	}
	out, how := env.Out, target.Render(env, &r.Flags)
	if toOut { // standard output is the archive
		out, how.NoWrap, doc.Archive = env.Err, !env.ErrTTY, ""
		_, _ = to.File().Seek(0, io.SeekStart)
		_, err = io.Copy(env.Out, to.File())
	} else {
		err = to.Commit()
	}
	if err != nil {
		return err
	}
	doc.NextSteps = []checks.NextStep{{
		Why: "Read it, on any machine", Command: "kdiag node --from " + target.Quote(cmp.Or(doc.Archive, "FILE")),
		Touches: checks.TouchesNothing,
	}}
	if err := render.BundleWritten(out, doc, how); err != nil {
		return err
	}
	if doc.Status != checks.Healthy {
		return &cli.ExitError{Code: cli.ExitProblem}
	}
	return nil
}
