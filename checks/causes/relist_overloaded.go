package causes

import (
	"cmp"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
)

// RelistOverloaded is the code of this cause.
const RelistOverloaded = "RelistOverloaded"

var relistOverloaded = cause(
	RelistOverloaded, recogniseRelistOverloaded, loggedRelistOverloaded, "relist.projection",
)

func recogniseRelistOverloaded(f *facts.Facts) *Finding {
	s := f.Summary
	if s == nil || !talks(f) || len(f.Calls.HungLists) > 0 || len(f.Sweep.Hung) > 0 {
		return nil
	}
	limit := f.Calls.Threshold
	near := cmp.Or(time.Duration(float64(limit)*f.Limits.RelistWarning), limit)
	now, age := Optional(s.ProjectedSeconds), Optional(s.ProjectedAgeSeconds)
	churn, cold := Optional(s.ChurnSeconds), Optional(s.ColdSeconds)
	// Near the threshold is a matter of the work alone: the age contains the pause between two relists, which with
	// evented PLEG is half of its threshold on a healthy node.
	if max(now, churn, cold) < near && age <= limit {
		return nil
	}
	// Even where nothing is wrong yet, a rollout or the restart that everybody tries first makes the node NotReady.
	severity, step, summary := criticalIf(max(now, age, churn, cold) > limit), checks.Strong, projection(f)
	if max(now, age) > limit {
		step = checks.Certain
		summary += textf("; PLEG is last seen active up to %s ago", max(now, age))
	}
	var e checks.Evidence
	// The median times the number would leave out the slow calls, which are most of the time on a busy disk.
	if n := f.Lists.Objects; n > 0 && cold > 0 {
		Addf(&e.For, "%s, inspected one after the other, take %s each", units.Count(n, "object"), cold/time.Duration(n))
	}
	Addf(&e.For, "no call hung: the time is the sum of many, not one")
	addIf(now < near, &e.Against, "with few pods changing, a relist takes %s: PLEG is healthy at the moment", now)
	addGaps(f, &e, gapKubelet, gapSweep)
	if logOfSlow(f, &e) { // it has come so far for the kubelet
		severity, step = checks.Critical, raised(step, true)
	} else if age > limit {
		logOfCalm(f, &e)
	}
	subject := checks.Subject{Kind: "RPC", Name: "ContainerStatus"}
	return newFinding(severity, step, summary, e, subject).advise(func(s *Steps, _ string) {
		s.Look(facts.KdiagCommand(f, "relist --count 20"), "Is one status always this slow, or in bursts?")
		AddPressure(f, s)
		s.lookPods("How many pods, and what is rolling out?")
		s.cordon()
	})
}

// projection is what a relist costs the kubelet.
func projection(f *facts.Facts) string {
	s := f.Summary
	return textf("one relist of the kubelet takes %s now, %s in a rollout, %s after its restart; the threshold is %s",
		Optional(s.ProjectedSeconds), Optional(s.ChurnSeconds), Optional(s.ColdSeconds), f.Calls.Threshold)
}

// Optional is a number of seconds that may be missing.
func Optional(s *float64) time.Duration {
	if s == nil {
		return 0
	}
	return units.ToDuration(*s)
}

// loggedRelistOverloaded is for relists that end late while nothing fails.
func loggedRelistOverloaded(in *Incident) *LogFinding {
	near := in.age() > 0 && in.age() < 3*time.Minute+45*time.Second && in.ThresholdSeconds <= 180
	if in.failing > 0 || in.down || in.allHung || !in.moving && !in.allScatter && (!near || !in.Recovered) {
		return nil
	}
	return in.finding(runtimeTier, 0.3,
		"Relists end late and no failing call is on record; perhaps there are many pods.").
		lacks("the number of pods, and how long one inspection takes").
		raiseIf(in.moving, 0.15, in.movingText()).
		raiseIf(in.allScatter, 0.2, in.relistsText()).
		raiseIf(near, 0, "the age stays near the threshold: at most "+units.Duration(in.age()))
}
