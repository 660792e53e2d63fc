package causes

import (
	"fmt"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
)

// RelistOverloaded is the code of this cause.
const RelistOverloaded = "RelistOverloaded"

var relistOverloaded = Definition{
	Code:   RelistOverloaded,
	Claims: []string{"relist.projection"},
	Roots: []Root{
		{Code: RuntimeSlow},
		{Code: TooManyExited, When: mostAreDead},
		{Code: IOStall},
		{Code: MemoryPressure, When: memoryIsLow},
		{Code: CPUStarved, When: runtimeStarved},
		{Code: MountsExploded},
	},
	Recognise: recogniseRelistOverloaded,
	FromLog:   loggedRelistOverloaded,
}

func recogniseRelistOverloaded(f *facts.Facts) *Finding {
	s := f.Summary
	if s == nil || !f.Calls.Connected || f.Pattern.Hang != facts.HangNone || len(f.Calls.HungLists) > 0 ||
		len(f.Sweep.Hung) > 0 {
		return nil
	}
	limit := f.Calls.Threshold
	near := time.Duration(float64(limit) * f.Limits.RelistWarning)
	if near <= 0 {
		near = limit
	}
	now, age := Optional(s.ProjectedSeconds), Optional(s.ProjectedAgeSeconds)
	churn, cold := Optional(s.ChurnSeconds), Optional(s.ColdSeconds)
	// Near the threshold is a matter of the work alone: the age contains the pause between two relists, which with
	// evented PLEG is half of its threshold on a healthy node.
	if max(now, churn, cold) < near && age <= limit {
		return nil
	}
	severity, step := checks.Warning, checks.Strong
	if max(churn, cold) > limit {
		// Nothing is wrong yet, but a rollout or the restart that everybody tries first makes the node NotReady.
		severity = checks.Critical
	}
	var summary string
	switch {
	case now > limit:
		severity, step = checks.Critical, checks.Certain
		summary = fmt.Sprintf("one relist of the kubelet takes %s now, over the threshold of %s", units.Duration(now),
			units.Duration(limit))
	case age > limit:
		severity, step = checks.Critical, checks.Certain
		summary = fmt.Sprintf("one relist of the kubelet takes %s now; until the next one's lists are in, PLEG "+
			"was last seen active %s ago, over the threshold of %s",
			units.Duration(now), units.Duration(age), units.Duration(limit))
	case now >= near:
		summary = fmt.Sprintf("one relist of the kubelet takes %s now, %s of the threshold", units.Duration(now),
			units.Percent(ratio(now, limit)))
	case churn >= near:
		summary = fmt.Sprintf("when a tenth of the pods change at once, one relist takes %s: %s of the threshold",
			units.Duration(churn), units.Percent(ratio(churn, limit)))
	default:
		summary = fmt.Sprintf("after a restart of the kubelet, the first relist takes %s: %s of the threshold",
			units.Duration(cold), units.Percent(ratio(cold, limit)))
	}
	e := overloadEvidence(f, now, near)
	switch {
	case logOfSlow(f, &e):
		severity, step = checks.Critical, raised(step, true) // the kubelet says that it has come so far
	case age > limit:
		logOfCalm(f, &e)
	case now < near: // why the node is NotReady now is another question
		summary = fmt.Sprintf("not now, when a relist takes %s: %s", units.Duration(now), summary)
	}
	c := newFinding(severity, step, summary, e)
	c.Subject = &checks.Subject{Kind: "RPC", Name: "ContainerStatus"}
	c.Advise = func(string) []checks.NextStep { return stepsWhenOverloaded(f) }
	return c
}

// Optional is a number of seconds that may be missing.
func Optional(s *float64) time.Duration {
	if s == nil {
		return 0
	}
	return units.ToDuration(*s)
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(max(b, 1)) }

func overloadEvidence(f *facts.Facts, now, near time.Duration) checks.Evidence {
	var e checks.Evidence
	// The median times the number would leave out the slow calls, which are most of the time on a busy disk.
	if n, cold := f.Lists.Objects, Optional(f.Summary.ColdSeconds); n > 0 && cold > 0 {
		Addf(&e.For, "%s, inspected one after the other at %s each on average, make %s", units.Count(n, "object"),
			units.Duration(cold/time.Duration(n)), units.Duration(cold))
	}
	addProjection(f, &e)
	Addf(&e.For, "no call hung: the time is the sum of many, not one")
	if now < near {
		Addf(&e.Against, "now, with few pods changing, a relist takes %s: this does not make PLEG unhealthy at "+
			"the moment", units.Duration(now))
	}
	missingKubelet(f, &e)
	missingSweep(f, &e)
	return e
}

func stepsWhenOverloaded(f *facts.Facts) []checks.NextStep {
	var s Steps
	s.Add(checks.TouchesNothing, facts.KdiagCommand(f, "relist --count 20"),
		"Is one status always this slow, or in bursts?")
	AddPressure(f, &s)
	s.Add(checks.TouchesNothing, `kubectl get pods -A -o wide --field-selector spec.nodeName="$(hostname)"`,
		"How many pods, and what is rolling out?")
	s.Add(checks.TouchesScheduler, `kubectl cordon "$(hostname)"`,
		"Keeps further pods away while it is near the threshold; a restart of the kubelet would inspect all pods "+
			"at once.")
	return s.Done()
}

// loggedRelistOverloaded is for relists that end late while nothing fails.
func loggedRelistOverloaded(in *Incident) *LogFinding {
	near := in.age() > 0 && in.age() < 3*time.Minute+45*time.Second && in.ThresholdSeconds <= 180
	if in.failing > 0 || in.down || in.allHung || !in.moving && !in.allScatter && (!near || !in.Recovered) {
		return nil
	}
	f := in.finding(runtimeTier, 0.3, "Relists end late and no failing call is on record; perhaps there are many pods.").
		lacks("the number of pods, and how long one inspection takes")
	if in.moving {
		f.raise(0.15, in.movingText())
	}
	if in.allScatter {
		f.raise(0.2, in.relistsText())
	}
	if near {
		f.raise(0, "the age stays near the threshold: at most "+units.Duration(in.age()))
	}
	return f
}
