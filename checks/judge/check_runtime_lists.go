package judge

import (
	"fmt"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
)

func runtimeLists() Check {
	return Check{
		ID:    "runtime.lists",
		Title: "both lists of a relist are answered in time",
		Text: "A relist begins with ListPodSandbox and ListContainers, unfiltered. If either fails or hangs, PLEG's clock stands still, and after three minutes the " +
			"node is NotReady. Both are served from memory: milliseconds are normal.",
		read: readRuntimeLists,
	}
}

func readRuntimeLists(f *facts.Facts) checks.Result {
	if r := unreached(f); r != nil {
		return *r
	}
	var asked, stalls, errors int
	for _, name := range []string{facts.RPCSandboxes, facts.RPCContainers} {
		r := f.RPC[name]
		switch r.Outcome {
		case facts.Hung, facts.Failed:
			return took(result(checks.StatusCritical, "%s", facts.CallLine(r.Last())), r.Last().Elapsed)
		case facts.Stalled:
			stalls += r.HungCalls()
			asked++
		case facts.Flaky:
			errors += r.FailedCalls()
			asked++
		case facts.Answered:
			asked++
		}
	}
	if asked < 2 {
		return result(checks.StatusUnknown, "not both lists were asked before the time was up")
	}
	p50, known := f.Calls.ListMedian, f.Calls.ListTimed
	if !known {
		p50 = f.RPC[facts.RPCSandboxes].Last().Elapsed + f.RPC[facts.RPCContainers].Last().Elapsed
	}
	line := fmt.Sprintf("%s in %s", held(f), units.Duration(p50))
	switch {
	case stalls > 0:
		return took(result(checks.StatusCritical, "%s, but %s did not answer", line, units.Count(stalls, "list call")), p50)
	case f.Limits.VerySlowList > 0 && p50 >= f.Limits.VerySlowList:
		return took(result(checks.StatusCritical, "%s", line), p50)
	case errors > 0:
		return took(result(checks.StatusWarning, "%s, but %s failed before", line, units.Count(errors, "list call")), p50)
	case f.Limits.SlowList > 0 && p50 >= f.Limits.SlowList:
		return took(result(checks.StatusWarning, "%s", line), p50)
	}
	return took(result(checks.StatusOK, "%s", line), p50)
}

// held says what the newest lists hold.
func held(f *facts.Facts) string {
	sandboxes, running, containers := 0, 0, 0
	if l := f.Measurement.Sandboxes; l != nil {
		sandboxes = len(l.Sandboxes)
	}
	if l := f.Measurement.Containers; l != nil {
		containers = len(l.Containers)
		for i := range l.Containers {
			if l.Containers[i].State == crictl.ContainerRunning {
				running++
			}
		}
	}
	return fmt.Sprintf("%s, %s (%s running)", units.Plural(sandboxes, "1 sandbox", units.Number(sandboxes)+" sandboxes"), units.Count(containers, "container"), units.Number(running))
}
