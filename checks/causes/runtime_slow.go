package causes

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// RuntimeSlow is the code of this cause.
const RuntimeSlow = "RuntimeSlow"

func recogniseRuntimeSlow(f *facts.Facts) *Finding {
	p := f.Pattern
	if !p.Slow {
		return nil
	}
	list, status, half := f.Calls.ListMedian, f.Sweep.Median, f.Limits.RPCTimeout/2
	verySlow := f.Limits.VerySlowList > 0 && list >= f.Limits.VerySlowList || p.AllSlow && list >= half
	severity := criticalIf(p.Stalls || p.SlowLists && verySlow || p.SlowStatuses && p.AllSlow && status >= half)
	label, step := f.Target.Daemon.Label, ifElse(p.AllSlow, checks.Certain, checks.Strong)
	summary := label + " is slow"
	version := f.RPC[facts.RPCVersion]
	quickest, known := version.Fastest()
	var e checks.Evidence
	if p.SlowLists {
		summary += textf(": %s for the two lists of a relist", list)
		Addf(&e.For, "%s for %s: too few to be slow; suspect a lock, disk or CPU", list,
			units.Count(f.Lists.Objects, "object"))
	}
	if p.SlowStatuses {
		summary += textf("%s %s for one status call", ifElse(p.SlowLists, ",", ":"), status)
	}
	if p.Stalls {
		summary = label + " hangs for seconds at a time, then continues"
	}
	if p.Crawls {
		summary = textf("%s is starved: even Version took %s, lists take longer than %s", label, quickest,
			f.Limits.RPCTimeout)
		addCalls(f, &e.For, isHanging, facts.RPCStatus, facts.RPCSandboxes, facts.RPCContainers)
		addGaps(f, &e, gapPatience)
	}
	for _, r := range []facts.RPC{f.RPC[facts.RPCSandboxes], f.RPC[facts.RPCContainers]} {
		addIf(r.Outcome == facts.Stalled, &e.For, "%s hung", outOf(r.HungCalls(), len(r.Calls), r.Name+" call"))
	}
	if s := p.Silence; s != nil && s.Recovered {
		Addf(&e.For, "no reply to anything for %s (%s hung), then replies again", s.For, units.Count(s.Hung, "call"))
	}
	if known && quickest >= f.Limits.SlowList/facts.SlowCompanyFactor {
		Addf(&e.For, "even Version (no disk, no locks) took %s: the daemon is starved", quickest)
	} else if known && !p.Stalls {
		Addf(&e.Against, "Version took %s: the daemon is not starved", quickest)
	}
	if s := f.Summary; s != nil && s.ProjectedSeconds != nil {
		Addf(&e.For, "a relist takes %s", Projection(f))
	}
	addGaps(f, &e, gapSweep)
	pressureEvidence(f, &e)
	if logOfSlow(f, &e) { // it has come so far for the kubelet
		severity, step = checks.Critical, raised(step, true)
	}
	return newFinding(severity, step, summary, e, *facts.DaemonSubject(f)).advise(func(s *Steps, _ string) {
		AddPressure(f, s)
		s.lookBlocked()
		s.Look(facts.KdiagCommand(f, "relist --count 20"), "Time 20 relists: always slow, or in bursts?")
		addCapture(f, s)
		s.cordon()
		addRestart(f, s)
	})
}

// loggedRuntimeSlow is for relists that end, but late, with other signs of slowness.
func loggedRuntimeSlow(in *Incident) *Finding {
	codes := []string{
		signature.HousekeepingSlow, signature.RuntimeStalled, signature.ExecFailed, signature.StatsFailed,
		signature.NameReserved,
	}
	signs := in.count(codes...)
	if !in.moving && (signs == 0 || in.lateLists() > 1) || in.down {
		return nil
	}
	f := in.finding(checks.Weak, "Relists end, but too late: the runtime is slow.", codes...)
	if in.moving && signs > 0 || in.allScatter {
		f.Step = checks.Fair
	}
	addIf(in.moving, &f.Evidence.For, "%s", in.movingText())
	addIf(in.allScatter, &f.Evidence.For, "%s", in.relistsText())
	return f
}
