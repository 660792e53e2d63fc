package judge

import (
	"fmt"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/plegbench"
)

func runtimeInspect() Check {
	return Check{
		ID:    "runtime.inspect",
		Title: "the status of every pod and container is answered",
		Text: "Asks for the status of sandboxes and containers one by one, without verbose, as the kubelet does for pods that change. One that hangs costs each relist " +
			"two minutes. NotFound is the ordinary race with a removal.",
		read: readRuntimeInspect,
	}
}

func readRuntimeInspect(f *facts.Facts) checks.Result {
	if r := unreached(f); r != nil {
		return *r
	}
	all := f.Sweep.Made
	if len(all) == 0 {
		if f.Calls.AnyList && f.Lists.Objects == 0 {
			return result(checks.StatusSkipped, "the runtime holds no pods")
		}
		return result(checks.StatusUnknown, "no status was asked")
	}
	hungs, bad := f.Sweep.Hung, facts.InspectionsThat(f, func(i plegbench.Inspection) bool { return facts.IsFailed(i) || facts.IsRefused(i) })
	running := f.Sweep.Running
	switch {
	case len(hungs) > 0:
		return took(result(checks.StatusCritical, "%s of %s hung, the first of %s", units.Number(len(hungs)), units.Number(len(all)), facts.Label(hungs[0])), hungs[0].Call.Elapsed)
	case len(bad) > 0:
		return result(checks.StatusWarning, "%s of %s failed, the first of %s: %s", units.Number(len(bad)), units.Number(len(all)), facts.Label(bad[0]), facts.Clean(bad[0].Call.Err))
	case running.Disagrees():
		return result(checks.StatusWarning, "%s", running.Disagreement())
	}
	line, s := answeredLine(f, all), f.Sweep.Summary
	if s == nil || s.SlowestSeconds == nil {
		return result(checks.StatusOK, "%s", line)
	}
	slowest := units.ToDuration(*s.SlowestSeconds)
	if s.P99Seconds != nil {
		line += ", p99 " + units.Seconds(*s.P99Seconds)
	}
	status := checks.StatusOK
	if f.Limits.SlowStatus > 0 && slowest >= f.Limits.SlowStatus {
		status = checks.StatusWarning
	}
	return took(result(status, "%s, slowest %s", line, units.Duration(slowest)), slowest)
}

// answeredLine counts the status calls that were answered; what ended meanwhile is not among them.
func answeredLine(f *facts.Facts, all []plegbench.Inspection) string {
	answers := f.Sweep.Answered
	line := units.Count(answers, "status call")
	if total := max(f.Measurement.Sweep.Total, len(all)); total > answers {
		line = fmt.Sprintf("%s of %s", units.Number(answers), units.Count(total, "status call"))
	}
	line += " answered"
	if gone := len(f.Sweep.Gone); gone > 0 {
		line += fmt.Sprintf(", %s ended meanwhile", units.Number(gone))
	}
	return line
}
