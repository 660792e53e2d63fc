package checks

import (
	"fmt"

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

func readRuntimeLists(f *Facts) Result {
	if r := f.unreached(); r != nil {
		return *r
	}
	var asked, stalls, errors int
	for _, name := range []string{rpcSandboxes, rpcContainers} {
		r := f.rpc(name)
		switch r.Outcome {
		case hung, failed:
			return result(StatusCritical, "%s", callLine(r.last())).took(r.last().Elapsed)
		case stalled:
			stalls += r.hungCalls()
			asked++
		case flaky:
			errors += r.failedCalls()
			asked++
		case answered:
			asked++
		}
	}
	if asked < 2 {
		return result(StatusUnknown, "not both lists were asked before the time was up")
	}
	p50, known := f.listMedian()
	if !known {
		p50 = f.rpc(rpcSandboxes).last().Elapsed + f.rpc(rpcContainers).last().Elapsed
	}
	line := fmt.Sprintf("%s in %s", f.held(), units.Duration(p50))
	switch {
	case stalls > 0:
		return result(StatusCritical, "%s, but %s did not answer", line, units.Count(stalls, "list call")).took(p50)
	case f.Limits.VerySlowList > 0 && p50 >= f.Limits.VerySlowList:
		return result(StatusCritical, "%s", line).took(p50)
	case errors > 0:
		return result(StatusWarning, "%s, but %s failed before", line, units.Count(errors, "list call")).took(p50)
	case f.Limits.SlowList > 0 && p50 >= f.Limits.SlowList:
		return result(StatusWarning, "%s", line).took(p50)
	}
	return result(StatusOK, "%s", line).took(p50)
}

// held says what the newest lists hold.
func (f *Facts) held() string {
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
	return fmt.Sprintf("%s, %s (%s running)", verb(sandboxes, "1 sandbox", units.Number(sandboxes)+" sandboxes"), units.Count(containers, "container"), units.Number(running))
}
