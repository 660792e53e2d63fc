package causes

import (
	"fmt"
	"slices"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/journal/signature"
)

// RuntimeNotReady is the code of this cause.
const RuntimeNotReady = "RuntimeNotReady"

var runtimeNotReady = Definition{
	Code:   RuntimeNotReady,
	Claims: []string{"runtime.status"},
	Roots: []Root{
		{Code: DiskFull, When: runtimeDiskFull},
		{Code: InodesExhausted, When: runtimeInodesGone},
		{Code: IOStall, When: diskFails},
		{Code: PIDsExhausted, When: runtimeCannotFork},
		{Code: FilesExhausted, When: runtimeOutOfFiles},
	},
	Recognise: recogniseRuntimeNotReady,
	FromLog:   loggedRuntimeNotReady,
}

func recogniseRuntimeNotReady(f *facts.Facts) *Finding {
	if !f.Calls.Connected || f.Pattern.Hang != facts.HangNone {
		return nil
	}
	if c := notInitialised(f); c != nil {
		return notReadyWith(f, c)
	}
	if c := conditionFalse(f); c != nil {
		return notReadyWith(f, c)
	}
	if c := erring(f); c != nil {
		return notReadyWith(f, c)
	}
	if c := unsteady(f); c != nil {
		return notReadyWith(f, c)
	}
	return nil
}

// notInitialised recognises a runtime that has its socket but not yet its state.
func notInitialised(f *facts.Facts) *Finding {
	call, found := facts.CallError(f, crictl.Unavailable, "not initialized")
	if !found || f.Calls.AnyList {
		return nil
	}
	var e checks.Evidence
	Addf(&e.For, "%s", facts.CallLine(call))
	Addf(&e.For, "calls are refused in %s with a message of its own: it is starting, not hung",
		units.Duration(call.Elapsed))
	return newFinding(checks.Critical, raised(checks.Certain, logOfDown(f, &e)),
		fmt.Sprintf("%s is starting: it serves its socket but has not loaded its state yet", f.Target.Daemon.Label), e)
}

// conditionFalse recognises RuntimeReady=false, and a Status without it.
func conditionFalse(f *facts.Facts) *Finding {
	status := f.Measurement.Status
	if status == nil {
		return nil
	}
	condition, ok := status.Condition(facts.ConditionRuntimeReady)
	var e checks.Evidence
	switch {
	case !ok:
		Addf(&e.For, "Status answered with %s and none of them is RuntimeReady; the kubelet takes that for not ready",
			units.Count(len(status.Conditions), "condition"))
		return newFinding(checks.Critical, raised(checks.Strong, logOfDown(f, &e)),
			fmt.Sprintf("%s does not report RuntimeReady", f.Target.Daemon.Label), e)
	case condition.Status:
		return nil
	}
	Addf(&e.For, "%s", conditionLine(condition))
	return newFinding(checks.Critical, raised(checks.Certain, logOfDown(f, &e)),
		fmt.Sprintf("%s says that it is not ready: %s", f.Target.Daemon.Label, conditionWhy(condition)), e)
}

// erring recognises a runtime whose Status or lists come back as errors, other than those that have a cause of their
// own.
func erring(f *facts.Facts) *Finding {
	if _, gone := f.Calls.Gone, f.Calls.WentAway; gone {
		return nil
	}
	var e checks.Evidence
	names := []string{}
	// for Version alone: a node status misses its runtime's name, a kubelet that restarts does not come up
	severity := checks.Warning
	for _, name := range []string{facts.RPCStatus, facts.RPCSandboxes, facts.RPCContainers, facts.RPCVersion} {
		r := f.RPC[name]
		if r.Outcome != facts.Failed || hasOwnCause(r.Last()) {
			continue
		}
		if name != facts.RPCVersion {
			severity = checks.Critical
		}
		names = append(names, name)
		Addf(&e.For, "%s", facts.CallLine(r.Last()))
	}
	if len(names) == 0 {
		return nil
	}
	if f.Calls.AnyList {
		Addf(&e.Against, "other calls are answered")
	}
	step := checks.Strong
	if severity == checks.Critical {
		step = raised(step, logOfDown(f, &e))
	}
	return newFinding(severity, step,
		fmt.Sprintf("%s answers %s with an error", f.Target.Daemon.Label, units.List(names)), e)
}

// unsteady recognises a runtime that fails on and off while it is measured, as one does that is restarted: lists that
// failed and were answered later, and status calls that met no runtime, or one without its state.
func unsteady(f *facts.Facts) *Finding {
	if _, gone := f.Calls.Gone, f.Calls.WentAway; gone {
		return nil
	}
	var e checks.Evidence
	fails, calls := 0, 0
	for _, name := range []string{facts.RPCSandboxes, facts.RPCContainers} {
		r := f.RPC[name]
		i := slices.IndexFunc(r.Calls, func(c crictl.Call) bool { return facts.IsFailure(c) && !hasOwnCause(c) })
		if i < 0 || !r.Outcome.Alive() {
			continue
		}
		fails, calls = fails+r.FailedCalls(), calls+len(r.Calls)
		Addf(&e.For, "%s of %s failed, later ones were answered: %s", units.Number(r.FailedCalls()),
			units.Count(len(r.Calls), name+" call"), facts.CallLine(r.Calls[i]))
	}
	refused, all := f.Sweep.Refused, len(f.Sweep.Made)
	if len(refused) > 0 {
		fails, calls = fails+len(refused), calls+all
		Addf(&e.For, "%s of %s failed, as without a runtime or with one that is starting: %s",
			units.Number(len(refused)), units.Count(all, "status call"),
			facts.CallLine(refused[0].Call))
	}
	switch {
	case fails == 0:
		return nil
	case len(refused) > 0 && f.Sweep.Answered == 0, len(refused) > 1 && !answersAfter(f, refused[0].Call.Start):
		return newFinding(checks.Critical, raised(checks.Strong, logOfDown(f, &e)),
			fmt.Sprintf("%s answered lists and refuses status calls: it is starting, or was restarted while it "+
				"was measured", f.Target.Daemon.Label), e)
	}
	Addf(&e.Against, "other calls are answered")
	return newFinding(checks.Warning, checks.Strong,
		fmt.Sprintf("%s failed %s of %s while it was measured: restarted?", f.Target.Daemon.Label,
			units.Number(fails), units.Count(calls, "call")), e)
}

// answersAfter reports whether a call that was made after a moment was answered.
func answersAfter(f *facts.Facts, t time.Time) bool {
	for c := range facts.EveryCall(f) {
		if c.OK() && c.Start.After(t) {
			return true
		}
	}
	return false
}

// hasOwnCause reports whether an error belongs to RuntimeUnsupported, ListTooLarge, or to no cause of the runtime.
func hasOwnCause(c crictl.Call) bool {
	return c.Code == crictl.Unimplemented || c.Code == crictl.PermissionDenied || facts.IsTooLarge(c)
}

func notReadyWith(f *facts.Facts, c *Finding) *Finding {
	c.Subject = facts.DaemonSubject(f)
	c.Advise = func(string) []checks.NextStep {
		var s Steps
		s.Add(checks.TouchesNothing, facts.CrictlCommand(f, "info"), "The conditions in the runtime's own words.")
		AddService(f, &s)
		s.Add(checks.TouchesNothing, facts.KdiagCommand(f, "runtime"),
			"Look again. While it is still loading its state, wait: that takes minutes with tens of thousands of "+
				"containers, and a restart begins it anew.")
		looks := len(s)
		addRestart(f, &s)
		for i := range s[looks:] {
			s[looks+i].Why = "Only if it is not loading its state, or that never ends. " + s[looks+i].Why
		}
		return s.Done()
	}
	return c
}

// conditionLine writes a condition as the kubelet does: RuntimeReady=false reason:X message:Y.
func conditionLine(c crictl.Condition) string {
	line := fmt.Sprintf("%s=%t", facts.Clean(c.Type), c.Status)
	if c.Reason != "" {
		line += " reason:" + facts.Clean(c.Reason)
	}
	if c.Message != "" {
		line += " message:" + facts.Clean(c.Message)
	}
	return line
}

// conditionWhy is the best that a condition says of itself.
func conditionWhy(c crictl.Condition) string {
	switch {
	case c.Message != "":
		return facts.Clean(c.Message)
	case c.Reason != "":
		return facts.Clean(c.Reason)
	}
	return "no reason given"
}

// loggedRuntimeNotReady is for a runtime that answers Status and says itself that it is not ready. Such an answer
// does not count as a good status, so "container runtime is down" appears after 30 s too (pkg/kubelet/kubelet.go,
// updateRuntimeUp).
func loggedRuntimeNotReady(in *Incident) *LogFinding {
	if in.count(signature.RuntimeNotReadyReported) == 0 {
		return nil
	}
	f := in.finding(runtimeTier, 0.7, "The runtime answers, and says itself that it is not ready.",
		signature.RuntimeNotReadyReported)
	if in.statusMissed+in.listsMissed+in.refused > 0 {
		f.lower(0.3, "calls were refused or missed their deadline as well")
	}
	return f
}
