package causes

import (
	"fmt"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
	"github.com/kdiag/kdiag/plegbench"
)

// ListHang is the code of this cause.
const ListHang = "ListHang"

var listHang = Definition{
	Code:   ListHang,
	Claims: []string{"runtime.lists"},
	Roots: []Root{
		{Code: IOStall, When: diskStands},
		{Code: FilesystemHung, When: podMountHangs},
		{Code: OOMKilled, When: oomHitShim},
		{Code: TaskStuck, When: taskHoldsList},
		{Code: ShimStuck, When: shimHoldsList},
		{Code: CgroupFrozen, When: freezeHoldsCall},
		{Code: SystemdWedged, When: runcWaitsForSystemd},
		{Code: KernelHung},
	},
	Recognise: recogniseListHang,
	FromLog:   loggedListHang,
}

func recogniseListHang(f *facts.Facts) *Finding {
	if !f.Calls.Connected || f.Pattern.Hang != facts.HangNone {
		return nil
	}
	lists := f.Calls.HungLists
	someAnswer := f.Calls.AnyList || f.RPC[facts.RPCStatus].Outcome.Alive() || sweepLine(f) != ""
	if len(lists) == 0 || !someAnswer {
		return nil
	}
	var e checks.Evidence
	for _, r := range lists {
		e.For = append(e.For, facts.CallLine(r.Last()))
	}
	addCalls(f, &e.For, isAlive, facts.RPCSandboxes, facts.RPCContainers, facts.RPCVersion, facts.RPCStatus)
	c := listHolder(f, lists, &e)
	c.Advise = func(string) []checks.NextStep { return stepsWhenListHangs(f) }
	return c
}

// listHolder builds the cause, with the holder of the lock as subject where it was found.
func listHolder(f *facts.Facts, lists []facts.RPC, e *checks.Evidence) *Finding {
	name := lists[0].Name
	hungs := f.Sweep.Hung
	step := checks.Strong
	summary := fmt.Sprintf("%s hangs while other calls answer: a lock on its way is held", name)
	if len(lists) == 2 {
		name, step = "both lists", checks.Fair
		summary = "both lists hang while other calls answer: a lock on their way is held"
	}
	subject := &checks.Subject{Kind: "RPC", Name: lists[0].Name}
	var others []checks.Subject
	switch {
	case len(hungs) > 0:
		main, rest := facts.MainCulprit(hungs)
		addHungObjects(f, e, main, rest)
		processEvidence(f, e, main.ID, main.SandboxID)
		if len(lists) == 1 && lists[0].Name == facts.RPCContainers {
			step = checks.Certain
		}
		s := facts.SubjectOf(f, main)
		subject, others = &s, facts.Related(f, rest)
		summary = fmt.Sprintf("%s %s for %s: its status lock is held (in containerd by UpdateContainerResources "+
			"or exit handling)",
			name, units.Plural(len(lists), "waits", "wait"), facts.Label(main))
	default:
		if old := facts.OldProcesses(f, host.RoleOCI, facts.LongOCI); len(old) > 0 {
			Addf(&e.For, "%s has been at work for %s (%s), on %s", facts.ProcessLabel(old[0]),
				units.Duration(facts.AgeOf(f, old[0])), facts.StateOf(old[0]), objectOf(old[0]))
			s := facts.ProcessSubject(f, old[0])
			subject = &s
			summary = fmt.Sprintf("%s %s, probably for %s, at work for %s", name,
				units.Plural(len(lists), "waits", "wait"),
				facts.ProcessLabel(old[0]), units.Duration(facts.AgeOf(f, old[0])))
		}
		missingHolder(f, e)
	}
	if f.Calls.Impatient {
		summary = fmt.Sprintf("%s %s not come within %s while other calls answer: a lock is held, or it is slow", name,
			units.Plural(len(lists), "does", "do"), units.Duration(f.Limits.RPCTimeout))
	}
	missingHost(f, e)
	missingPatience(f, e)
	missingDeadline(f, e)
	missingSweep(f, e)
	step = patientStep(f, step)
	agrees := logOfLists(f, e)
	if len(hungs) > 0 {
		agrees = logOfObject(f, e, plegObjects(hungs)...) || agrees
	}
	c := newFinding(checks.Critical, raised(step, agrees), summary, *e)
	c.Subject, c.Related = subject, others
	return c
}

// objectOf names what a process works on.
func objectOf(p host.Process) string {
	if p.ObjectID == "" {
		return "an object that is not known"
	}
	return facts.ShortID(p.ObjectID)
}

// missingHolder notes why nobody is named.
func missingHolder(f *facts.Facts, e *checks.Evidence) {
	asked := 0
	for _, i := range f.Sweep.Made {
		if i.Kind == facts.KindContainer {
			asked++
		}
	}
	if asked == 0 {
		Addf(&e.Missing, "which container holds the lock: without the list, and without ids from the host, none "+
			"could be asked")
		return
	}
	Addf(&e.Against, "the status of %s was asked and none hung: the holder is not among them",
		units.Count(asked, "container"))
}

// addHungObjects adds the hung status calls: the main one, how many more, and how the others did.
func addHungObjects(f *facts.Facts, e *checks.Evidence, main plegbench.Inspection, rest []plegbench.Inspection) {
	line := fmt.Sprintf("%s of %s did not answer in %s", main.Call.Method, facts.Label(main),
		units.Duration(main.Call.Elapsed))
	if main.Call.Method == "" {
		line = fmt.Sprintf("the status of %s did not arrive in %s", facts.Label(main),
			units.Duration(main.Call.Elapsed))
	}
	if s := sweepLine(f); s != "" {
		line += "; " + s
	}
	e.For = append(e.For, line)
	if len(rest) == 0 {
		return
	}
	var names []string
	for _, i := range rest[:min(len(rest), 3)] {
		names = append(names, facts.Label(i))
	}
	if more := len(rest) - len(names); more > 0 {
		names = append(names, units.Count(more, "other"))
	}
	Addf(&e.For, "so did %s", units.List(names))
	if more := len(rest) - facts.MaxRelated; more > 0 {
		Addf(&e.For, "%s hang beyond those listed as related", units.Number(more))
	}
}

func stepsWhenListHangs(f *facts.Facts) []checks.NextStep {
	var s Steps
	addCapture(f, &s)
	hungs := f.Sweep.Hung
	if len(hungs) > 0 {
		main, _ := facts.MainCulprit(hungs)
		addProcesses(f, &s, main)
		addDeletePod(f, &s, main)
	} else if old := facts.OldProcesses(f, host.RoleOCI, facts.LongOCI); len(old) > 0 {
		addKill(f, &s, old[0], objectOf(old[0])) // the oldest: the others may well wait behind it
	}
	if len(hungs) == 0 {
		s.Add(checks.TouchesNothing, "ps -eo pid,ppid,stat,wchan:32,etime,comm --sort=-etime | grep -E 'runc|crun'",
			"A create, start, kill, update or delete at work for more than ten seconds is the likely holder; an "+
				"exec or run lives as long as what it runs.")
	}
	addRestart(f, &s)
	return s.Done()
}

func loggedListHang(in *Incident) *LogFinding {
	if in.listsMissed == 0 || in.count(signature.MessageTooLarge) > 0 {
		return nil
	}
	f := in.finding(runtimeTier, 0.75,
		"The lists of pods or containers do not come back, as when one container's lock is held.",
		signature.RelistFailed, signature.ListFailed)
	switch {
	case in.down || in.statusMissed > 0:
		f.limit(0.3, "the runtime's status does not come back either, so all of it hangs")
	case (in.Recovered || in.moving || len(in.Relists) > 0) && in.lateLists() <= 1:
		f.limit(0.45, "a list missed its deadline once; later ones came back")
	default:
		f.raise(0, "the kubelet does not call the runtime down").
			lacks("a look at the other calls: which of the two lists hangs names the lock")
	}
	return f
}
