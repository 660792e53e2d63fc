package diagnosis

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/bundle"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/cmd/internal/archive"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/deadline"
)

// reportArchive is Report with --from: it judges the facts in a bundle again.
func reportArchive(ctx context.Context, env cli.Env, f *cli.Flags, command string, show Show) error {
	a, err := archive.Open(ctx, env, f, "--from", f.From)
	if err != nil {
		return err
	}
	defer a.Close()
	report, err := judgeArchive(ctx, env, a, command, f.From)
	if err != nil {
		return err
	}
	document.Complete(report, nil)
	if err := show(env.Out, report, document.Options(env, f)); err != nil {
		return err
	}
	return document.Exit(ctx, report.Status, f.FailOn)
}

// judgeArchive judges the facts in a bundle. Where they cannot be read, the report of the node stands for them.
func judgeArchive(
	ctx context.Context, env cli.Env, a *archive.Archive, command, name string,
) (*checks.Report, error) {
	var in facts.Input
	var then checks.Report
	errReport := a.Decode(bundle.ReportName, &then)
	if err := a.Decode(bundle.FactsName, &in); err != nil {
		if errReport != nil {
			return nil, err
		}
		quote(&then, a)
		then.Problems = slices.Concat([]string{err.Error()}, a.Manifest.Problems, then.Problems)
		then.Runtime.From = cli.Quote(name)
		return &then, nil
	}
	h := document.Header(env, command, "")
	h.Host, h.GeneratedAt, in.Runtime.From = a.Host, in.Now.UTC().Truncate(time.Second), cli.Quote(name)
	// Facts that no node has, made by hand, are an error and not the end of the program.
	report, err := deadline.Run(ctx, "judging the bundle",
		func(context.Context) (*checks.Report, error) { return judge.NewReport(h, &in), nil })
	if err != nil {
		return nil, cli.Usage(fmt.Sprintf("%s: %s: %v", a.Name, bundle.FactsName, err), archive.HintList)
	}
	if report.Status == checks.Unknown && len(report.Problems) == 0 {
		report.Problems = then.Problems // why no runtime was found or could be asked is in no fact
	}
	report.Problems = slices.Concat(a.Manifest.Problems, report.Problems)
	note := a.Note()
	if len(report.Causes) > 0 && report.Runtime.EndpointSource != string(crictl.SourceSimulated) {
		note += "; next steps are for " + cmp.Or(a.Host, "that node")
	}
	report.Notes = append([]string{note}, report.Notes...)
	return report, nil
}

// quote removes the next steps from a report of a bundle: they would be commands out of an archive that anybody may
// have written.
func quote(r *checks.Report, a *archive.Archive) {
	for i := range r.Causes {
		r.Causes[i].NextSteps = []checks.NextStep{}
	}
	r.NextSteps = nil
	r.Notes = append([]string{a.Note() + "; as it was reported there, without next steps"}, r.Notes...)
}
