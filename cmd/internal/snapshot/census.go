package snapshot

import (
	"context"
	"errors"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/connection"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/gc"
	"github.com/kdiag/kdiag/plegbench"
)

// TakeCensus counts exited containers and dead sandboxes, with progress on standard error. A snapshot with a problem
// has no census.
func TakeCensus(
	ctx context.Context, env cli.Env, c *connection.Connection, src Sources,
) (Snapshot, *gc.Census) {
	progress := document.NewProgress(env)
	defer progress.Done()
	s := Take(ctx, env, c, src, progress)
	if s.Problem != "" {
		return s, nil
	}
	var newest []gc.Candidate
	for _, exited := range gc.CountExited(s.Node.Containers) {
		if exited.PodUID != "" {
			newest = append(newest, gc.Candidate{ID: exited.NewestID, PodUID: exited.PodUID})
		}
	}
	ends, _ := gc.ReadEnds(ctx, c.Client, newest, func(asked int) {
		progress.Update(plegbench.Progress{Phase: "inspect", Done: asked, Total: len(newest)})
	})
	return s, new(gc.TakeCensus(s.Node, ends, crictl.DefaultMessageLimit, env.Now()))
}

// ConcludeCensus fills in the document of kdiag exited from a census. pleg is the command that diagnoses a runtime
// which gives no list.
func ConcludeCensus(
	ctx context.Context, env cli.Env, doc *render.ExitedCensus, s Snapshot, census *gc.Census, pleg string,
) {
	doc.GeneratedAt = env.Now().UTC().Truncate(time.Second)
	doc.Runtime.Name, doc.Runtime.Version = s.Version.RuntimeName, s.Version.RuntimeVersion
	if s.Problem != "" {
		doc.Problems = append(doc.Problems, s.Problem)
		if !s.Denied && ctx.Err() == nil {
			doc.Status = checks.Unhealthy // a runtime that gives no list is an answer
			doc.NextSteps = []checks.NextStep{judge.StepWhenSilent(pleg)}
		}
		return
	}
	doc.Census, doc.Missing = census, append([]string{}, s.Missing...)
	if census.Total > 0 {
		doc.NextSteps = CensusSteps(doc.Next)
	}
	doc.Status = censusVerdict(census, checks.DefaultLimits())
	if doc.Status == checks.Healthy && census.Partial {
		doc.Status = checks.Unknown
	}
}

// censusVerdict compares a census with the limits by which kdiag pleg finds TooManyExited and ListTooLarge.
func censusVerdict(c *gc.Census, l checks.Limits) checks.Verdict {
	most := max(c.Total, c.Sandboxes)
	switch {
	case most >= l.ExitedCritical, c.ListOfLimit >= l.SizeCritical:
		return checks.Unhealthy
	case c.Total >= l.ExitedWarning, c.Sandboxes >= l.DeadSandboxes, c.ListOfLimit >= l.SizeWarning:
		return checks.Degraded
	}
	return checks.Healthy
}

// Census returns the document of kdiag exited for the runtime that the flags name.
func Census(ctx context.Context, env cli.Env, f *cli.Flags) (*render.ExitedCensus, error) {
	c, err := connection.Open(ctx, env, f)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	doc := &render.ExitedCensus{
		Header: document.Header(env, "exited", "ExitedCensus"), Next: "kdiag gc-exited", Missing: []string{},
		Runtime: c.Runtime(),
	}
	s, census := TakeCensus(ctx, env, c, Sources{})
	if s.Problem != "" {
		return nil, errors.New(s.Problem)
	}
	ConcludeCensus(ctx, env, doc, s, census, "kdiag pleg")
	return doc, nil
}

// CensusSteps returns the next step after a census that is not empty. plan is the command that shows the removal plan.
func CensusSteps(plan string) []checks.NextStep {
	return []checks.NextStep{{
		Why: "Show the removal plan (dry run)", Command: plan, Touches: checks.TouchesNothing,
	}}
}
