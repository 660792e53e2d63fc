package fleetcmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
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
	"github.com/kdiag/kdiag/cmd/internal/cluster"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/cmd/internal/render"
)

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
		asking, _ := r.Budget()
		ctx, cancel := context.WithTimeout(cmd.Context(), asking)
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
	h.NextSteps = nil
	for _, c := range slices.Backward(h.Captures) {
		if c.Error == "" {
			h.NextSteps = append(h.NextSteps, checks.NextStep{
				Why:     c.Cause + ", " + c.At.Format(cli.Zoned) + ", " + units.Size(c.Bytes),
				Command: r.line("fleet bundle") + " --capture " + cli.Quote(filepath.Base(c.Path)),
				Touches: checks.TouchesNothing,
			})
		}
	}
	if err := render.History(env.Out, h, r.line("fleet history", "since")+" --details",
		document.Options(env, &r.Flags)); err != nil {
		return err
	}
	verdict := checks.Healthy
	if slices.ContainsFunc(h.Incidents, func(i checks.Incident) bool { return i.Severity == checks.Critical }) {
		verdict = checks.Unhealthy
	}
	return document.Exit(ctx, verdict, "")
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
