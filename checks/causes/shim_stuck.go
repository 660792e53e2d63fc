package causes

import (
	"fmt"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// ShimStuck is the code of this cause.
const ShimStuck = "ShimStuck"

var shimStuck = Definition{
	Code:   ShimStuck,
	Claims: []string{"host.shims"},
	Roots: []Root{
		{Code: IOStall, When: diskStands},
		{Code: FilesystemHung, When: usedMountHangs},
		{Code: TaskStuck, When: shimTaskStuck},
		{Code: CgroupFrozen, When: shimInFreeze},
	},
	OnPurpose: shimIsStopped,
	Recognise: recogniseShimStuck,
	FromLog:   loggedShimStuck,
}

// stuckShimIDs returns the ids that the shims serve of which ShimStuck speaks.
func stuckShimIDs(f *facts.Facts) []string {
	var ids []string
	for _, p := range f.Shims.Stopped {
		if p.ObjectID != "" {
			ids = append(ids, p.ObjectID)
		}
	}
	return ids
}

func recogniseShimStuck(f *facts.Facts) *Finding {
	if !f.Seen.Tasks.OK {
		return nil // kdiag was not asked to look at the host
	}
	stopped, gap := f.Shims.Stopped, f.Shims.Culprits
	var e checks.Evidence
	var summary string
	var subjects []checks.Subject
	step := checks.Strong
	for _, p := range stopped {
		Addf(&e.For, "%s%s is %s: a signal or a tracer stopped it", facts.ProcessLabel(p),
			facts.OwnerSuffix(f, facts.OwnerOf(p)), facts.StateOf(p))
		subjects = append(subjects, shimSubject(f, p))
		if facts.IsListed(f, p.ObjectID) || facts.IsNamedBad(f, p.ObjectID) {
			step = checks.Certain
		}
	}
	if len(stopped) > 0 && step != checks.Certain {
		Addf(&e.Missing, "whether %s this runtime's: its lists, to compare with, do not tell",
			units.Plural(len(stopped), "that shim is", "those shims are"))
	}
	for _, p := range gap.Orphans {
		Addf(&e.For, "%s has been running for %s for %s, which the runtime does not list; calls about it fail",
			facts.ProcessLabel(p), units.Duration(facts.AgeOf(f, p)), facts.ShortID(p.ObjectID))
		subjects = append(subjects, shimSubject(f, p))
	}
	for _, s := range gap.Shimless {
		o := host.Owner{ObjectID: s.ID}
		Addf(&e.For, "the runtime calls the sandbox of %s ready, its shim is not among the processes, and calls "+
			"about it fail", facts.OwnerLabel(f, o))
		b := facts.OwnedBy(f, o)
		b.Kind, b.ID = facts.KindSandbox, facts.Clean(s.ID)
		subjects = append(subjects, b)
	}
	switch {
	case len(stopped) > 0:
		summary = fmt.Sprintf("%s%s is stopped: nothing of that pod can be started, stopped or asked",
			facts.ProcessLabel(stopped[0]), facts.OwnerSuffix(f, facts.OwnerOf(stopped[0])))
	case len(gap.Orphans) > 0:
		summary = fmt.Sprintf("%s serves %s, which the runtime has forgotten", facts.ProcessLabel(gap.Orphans[0]),
			facts.ShortID(gap.Orphans[0].ObjectID))
	case len(gap.Shimless) > 0:
		summary = fmt.Sprintf("the shim of %s is gone, and the runtime calls its sandbox ready",
			facts.OwnerLabel(f, host.Owner{ObjectID: gap.Shimless[0].ID}))
	default:
		return nil
	}
	if n := len(subjects) - 1; n > 0 {
		summary += fmt.Sprintf("; %s more", units.Count(n, "shim"))
	}
	e.For = facts.Head(e.For, facts.MaxRelated)
	if len(stopped) == 0 {
		Addf(&e.Missing, "what the shims' own namespace says (ctr -n k8s.io tasks ls): kdiag compared processes "+
			"and lists")
	}
	c := newFinding(checks.Warning, step, summary, e)
	c.Subject, c.Related = &subjects[0], subjects[1:min(len(subjects), facts.MaxRelated+1)]
	c.Advise = func(string) []checks.NextStep { return stepsWhenShimStuck(f, stopped, gap) }
	return c
}

// shimSubject names a shim as a culprit, with the pod that it serves where that is known.
func shimSubject(f *facts.Facts, p host.Process) checks.Subject {
	s := facts.OwnedBy(f, facts.OwnerOf(p))
	s.Kind, s.ID, s.Name, s.Processes = "Process", fmt.Sprint(p.PID), facts.Clean(p.Name), []checks.Process{facts.ProcessOf(f, p)}
	return s
}

func stepsWhenShimStuck(f *facts.Facts, stopped []host.Process, gap facts.ShimGap) []checks.NextStep {
	var s Steps
	for _, p := range stopped[:min(len(stopped), facts.MostNamed)] {
		if p.PID > 1 {
			s.Add(checks.TouchesNothing, fmt.Sprintf("grep -E 'State|TracerPid' /proc/%d/status", p.PID),
				"Is it still stopped, and does a debugger hold it?")
			s.Add(checks.TouchesProcess, fmt.Sprintf("kill -CONT %d", p.PID),
				facts.ProcessLabel(p)+" goes on; nothing is lost.")
		}
	}
	for _, p := range gap.Orphans[:min(len(gap.Orphans), facts.MostNamed)] {
		if p.PID > 1 {
			s.Add(checks.TouchesNothing, fmt.Sprintf("ps -o pid,stat,etime,comm --ppid %d", p.PID),
				"What does it still run? Shims of docker or nerdctl are not listed by the kubelet's runtime, and "+
					"are well.")
			s.Add(checks.TouchesPod, fmt.Sprintf("kill -KILL %d", p.PID),
				"Ends what is left over, with all that it still runs. Only when nothing of it is needed.")
		}
	}
	for _, b := range gap.Shimless[:min(len(gap.Shimless), facts.MostNamed)] {
		if facts.Safe(b.ID) {
			s.Add(checks.TouchesNothing, facts.CrictlCommand(f, "inspectp "+b.ID),
				"Asks the shim as well: ttrpc: closed, or no answer, says that it is gone.")
		}
		if b.Pod != nil && facts.Safe(b.Pod.Namespace, b.Pod.Name) {
			s.Add(checks.TouchesPod, fmt.Sprintf("kubectl delete pod -n %s %s --wait=false", b.Pod.Namespace,
				b.Pod.Name), "The pod is dead already; this makes room for a new one.")
		}
	}
	if len(stopped) == 0 {
		AddService(f, &s)
		addRestart(f, &s)
	}
	return s.Done()
}

func loggedShimStuck(in *Incident) *LogFinding {
	codes := []string{signature.ShimUnresponsive, signature.KillFailed, signature.ExitEventFailed, signature.StopFailed}
	if in.count(codes[:3]...)+in.calls(isLate, signature.StopFailed, signature.RemoveFailed, signature.ExecFailed) == 0 {
		return nil
	}
	f := in.finding(objectTier, 0.3, "A container's shim or its process does not react.", codes...)
	if in.count(signature.ShimUnresponsive) > 0 {
		f.Confidence += 0.35
	}
	if in.count(signature.KillFailed, signature.ExitEventFailed) > 0 {
		f.Confidence += 0.2
	}
	if in.listsMissed > 0 && in.down {
		f.lower(0.1, "the whole runtime hangs; stopping containers fails in its wake")
	}
	return f
}
