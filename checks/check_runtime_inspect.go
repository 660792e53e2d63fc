package checks

import (
	"fmt"

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

func readRuntimeInspect(f *Facts) Result {
	if r := f.unreached(); r != nil {
		return *r
	}
	all := f.inspections()
	if len(all) == 0 {
		if f.anyList() && f.objects() == 0 {
			return result(StatusSkipped, "the runtime holds no pods")
		}
		return result(StatusUnknown, "no status was asked")
	}
	hungs, bad := f.inspectionsThat(isHung), f.inspectionsThat(func(i plegbench.Inspection) bool { return isFailed(i) || isRefused(i) })
	running := f.seenRunning()
	switch {
	case len(hungs) > 0:
		return result(StatusCritical, "%s of %s hung, the first of %s", units.Number(len(hungs)), units.Number(len(all)), label(hungs[0])).took(hungs[0].Call.Elapsed)
	case len(bad) > 0:
		return result(StatusWarning, "%s of %s failed, the first of %s: %s", units.Number(len(bad)), units.Number(len(all)), label(bad[0]), clean(bad[0].Call.Err))
	case running.disagrees():
		return result(StatusWarning, "%s", running.disagreement())
	}
	line, s := f.answeredLine(all), f.sweepSummary()
	if s == nil || s.SlowestSeconds == nil {
		return result(StatusOK, "%s", line)
	}
	slowest := units.ToDuration(*s.SlowestSeconds)
	if s.P99Seconds != nil {
		line += ", p99 " + units.Seconds(*s.P99Seconds)
	}
	status := StatusOK
	if f.Limits.SlowStatus > 0 && slowest >= f.Limits.SlowStatus {
		status = StatusWarning
	}
	return result(status, "%s, slowest %s", line, units.Duration(slowest)).took(slowest)
}

// answeredLine counts the status calls that were answered; what ended meanwhile is not among them.
func (f *Facts) answeredLine(all []plegbench.Inspection) string {
	answers := f.statusesAnswered()
	line := units.Count(answers, "status call")
	if total := max(f.Measurement.Sweep.Total, len(all)); total > answers {
		line = fmt.Sprintf("%s of %s", units.Number(answers), units.Count(total, "status call"))
	}
	line += " answered"
	if gone := len(f.inspectionsThat(isNotFound)); gone > 0 {
		line += fmt.Sprintf(", %s ended meanwhile", units.Number(gone))
	}
	return line
}
