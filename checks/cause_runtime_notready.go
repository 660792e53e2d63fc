package checks

import (
	"fmt"
	"slices"
	"time"

	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
)

// conditionRuntimeReady and conditionNetworkReady are the two conditions that CRI requires.
const (
	conditionRuntimeReady = "RuntimeReady"
	conditionNetworkReady = "NetworkReady"
)

func runtimeNotReady() Definition {
	return Definition{
		Code:  codeRuntimeNotReady,
		Title: "the runtime itself says that it is not ready",
		Means: "The socket works and the runtime answers, but the answer is no: RuntimeReady is false or missing, or it still says \"server is not " +
			"initialized yet\", or Status or a list comes back with an error.\n\n" +
			"With RuntimeReady=false the kubelet writes \"container runtime not ready\" into the Ready condition and stops counting Status as good, " +
			"so that 30 s later it adds \"container runtime is down\". An error from a list stops PLEG's clock: 3m later it is unhealthy. " +
			"containerd and CRI-O always report RuntimeReady=true; a false one comes from cri-dockerd (docker does not answer) or " +
			"from a runtime that is still starting.",
		Confirm: []string{
			"crictl info: conditions with reason and message.",
			"journalctl -u containerd: does it load its state? \"server is not initialized yet\" ends when that is done.",
			"For cri-dockerd: docker version, on the same node.",
		},
		Fix: []string{
			"Still starting: wait. With tens of thousands of containers containerd takes minutes to load them.",
			"Read the condition's message and repair what it names.",
			"cri-dockerd: bring back dockerd first.",
			"If starting never ends: look at its disk and its log, then restart the runtime. Before that, a restart only begins the loading anew.",
		},
		Mistaken: "NetworkNotReady: the other condition, a matter of CNI. RuntimeUnsupported: Unimplemented, the CRI plugin is not there at all. " +
			"Note that RuntimeReady=true proves only that gRPC is served.",
		Sources: []string{
			"kubelet: updateRuntimeUp in pkg/kubelet/kubelet.go; cri-client: at least two conditions are required",
			"containerd: Unavailable until the CRI plugin has recovered its state",
		},
		recognise: recogniseRuntimeNotReady,
	}
}

func recogniseRuntimeNotReady(f *Facts) *Cause {
	if !f.connected() || f.wholeHang() != hangNone {
		return nil
	}
	if c := f.notInitialised(); c != nil {
		return f.notReadyWith(c)
	}
	if c := f.conditionFalse(); c != nil {
		return f.notReadyWith(c)
	}
	if c := f.erring(); c != nil {
		return f.notReadyWith(c)
	}
	if c := f.unsteady(); c != nil {
		return f.notReadyWith(c)
	}
	return nil
}

// notInitialised recognises a runtime that has its socket but not yet its state.
func (f *Facts) notInitialised() *Cause {
	call, found := f.callError(crictl.Unavailable, "not initialized")
	if !found || f.anyList() {
		return nil
	}
	var e Evidence
	addf(&e.For, "%s", callLine(call))
	addf(&e.For, "calls are refused in %s with a message of its own: it is starting, not hung", units.Duration(call.Elapsed))
	return newCause(codeRuntimeNotReady, Critical, raised(Certain, f.hearDown(&e)),
		fmt.Sprintf("%s is starting: it serves its socket but has not loaded its state yet", f.daemon().Label), e)
}

// conditionFalse recognises RuntimeReady=false, and a Status without it.
func (f *Facts) conditionFalse() *Cause {
	status := f.Measurement.Status
	if status == nil {
		return nil
	}
	condition, ok := status.Condition(conditionRuntimeReady)
	var e Evidence
	switch {
	case !ok:
		addf(&e.For, "Status answered with %s and none of them is RuntimeReady; the kubelet takes that for not ready",
			units.Count(len(status.Conditions), "condition"))
		return newCause(codeRuntimeNotReady, Critical, raised(Strong, f.hearDown(&e)), fmt.Sprintf("%s does not report RuntimeReady", f.daemon().Label), e)
	case condition.Status:
		return nil
	}
	addf(&e.For, "%s", conditionLine(condition))
	return newCause(codeRuntimeNotReady, Critical, raised(Certain, f.hearDown(&e)),
		fmt.Sprintf("%s says that it is not ready: %s", f.daemon().Label, conditionWhy(condition)), e)
}

// erring recognises a runtime whose Status or lists come back as errors, other than those that have a cause of their own.
func (f *Facts) erring() *Cause {
	if _, gone := f.wentAway(); gone {
		return nil
	}
	var e Evidence
	names := []string{}
	severity := Warning // for Version alone: a node status misses its runtime's name, a kubelet that restarts does not come up
	for _, name := range []string{rpcStatus, rpcSandboxes, rpcContainers, rpcVersion} {
		r := f.rpc(name)
		if r.Outcome != failed || hasOwnCause(r.last()) {
			continue
		}
		if name != rpcVersion {
			severity = Critical
		}
		names = append(names, name)
		addf(&e.For, "%s", callLine(r.last()))
	}
	if len(names) == 0 {
		return nil
	}
	if f.anyList() {
		addf(&e.Against, "other calls are answered")
	}
	step := Strong
	if severity == Critical {
		step = raised(step, f.hearDown(&e))
	}
	return newCause(codeRuntimeNotReady, severity, step,
		fmt.Sprintf("%s answers %s with an error", f.daemon().Label, units.List(names)), e)
}

// unsteady recognises a runtime that fails on and off while it is measured, as one does that is restarted: lists that
// failed and were answered later, and status calls that met no runtime, or one without its state.
func (f *Facts) unsteady() *Cause {
	if _, gone := f.wentAway(); gone {
		return nil
	}
	var e Evidence
	fails, calls := 0, 0
	for _, name := range []string{rpcSandboxes, rpcContainers} {
		r := f.rpc(name)
		i := slices.IndexFunc(r.Calls, func(c crictl.Call) bool { return isFailure(c) && !hasOwnCause(c) })
		if i < 0 || !r.Outcome.alive() {
			continue
		}
		fails, calls = fails+r.failedCalls(), calls+len(r.Calls)
		addf(&e.For, "%s of %s failed, later ones were answered: %s", units.Number(r.failedCalls()), units.Count(len(r.Calls), name+" call"), callLine(r.Calls[i]))
	}
	refused, all := f.inspectionsThat(isRefused), len(f.inspections())
	if len(refused) > 0 {
		fails, calls = fails+len(refused), calls+all
		addf(&e.For, "%s of %s failed, as without a runtime or with one that is starting: %s", units.Number(len(refused)), units.Count(all, "status call"),
			callLine(refused[0].Call))
	}
	switch {
	case fails == 0:
		return nil
	case len(refused) > 0 && f.statusesAnswered() == 0, len(refused) > 1 && !f.answersAfter(refused[0].Call.Start):
		return newCause(codeRuntimeNotReady, Critical, raised(Strong, f.hearDown(&e)),
			fmt.Sprintf("%s answered lists and refuses status calls: it is starting, or was restarted while it was measured", f.daemon().Label), e)
	}
	addf(&e.Against, "other calls are answered")
	return newCause(codeRuntimeNotReady, Warning, Strong,
		fmt.Sprintf("%s failed %s of %s while it was measured: restarted?", f.daemon().Label, units.Number(fails), units.Count(calls, "call")), e)
}

// answersAfter reports whether a call that was made after a moment was answered.
func (f *Facts) answersAfter(t time.Time) bool {
	return slices.ContainsFunc(f.everyCall(), func(c crictl.Call) bool { return c.OK() && c.Start.After(t) })
}

// hasOwnCause reports whether an error belongs to RuntimeUnsupported, ListTooLarge, or to no cause of the runtime.
func hasOwnCause(c crictl.Call) bool {
	return c.Code == crictl.Unimplemented || c.Code == crictl.PermissionDenied || isTooLarge(c)
}

func (f *Facts) notReadyWith(c *Cause) *Cause {
	c.Subject = f.daemonSubject()
	var s steps
	s.add(TouchesNothing, f.crictlCommand("info"), "The conditions in the runtime's own words.")
	f.addService(&s)
	s.add(TouchesNothing, f.kdiagCommand("runtime"),
		"Look again. While it is still loading its state, wait: that takes minutes with tens of thousands of containers, and a restart begins it anew.")
	looks := len(s)
	f.addRestart(&s)
	for i := range s[looks:] {
		s[looks+i].Why = "Only if it is not loading its state, or that never ends. " + s[looks+i].Why
	}
	c.NextSteps = s.done()
	return c
}

// conditionLine writes a condition as the kubelet does: RuntimeReady=false reason:X message:Y.
func conditionLine(c crictl.Condition) string {
	line := fmt.Sprintf("%s=%t", clean(c.Type), c.Status)
	if c.Reason != "" {
		line += " reason:" + clean(c.Reason)
	}
	if c.Message != "" {
		line += " message:" + clean(c.Message)
	}
	return line
}

// conditionWhy is the best that a condition says of itself.
func conditionWhy(c crictl.Condition) string {
	switch {
	case c.Message != "":
		return clean(c.Message)
	case c.Reason != "":
		return clean(c.Reason)
	}
	return "no reason given"
}
