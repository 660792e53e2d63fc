package causes

import (
	"fmt"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// RuntimeSlow is the code of this cause.
const RuntimeSlow = "RuntimeSlow"

var runtimeSlow = Definition{
	Code: RuntimeSlow,
	Roots: []Root{
		{Code: IOStall},
		{Code: FilesystemHung, When: usedMountHangs},
		{Code: MemoryPressure, When: memoryIsLow},
		{Code: CPUStarved, When: runtimeStarved},
		{Code: PIDsExhausted, When: runtimeCannotFork},
		{Code: FilesExhausted, When: runtimeOutOfFiles},
		{Code: TaskStuck, When: runtimeTaskStuck},
		{Code: SystemdWedged, When: systemdStartsContainers},
		{Code: KernelHung},
		{Code: MountsExploded},
		{Code: CgroupsLeaked, When: livingCgroups},
	},
	Recognise: recogniseRuntimeSlow,
	FromLog:   loggedRuntimeSlow,
}

func recogniseRuntimeSlow(f *facts.Facts) *Finding {
	p := f.Pattern
	if !p.Slow {
		return nil
	}
	list, status, half := f.Calls.ListMedian, f.Sweep.Median, f.Limits.RPCTimeout/2
	verySlow := f.Limits.VerySlowList > 0 && list >= f.Limits.VerySlowList || p.AllSlow && list >= half
	severity := criticalIf(p.Stalls || p.SlowLists && verySlow || p.SlowStatuses && p.AllSlow && status >= half)
	step := checks.Strong
	if p.AllSlow {
		step = checks.Certain
	}
	e := slowEvidence(f)
	missingSweep(f, &e)
	pressureEvidence(f, &e)
	if logOfSlow(f, &e) { // it has come so far for the kubelet
		severity, step = checks.Critical, raised(step, true)
	}
	summary := f.Target.Daemon.Label + " answers, but slowly:"
	switch {
	case p.Crawls:
		d, _ := f.RPC[facts.RPCVersion].Fastest()
		summary = textf("%s crawls: Version took %s, and nothing else came", f.Target.Daemon.Label, d)
	case p.Stalls:
		summary = f.Target.Daemon.Label + " stops answering for seconds at a time and then goes on"
	case p.SlowLists && p.SlowStatuses:
		summary += textf(" %s for the two lists, %s for one status call", list, status)
	case p.SlowStatuses:
		summary += textf(" %s for one status call in the median", status)
	default:
		summary += textf(" %s for the two lists of one relist", list)
	}
	return newFinding(severity, step, summary, e, *facts.DaemonSubject(f)).advise(func(s *Steps, _ string) {
		AddPressure(f, s)
		s.lookBlocked()
		s.Look(facts.KdiagCommand(f, "relist --count 20"), "Is it slow all the time, or in bursts?")
		addCapture(f, s)
		s.cordon()
		addRestart(f, s)
	})
}

func slowEvidence(f *facts.Facts) checks.Evidence {
	var e checks.Evidence
	if n := f.Lists.Objects; f.Pattern.SlowLists {
		line := textf("the two lists of one relist take %s in the median", f.Calls.ListMedian)
		if n > 0 {
			line += fmt.Sprintf(" for %s: more than size explains", units.Count(n, "object"))
		}
		e.For = append(e.For, line)
	}
	if f.Pattern.SlowStatuses {
		Addf(&e.For, "one status call takes %s in the median", f.Sweep.Median)
	}
	if f.Pattern.Crawls {
		addCalls(f, &e.For, isHanging, facts.RPCStatus, facts.RPCSandboxes, facts.RPCContainers)
		missingPatience(f, &e)
	}
	for _, name := range []string{facts.RPCSandboxes, facts.RPCContainers} {
		if r := f.RPC[name]; r.Outcome == facts.Stalled {
			Addf(&e.For, "%s of %s did not answer within the deadline, the others did", units.Number(r.HungCalls()),
				units.Count(len(r.Calls), name+" call"))
		}
	}
	if s := f.Pattern.Stall; f.Pattern.Stalled && s.Recovered {
		Addf(&e.For, "nothing was answered for %s (%s hung), then calls were again", s.For, units.Count(s.Hung, "call"))
	}
	version := f.RPC[facts.RPCVersion]
	if version.Outcome == facts.Hung && f.Calls.AnyList {
		Addf(&e.For, "%v, later calls were answered", version.Last())
	}
	if d, ok := version.Fastest(); ok && d >= f.Limits.SlowList/facts.SlowCompanyFactor {
		Addf(&e.For, "Version, which needs nothing but the CPU, took %s: the daemon hardly gets to run", d)
	} else if ok && !f.Pattern.Stalls {
		Addf(&e.Against, "Version took %s: the daemon itself gets to run", d)
	}
	addProjection(f, &e)
	return e
}

// addProjection adds what the slowness costs the kubelet.
func addProjection(f *facts.Facts, e *checks.Evidence) {
	if s := f.Summary; s != nil && s.ProjectedSeconds != nil {
		Addf(&e.For, "one relist of the kubelet takes %s now, %s in a rollout, %s after its restart; the threshold is "+
			"%s", units.Seconds(*s.ProjectedSeconds), Optional(s.ChurnSeconds), Optional(s.ColdSeconds),
			f.Calls.Threshold)
	}
}

// loggedRuntimeSlow is for relists that end, but late, with other signs of slowness.
func loggedRuntimeSlow(in *Incident) *LogFinding {
	signs := in.count(signature.HousekeepingSlow, signature.RuntimeStalled, signature.ExecFailed,
		signature.StatsFailed, signature.NameReserved)
	moving := len(in.Stalls) >= 2
	if !moving && (signs == 0 || in.lateLists() > 1) || in.down {
		return nil
	}
	f := newLogFinding("RuntimeSlow", runtimeTier, 0.25,
		"Relists end, but the runtime answers too slowly for them to end in time.").
		addFor(in.movingText()).
		addFor(in.found(signature.HousekeepingSlow, signature.RuntimeStalled, signature.StatsFailed,
			signature.NameReserved)...)
	if moving {
		f.Confidence += 0.2
	}
	if signs > 0 {
		f.Confidence += 0.15
	}
	if in.relistsScattered() {
		f.raise(0.2, in.relistsText())
	}
	return f
}
