package checks

import (
	"fmt"
	"time"

	"github.com/kdiag/kdiag/checks/units"
)

func relistOverloaded() Definition {
	return Definition{
		Code:  codeRelistOverloaded,
		Title: "honest slowness: too much to inspect, one call after the other",
		Means: "No call hangs. But the kubelet inspects changed pods serially, one status call for each sandbox and container, and the number of them times the " +
			"time of one call comes near the three minutes that it allows itself, or is over.\n\n" +
			"A quiet node does not show it, because unchanged pods are not inspected. A rollout, a drain, many Jobs at once or a restart of " +
			"the kubelet, after which all pods count as changed, does: PLEG is unhealthy once, by a few seconds, and recovers by itself. Known from nodes with 300 " +
			"pods and more, and from those with statuses of a tenth of a second.",
		Confirm: []string{
			"kdiag relist: the projection as things are, in a rollout and after a cold start, against the threshold.",
			"kubelet_pleg_relist_duration_seconds goes up with every rollout and falls again.",
			"The kubelet's log says how long ago PLEG was active: a little over 3m, once, without errors of calls.",
		},
		Fix: []string{
			"Roll out and drain more slowly (maxSurge, maxUnavailable), so that fewer pods change at once.",
			"Find out why one status takes so long: a busy disk or too little CPU (see RuntimeSlow).",
			"Fewer pods on the node (maxPods), fewer dead containers.",
			"The threshold of 3m cannot be changed. The on-demand relist of 1.36 shows changes sooner and does not shorten the relist.",
		},
		Mistaken: "InspectHang: one call hangs, and the rest is quick. RuntimeSlow: single calls take seconds. TooManyExited: after a kubelet restart dead containers " +
			"are inspected as well.",
		Sources: []string{
			"kubernetes/kubernetes#93886 (360 pods, 1m23s), #95750, #139788",
			"kubelet: pkg/kubelet/pleg/generic.go (serial inspection, threshold)",
		},
		recognise: recogniseRelistOverloaded,
	}
}

func recogniseRelistOverloaded(f *Facts) *Cause {
	s := f.Summary
	if s == nil || !f.connected() || f.wholeHang() != hangNone || len(f.hungLists()) > 0 || len(f.inspectionsThat(isHung)) > 0 {
		return nil
	}
	limit := f.threshold()
	near := time.Duration(float64(limit) * f.Limits.RelistWarning)
	if near <= 0 {
		near = limit
	}
	now, age := optional(s.ProjectedSeconds), optional(s.ProjectedAgeSeconds)
	churn, cold := optional(s.ChurnSeconds), optional(s.ColdSeconds)
	// Near the threshold is a matter of the work alone: the age contains the pause between two relists, which with
	// evented PLEG is half of its threshold on a healthy node.
	if max(now, churn, cold) < near && age <= limit {
		return nil
	}
	severity, step := Warning, Strong
	if max(churn, cold) > limit {
		// Nothing is wrong yet, but a rollout or the restart that everybody tries first makes the node NotReady.
		severity = Critical
	}
	var summary string
	switch {
	case now > limit:
		severity, step = Critical, Certain
		summary = fmt.Sprintf("one relist of the kubelet takes %s now, over the threshold of %s", units.Duration(now), units.Duration(limit))
	case age > limit:
		severity, step = Critical, Certain
		summary = fmt.Sprintf("one relist of the kubelet takes %s now; until the next one's lists are in, PLEG was last seen active %s ago, over the threshold of %s",
			units.Duration(now), units.Duration(age), units.Duration(limit))
	case now >= near:
		summary = fmt.Sprintf("one relist of the kubelet takes %s now, %s of the threshold", units.Duration(now), units.Percent(ratio(now, limit)))
	case churn >= near:
		summary = fmt.Sprintf("when a tenth of the pods change at once, one relist takes %s: %s of the threshold", units.Duration(churn), units.Percent(ratio(churn, limit)))
	default:
		summary = fmt.Sprintf("after a restart of the kubelet, the first relist takes %s: %s of the threshold", units.Duration(cold), units.Percent(ratio(cold, limit)))
	}
	e := f.overloadEvidence(now, near)
	switch {
	case f.hearSlow(&e):
		severity, step = Critical, raised(step, true) // the kubelet says that it has come so far
	case age > limit:
		f.hearCalm(&e)
	case now < near: // why the node is NotReady now is another question
		summary = fmt.Sprintf("not now, when a relist takes %s: %s", units.Duration(now), summary)
	}
	c := newCause(codeRelistOverloaded, severity, step, summary, e)
	c.Subject = &Subject{Kind: "RPC", Name: "ContainerStatus"}
	c.NextSteps = f.stepsWhenOverloaded()
	return c
}

// optional is a number of seconds that may be missing.
func optional(s *float64) time.Duration {
	if s == nil {
		return 0
	}
	return units.ToDuration(*s)
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(max(b, 1)) }

func (f *Facts) overloadEvidence(now, near time.Duration) Evidence {
	var e Evidence
	// The median times the number would leave out the slow calls, which are most of the time on a busy disk.
	if n, cold := f.objects(), optional(f.Summary.ColdSeconds); n > 0 && cold > 0 {
		addf(&e.For, "%s, inspected one after the other at %s each on average, make %s", units.Count(n, "object"), units.Duration(cold/time.Duration(n)), units.Duration(cold))
	}
	f.addProjection(&e)
	addf(&e.For, "no call hung: the time is the sum of many, not one")
	if now < near {
		addf(&e.Against, "now, with few pods changing, a relist takes %s: this does not make PLEG unhealthy at the moment", units.Duration(now))
	}
	f.missingKubelet(&e)
	f.missingSweep(&e)
	return e
}

func (f *Facts) stepsWhenOverloaded() []NextStep {
	var s steps
	s.add(TouchesNothing, f.kdiagCommand("relist --count 20"), "Is one status always this slow, or in bursts?")
	f.addPressure(&s)
	s.add(TouchesNothing, `kubectl get pods -A -o wide --field-selector spec.nodeName="$(hostname)"`, "How many pods, and what is rolling out?")
	s.add(TouchesScheduler, `kubectl cordon "$(hostname)"`, "Keeps further pods away while it is near the threshold; a restart of the kubelet would inspect all pods at once.")
	return s.done()
}
