package causes

import (
	"fmt"
	"time"

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
	if !f.Pattern.Slow {
		return nil
	}
	list, _ := f.Calls.ListMedian, f.Calls.ListTimed
	status, _ := f.Sweep.Median, f.Sweep.Timed
	slowList, slowStatus, stall := f.Pattern.SlowLists, f.Pattern.SlowStatuses, f.Pattern.Stalls
	severity := checks.Warning
	if stall || verySlow(f, list, slowList) || slowStatus && f.Pattern.AllSlow && status >= f.Limits.RPCTimeout/2 {
		severity = checks.Critical
	}
	e := slowEvidence(f, list, slowList, status, slowStatus)
	step := checks.Certain
	if !f.Pattern.AllSlow {
		step = checks.Strong
	}
	missingSweep(f, &e)
	pressureEvidence(f, &e)
	if logOfSlow(f, &e) {
		severity, step = checks.Critical, raised(step, true) // the kubelet says that it has come so far
	}
	c := newFinding(severity, step, slowSummary(f, list, slowList, status, slowStatus, stall), e)
	c.Subject = facts.DaemonSubject(f)
	c.Advise = func(string) []checks.NextStep { return stepsWhenSlow(f) }
	return c
}

// verySlow reports whether slow lists threaten the node now: over the critical limit, or so close to the deadline of
// one call, with everything slow, that the next moment may lose them.
func verySlow(f *facts.Facts, list time.Duration, slowList bool) bool {
	if !slowList {
		return false
	}
	return f.Limits.VerySlowList > 0 && list >= f.Limits.VerySlowList || f.Pattern.AllSlow &&
		list >= f.Limits.RPCTimeout/2
}

func slowSummary(f *facts.Facts, list time.Duration, slowList bool, status time.Duration, slowStatus,
	stall bool,
) string {
	name := f.Target.Daemon.Label
	switch {
	case f.Pattern.Crawls:
		d, _ := f.RPC[facts.RPCVersion].Fastest()
		return fmt.Sprintf("%s crawls: Version took %s, and nothing else came within %s", name, units.Duration(d),
			units.Duration(f.Limits.RPCTimeout))
	case stall:
		return fmt.Sprintf("%s stops answering for seconds at a time and then goes on", name)
	case slowList && slowStatus:
		return fmt.Sprintf("%s answers, but slowly: %s for the two lists, %s for one status call", name,
			units.Duration(list), units.Duration(status))
	case slowStatus:
		return fmt.Sprintf("%s answers, but slowly: %s for one status call in the median", name, units.Duration(status))
	}
	return fmt.Sprintf("%s answers, but slowly: %s for the two lists of one relist", name, units.Duration(list))
}

func slowEvidence(f *facts.Facts, list time.Duration, slowList bool, status time.Duration,
	slowStatus bool,
) checks.Evidence {
	var e checks.Evidence
	if n := f.Lists.Objects; slowList {
		line := fmt.Sprintf("the two lists of one relist take %s in the median", units.Duration(list))
		if n > 0 && n < facts.ManyObjects {
			line += fmt.Sprintf(" for %s: that is never size, but a lock, the disk or the CPU",
				units.Count(n, "object"))
		} else if n > 0 {
			line += fmt.Sprintf(" for %s, %s each: more than size explains", units.Count(n, "object"),
				units.Duration(list/time.Duration(n)))
		}
		e.For = append(e.For, line)
	}
	if slowStatus {
		Addf(&e.For, "one status call takes %s in the median", units.Duration(status))
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
	if s, ok := f.Pattern.Stall, f.Pattern.Stalled; ok && s.Recovered {
		Addf(&e.For, "nothing was answered for %s (%s hung), then calls were answered again", units.Duration(s.For),
			units.Count(s.Hung, "call"))
	}
	if r := f.RPC[facts.RPCVersion]; r.Outcome == facts.Hung && f.Calls.AnyList {
		Addf(&e.For, "%s, later calls were answered", facts.CallLine(r.Last()))
	}
	if d, ok := f.RPC[facts.RPCVersion].Fastest(); ok && d >= f.Limits.SlowList/facts.SlowCompanyFactor {
		Addf(&e.For, "Version, which touches nothing but the CPU, took %s: the daemon hardly gets to run",
			units.Duration(d))
	} else if ok && !f.Pattern.Stalls {
		Addf(&e.Against, "Version took %s: the daemon itself gets to run", units.Duration(d))
	}
	addProjection(f, &e)
	return e
}

// addProjection adds what the slowness costs the kubelet.
func addProjection(f *facts.Facts, e *checks.Evidence) {
	s := f.Summary
	if s == nil || s.ProjectedSeconds == nil {
		return
	}
	line := fmt.Sprintf("one relist of the kubelet would take %s now", units.Seconds(*s.ProjectedSeconds))
	if s.ChurnSeconds != nil {
		line += fmt.Sprintf(", %s in a rollout", units.Seconds(*s.ChurnSeconds))
	}
	if s.ColdSeconds != nil {
		line += fmt.Sprintf(", %s after a kubelet restart", units.Seconds(*s.ColdSeconds))
	}
	Addf(&e.For, "%s; the threshold is %s", line, units.Duration(f.Calls.Threshold))
}

func stepsWhenSlow(f *facts.Facts) []checks.NextStep {
	var s Steps
	AddPressure(f, &s)
	s.Add(checks.TouchesNothing, "ps -eo stat,pid,wchan:32,comm | grep '^D'",
		"Many processes in D state wait for a disk or a mount; the function says which.")
	s.Add(checks.TouchesNothing, facts.KdiagCommand(f, "relist --count 20"), "Is it slow all the time, or in bursts?")
	addCapture(f, &s)
	s.Add(checks.TouchesScheduler, `kubectl cordon "$(hostname)"`,
		"Each new pod makes the next relist longer; keep them away until it is quick again.")
	addRestart(f, &s)
	return s.Done()
}

// loggedRuntimeSlow is for relists that end, but late, with other signs of slowness.
func loggedRuntimeSlow(in *Incident) *LogFinding {
	codes := []string{
		signature.HousekeepingSlow, signature.RuntimeStalled, signature.ExecFailed, signature.StatsFailed,
		signature.NameReserved,
	}
	signs := in.count(codes...)
	if !in.moving && (signs == 0 || in.lateLists() > 1) || in.down {
		return nil
	}
	f := in.finding(runtimeTier, 0.25, "Relists end, but the runtime answers too slowly for them to end in time.",
		codes...)
	if in.moving {
		f.raise(0.2, in.movingText())
	}
	if signs > 0 {
		f.Confidence += 0.15
	}
	if in.allScatter {
		f.raise(0.2, in.relistsText())
	}
	return f
}
