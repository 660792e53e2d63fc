package causes

import (
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
	share := func(d time.Duration) string { return units.Percent(float64(d) / float64(max(limit, 1))) }
	summary := textf("one relist of the kubelet takes %s now, %s of the threshold of %s", now, share(now), limit)
	switch {
	case max(now, age) > limit:
		severity, step = checks.Critical, checks.Certain
		if now <= limit {
			summary += textf("; when the next one's lists are in, PLEG was last seen active %s ago", age)
		}
	case max(churn, cold) > limit: // a rollout, or the restart that everybody tries first, makes the node NotReady
		severity = checks.Critical
	}
	if max(now, age) <= limit && now < near && churn >= near {
		summary += textf("; when a tenth of the pods change at once, %s (%s)", churn, share(churn))
	} else if max(now, age) <= limit && now < near {
		summary += textf("; after a restart of the kubelet, %s (%s)", cold, share(cold))
	}
	e := overloadEvidence(f, now, near)
	if logOfSlow(f, &e) { // it has come so far for the kubelet
		severity, step = checks.Critical, raised(step, true)
	} else if age > limit {
		logOfCalm(f, &e)
	}
	return newFinding(severity, step, summary, e, checks.Subject{
		Kind: "RPC",
		Name: "ContainerStatus",
	}).advise(func(s *Steps, _ string) {
		s.Look(facts.KdiagCommand(f, "relist --count 20"), "Is one status always this slow, or in bursts?")
		AddPressure(f, s)
		s.lookPods("How many pods, and what is rolling out?")
		s.cordon()
	})
}

// Optional is a number of seconds that may be missing.
func Optional(s *float64) time.Duration {
	if s == nil {
		return 0
	}
	return units.ToDuration(*s)
}

func overloadEvidence(f *facts.Facts, now, near time.Duration) checks.Evidence {
	var e checks.Evidence
	// The median times the number would leave out the slow calls, which are most of the time on a busy disk.
	if n, cold := f.Lists.Objects, Optional(f.Summary.ColdSeconds); n > 0 && cold > 0 {
		Addf(&e.For, "%s, inspected one after the other at %s each on average, make %s", units.Count(n, "object"),
			cold/time.Duration(n), cold)
	}
	addProjection(f, &e)
	Addf(&e.For, "no call hung: the time is the sum of many, not one")
	if now < near {
		Addf(&e.Against, "with few pods changing, a relist takes %s: PLEG is healthy at the moment", now)
	}
	missingKubelet(f, &e)
	missingSweep(f, &e)
	return e
}

// loggedRelistOverloaded is for relists that end late while nothing fails.
func loggedRelistOverloaded(in *Incident) *LogFinding {
	near := in.age() > 0 && in.age() < 3*time.Minute+45*time.Second && in.ThresholdSeconds <= 180
	moving := len(in.Stalls) >= 2
	if in.failing > 0 || in.down || in.relistsHung() || !moving && !in.relistsScattered() && (!near || !in.Recovered) {
		return nil
	}
	f := newLogFinding("RelistOverloaded", runtimeTier, 0.3,
		"Relists end late and no failing call is on record; perhaps there are many pods.").
		addFor(in.movingText()).AddMissing("the number of pods, and how long one inspection takes")
	if moving {
		f.Confidence += 0.15
	}
	if in.relistsScattered() {
		f.raise(0.2, in.relistsText())
	}
	if near {
		f.addFor("the age stays near the threshold: at most " + in.age().Round(time.Second).String())
	}
	return f.addFor("no failing call is on record")
}
