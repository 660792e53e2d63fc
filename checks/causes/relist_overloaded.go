package causes

import (
	"cmp"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/plegbench"
)

// RelistOverloaded is the code of this cause.
const RelistOverloaded = "RelistOverloaded"

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
	// What a restart of the kubelet alone would do is no harm yet.
	severity, step := criticalIf(max(now, age, churn) > limit), checks.Strong
	summary := textf("a relist takes %s after a kubelet restart, %s in a rollout, %s now; limit %s", cold, churn, now,
		limit) // the problem is first, since some views show 80 characters only
	effect := []string{textf("kubelet: Ready now (a relist takes %s)", now)}
	addIf(churn > limit, &effect, "kubelet: NotReady in a rollout of a tenth of the pods")
	// PLEG's clock starts anew with the lists of the first relist.
	addIf(cold > limit, &effect, "do not restart the kubelet: NotReady from %s to %s after it", limit,
		cold+plegbench.RelistPeriod+f.Calls.ListMedian)
	if reaches := max(now, age); reaches > limit {
		step = checks.Certain
		summary = textf("a relist takes %s now, PLEG's age reaches %s; limit %s", now, reaches, limit)
		effect = []string{textf("kubelet: NotReady about every %s", now.Round(time.Second))}
	}
	var e checks.Evidence
	// The median times the number would leave out the slow calls, which are most of the time on a busy disk.
	if n := f.Lists.Objects; n > 0 && cold > 0 {
		Addf(&e.For, "%s, inspected one after the other, take %s each", units.Count(n, "object"), cold/time.Duration(n))
	}
	if r := s.ColdRange; r != nil && r.High > r.Low && s.Sweep != nil {
		Addf(&e.For, "estimated from %s chosen at random: %s to %s", outOf(s.Sweep.Inspected, s.Sweep.Total, "object"),
			units.Seconds(r.Low), units.Seconds(r.High))
	}
	Addf(&e.For, "no hang, too much work")
	addIf(max(churn, cold) <= limit && now < near, &e.Against, "with few pods changing, a relist takes %s", now)
	addGaps(f, &e, gapKubelet, gapSweep)
	if logOfSlow(f, &e) { // it has come so far for the kubelet
		severity, step = checks.Critical, raised(step, true)
	} else if age > limit {
		logOfCalm(f, &e)
	}
	subject := checks.Subject{Kind: "RPC", Name: "ContainerStatus"}
	return newFinding(severity, step, summary, e, subject).affects(effect...).advise(func(s *Steps, _ string) {
		s.Look(facts.KdiagCommand(f, "relist --count 20"), "Time 20 relists: always this slow, or in bursts?")
		AddPressure(f, s)
		s.lookPods("Count the pods; is a rollout going on?")
		s.cordon()
	})
}

// Projection is the duration of the kubelet's relists: 288ms now, 32.4s in a rollout, 5m21s after a kubelet restart;
// limit 3m.
func Projection(f *facts.Facts) string {
	s := f.Summary
	line := textf("%s now", Optional(s.ProjectedSeconds))
	if s.ChurnSeconds != nil {
		line += textf(", %s in a rollout", Optional(s.ChurnSeconds))
	}
	if s.ColdSeconds != nil {
		line += textf(", %s after a kubelet restart", Optional(s.ColdSeconds))
	}
	return line + textf("; limit %s", f.Calls.Threshold)
}

// Optional is a number of seconds that may be missing.
func Optional(s *float64) time.Duration {
	if s == nil {
		return 0
	}
	return units.ToDuration(*s)
}

// loggedRelistOverloaded is for relists that end late while nothing fails.
func loggedRelistOverloaded(in *Incident) *Finding {
	near := in.age() > 0 && in.age() < 3*time.Minute+45*time.Second && in.ThresholdSeconds <= 180
	if in.failing > 0 || in.down || in.allHung || !in.moving && !in.allScatter && (!near || !in.Recovered) {
		return nil
	}
	f := in.finding(ifElse(in.moving || in.allScatter, checks.Fair, checks.Weak),
		"Relists end late and no failing call is on record; perhaps there are many pods.").
		lacks("the number of pods, and how long one inspection takes")
	addIf(in.moving, &f.Evidence.For, "%s", in.movingText())
	addIf(in.allScatter, &f.Evidence.For, "%s", in.relistsText())
	addIf(near, &f.Evidence.For, "the age stays near the threshold: at most %s", in.age())
	return f
}
