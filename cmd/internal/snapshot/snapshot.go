// Package snapshot lists the containers and sandboxes of a runtime and the pods that exist, for kdiag exited and
// gc-exited.
package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/judge"
	"github.com/kdiag/kdiag/cmd/internal/cli"
	"github.com/kdiag/kdiag/cmd/internal/connection"
	"github.com/kdiag/kdiag/cmd/internal/document"
	"github.com/kdiag/kdiag/cmd/internal/render"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/crictl/gc"
	"github.com/kdiag/kdiag/crictl/kubeletconfig"
	"github.com/kdiag/kdiag/plegbench"
)

// helloTimeout bounds the first call, Version, before anything else is asked.
const helloTimeout = 5 * time.Second

// A Snapshot has all containers and sandboxes of a runtime at one time.
type Snapshot struct {
	Node    gc.Node
	Version crictl.Version // of the runtime that answered
	Missing []string       // evidence on which pods exist that could not be read, and why
	Keep    string         // why the kubelet's retention of exited containers is not known; empty when it is
	Problem string         // why there is no snapshot: a list failed as a whole
	Denied  bool           // because this user may not ask
}

// Take lists everything and finds out which pods exist. Node.Partial marks a list that is not complete; Problem
// explains why there is none.
func Take(
	ctx context.Context, env cli.Env, c *connection.Connection, src Sources, progress *render.Progress,
) Snapshot {
	s := Snapshot{}
	waitFor := func(what string) { progress.Update(plegbench.Progress{Phase: "waiting for " + what}) }
	waitFor("the runtime: Version")
	hello, cancel := context.WithTimeout(ctx, helloTimeout)
	version, call := c.Client.Version(hello)
	due, _ := hello.Deadline()
	if end, limited := ctx.Deadline(); call.Code == crictl.Canceled && ctx.Err() == nil && (!limited || end.After(due)) {
		call.Code = crictl.DeadlineExceeded // the deadline of this call, which the runtime may see first; not the command's
	}
	cancel()
	if !call.OK() {
		connect, _ := connection.Probe(ctx, env, c.Socket)
		switch {
		case connect.State == crictl.ConnectDenied:
			s.Problem, s.Denied = connection.Denied(c.Endpoint.URL), true
		case call.Code == crictl.Canceled:
			s.Problem = unanswered(ctx, call)
		default:
			s.Problem = judge.WhySilent(c.Runtime(), connect, call)
		}
		return s
	}
	s.Version.RuntimeName = connection.Shorten(version.RuntimeName)
	s.Version.RuntimeVersion = connection.Shorten(version.RuntimeVersion)
	// Sandboxes first: a container that comes in between has a sandbox that is not listed, and is left alone.
	waitFor("the runtime: ListPodSandbox")
	sandboxes := c.Client.ListPodSandbox(ctx, crictl.Filter{}, "")
	if !sandboxes.Complete && len(sandboxes.Sandboxes) == 0 {
		s.Problem = unanswered(ctx, sandboxes.Calls...)
		return s
	}
	waitFor("the runtime: ListContainers")
	containers := c.Client.ListContainers(ctx, crictl.Filter{}, "")
	if !containers.Complete && len(containers.Containers) == 0 {
		s.Problem = unanswered(ctx, containers.Calls...)
		return s
	}
	s.Node.Sandboxes, s.Node.Containers = sandboxes.Sandboxes, containers.Containers
	s.Node.Partial = !sandboxes.Complete || !containers.Complete
	waitFor("the kubelet's pods")
	evidence := readEvidence(ctx, env, c, src, s.Node.Sandboxes)
	s.Node.Pods = gc.NewLiveness(&evidence)
	s.Missing, s.Keep = s.Node.Pods.Missing(), unknownRetention(c)
	if keep := collection(c).DeadPerContainer; keep != nil {
		s.Node.Kubelet.Keep = *keep
	}
	s.Node.Kubelet.MinAge = collection(c).MinAge
	return s
}

// unknownRetention explains why it is not known how many exited containers the kubelet of this runtime keeps; empty if
// it is known.
func unknownRetention(c *connection.Connection) string {
	switch k := c.Kubelet; {
	case c.Simulated():
		return ""
	case k == nil:
		return "no kubelet runs here"
	case k.Unreadable != "" && k.Collection.DeadPerContainer == nil:
		return "cannot read the kubelet's settings: " + connection.Shorten(k.Unreadable)
	case !c.KubeletUses():
		return "the kubelet here uses another runtime, " + connection.Shorten(k.Endpoint)
	}
	return ""
}

// Logs returns where the kubelet has the logs of this runtime's containers. A simulation has none, and neither has a
// runtime that the kubelet here does not use.
func Logs(c *connection.Connection, root string) gc.Logs {
	if c.Simulated() || c.Kubelet != nil && !c.KubeletUses() {
		return gc.Logs{}
	}
	return gc.Logs{Root: root, Dir: cmp.Or(collection(c).PodLogsDir, kubeletconfig.Defaults().PodLogsDir)}
}

// Selected returns the UIDs of the pods that have the labels, by their sandboxes: lists carry none.
func Selected(
	ctx context.Context, c *connection.Connection, labels map[string]string,
) (map[string]bool, error) {
	list := c.Client.ListPodSandbox(ctx, crictl.Filter{Labels: labels}, "")
	if !list.Complete {
		return nil, fmt.Errorf("listing the sandboxes with these labels: %s", unanswered(ctx, list.Calls...))
	}
	uids := map[string]bool{}
	for i := range list.Sandboxes {
		uids[list.Sandboxes[i].Pod.UID] = true
	}
	return uids, nil
}

// unanswered describes the last of the calls, which has no answer.
func unanswered(ctx context.Context, calls ...crictl.Call) string {
	switch call := calls[len(calls)-1]; {
	case call.Code == crictl.Canceled && errors.Is(ctx.Err(), context.Canceled):
		return "interrupted before " + call.Method + " replied"
	case call.Code == crictl.Canceled:
		return "--timeout reached before " + call.Method + " replied"
	case call.Hung():
		return fmt.Sprintf("%s hangs (no reply in %v)", call.Method, call.Elapsed.Round(time.Millisecond))
	default:
		return crictl.Shorten(fmt.Sprintf("%s: %s: %s", call.Method, call.Code, call.Err), maxReason)
	}
}

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
