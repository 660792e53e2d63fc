package causes

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/journal/signature"
)

// ShimStuck is the code of this cause.
const ShimStuck = "ShimStuck"

var shimStuck = cause(ShimStuck, recogniseShimStuck, loggedShimStuck, "host.shims")

func recogniseShimStuck(f *facts.Facts) *Finding {
	if !f.Seen.Tasks.OK {
		return nil // kdiag was not asked to look at the host
	}
	stopped, gap := f.Shims.Stopped, f.Shims.Culprits
	var e checks.Evidence
	var subjects []checks.Subject
	add := func(p host.Process, format string, args ...any) {
		Addf(&e.For, format, args...)
		subjects = append(subjects, servingSubject(f, p, facts.OwnerOf(p)))
	}
	step := checks.Strong
	for _, p := range stopped {
		add(p, "%s is stopped, so its pod cannot be asked", processOwned(f, p.PID, p.Name, facts.OwnerOf(p)))
		step = choose(facts.IsListed(f, p.ObjectID) || facts.IsNamedBad(f, p.ObjectID), checks.Certain, step)
	}
	for _, p := range gap.Orphans {
		add(p, "%v serves %s, which the runtime does not list; calls about it fail", p, facts.ShortID(p.ObjectID))
	}
	for _, b := range gap.Shimless {
		o := host.Owner{ObjectID: b.ID}
		Addf(&e.For, "the shim of %s is gone, and the runtime calls its sandbox ready", facts.OwnerLabel(f, o))
		s := facts.OwnedBy(f, o)
		s.Kind, s.ID = facts.KindSandbox, b.ID
		subjects = append(subjects, s)
	}
	if len(subjects) == 0 {
		return nil
	}
	summary := e.For[0] + andMore(len(subjects)-1, "shim")
	e.For = facts.Head(e.For, facts.MaxRelated)
	addIf(len(stopped) == 0, &e.Missing, "the shims' own lists (ctr -n k8s.io tasks ls)")
	addIf(len(stopped) > 0 && step != checks.Certain, &e.Missing, "whether this runtime's lists hold what they serve")
	return newFinding(checks.Warning, step, summary, e, subjects...).advise(func(s *Steps, _ string) {
		for _, p := range top(stopped) {
			s.Look(textf("grep -E 'State|TracerPid' /proc/%d/status", p.PID), "Does a debugger hold it?")
			addKill(f, s, p, "its pod")
		}
		for _, p := range top(gap.Orphans) {
			if p.PID > 1 {
				s.Look(textf("ps -o pid,stat,etime,comm --ppid %d", p.PID),
					"What does it still run? Shims of docker or nerdctl are not listed by the runtime, and are well.")
				s.Add(checks.TouchesPod, textf("kill -KILL %d", p.PID), "Only when nothing of it is needed.")
			}
		}
		for _, b := range top(gap.Shimless) {
			s.lookIf(facts.Safe(b.ID), facts.CrictlCommand(f, "inspectp "+b.ID), "Is its shim gone (ttrpc: closed)?")
			addDeletePod(f, s, facts.PodOf(b.Pod), "The pod is dead already; this makes room for a new one.")
		}
		if len(stopped) == 0 {
			AddService(f, s)
			addRestart(f, s)
		}
	})
}

func loggedShimStuck(in *Incident) *LogFinding {
	codes := []string{signature.ShimUnresponsive, signature.KillFailed, signature.ExitEventFailed, signature.StopFailed}
	late := in.calls(isLate, signature.StopFailed, signature.RemoveFailed, signature.ExecFailed)
	if in.count(codes[:3]...)+late == 0 {
		return nil
	}
	return in.finding(objectTier, 0.3, "A container's shim or its process does not react.", codes...).
		raiseIf(in.count(signature.ShimUnresponsive) > 0, 0.35).
		raiseIf(in.count(signature.KillFailed, signature.ExitEventFailed) > 0, 0.2).
		lowerIf(in.listsMissed > 0 && in.down, 0.1, "the whole runtime hangs; stopping containers fails in its wake")
}
