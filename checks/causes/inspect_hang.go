package causes

import (
	"slices"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
	"github.com/kdiag/kdiag/plegbench"
)

// InspectHang is the code of this cause.
const InspectHang = "InspectHang"

var inspectHang = cause(InspectHang, recogniseInspectHang, loggedInspectHang, "runtime.inspect")

func recogniseInspectHang(f *facts.Facts) *Finding {
	if !talks(f) || f.Pattern.Stalls || len(f.Calls.HungLists) > 0 {
		return nil
	}
	var e checks.Evidence
	severity, step, summary, against := checks.Critical, checks.Certain, "", ""
	all := mainFirst(f.Sweep.Hung)
	if len(all) > 0 {
		summary = hungSummaryOf(f, all)
	} else if all = mainFirst(f.Sweep.Failed); len(all) > 0 {
		summary = textf("the status of %v comes back with an error", all[0])
		against = "the calls are answered: a relist does not wait for them"
	} else if all = slowObjects(f); len(all) > 0 {
		summary = textf("the status of %v takes %s, that of others %s", all[0], all[0].Call.Elapsed, f.Sweep.Median)
		against = "it does answer"
	} else {
		return nil
	}
	objectEvidence(f, &e, all)
	addGaps(f, &e, gapHost, gapSweep)
	if against != "" {
		severity, step = checks.Warning, checks.Strong
		Addf(&e.Against, "%s", against)
	} else {
		named := hungEvidenceOf(f, &e, all)
		step = raised(patientStep(f, step), logOfPLEG(f, &e) || named)
	}
	return newFinding(severity, step, summary, e, objectSubjects(f, all)...).advise(func(s *Steps, root string) {
		adviseInspectHang(f, s, all, root != "" || against != "")
	})
}

// hungEvidenceOf adds what a hung status call means for the kubelet, and reports whether its log names the object too.
func hungEvidenceOf(f *facts.Facts, e *checks.Evidence, all []plegbench.Inspection) bool {
	calls, pods := outOf(len(all), len(f.Sweep.Made), "status call"), facts.PodsOf(all)
	Addf(&e.For, "%s hung, in %s", calls, units.Count(pods, "pod"))
	addCalls(f, &e.For, isAlive, facts.RPCSandboxes, facts.RPCContainers)
	Addf(&e.For, "a relist waits %s for each such pod; the threshold is %s", f.Calls.KubeletTimeout, f.Calls.Threshold)
	if p50 := f.Sweep.Median; f.Sweep.Timed && f.Limits.SlowStatus > 0 && p50 >= f.Limits.SlowStatus {
		Addf(&e.Against, "the other status calls take %s in the median: the runtime may be slow", p50)
	}
	addIf(f.RPC[facts.RPCImages].Outcome == facts.Hung && !f.Pattern.ImagesHold, &e.Against, "ListImages hangs too")
	addGaps(f, e, gapKubelet, gapPatience, gapDeadline, gapJournal)
	return logOfObject(f, e, all)
}

// slowObjects returns the objects whose status is far slower than the others', the slowest first: what is about to hang
// often looks so.
func slowObjects(f *facts.Facts) []plegbench.Inspection {
	limit := f.Limits.SlowStatus
	isSlow := func(i plegbench.Inspection) bool { return i.Call.OK() && i.Call.Elapsed >= limit }
	slow := facts.InspectionsThat(f, isSlow)
	if limit <= 0 || !f.Sweep.Timed || f.Sweep.Median >= limit/4 || facts.PodsOf(slow) > facts.ManyOfStatuses {
		return nil
	}
	slices.SortStableFunc(slow, func(a, b plegbench.Inspection) int { return int(b.Call.Elapsed - a.Call.Elapsed) })
	return slow
}

// mainFirst orders inspections so that the one to name is the first.
func mainFirst(all []plegbench.Inspection) []plegbench.Inspection {
	if len(all) == 0 {
		return nil
	}
	main, rest := facts.MainCulprit(all)
	return append([]plegbench.Inspection{main}, rest...)
}

// objectSubjects names the objects of inspections as culprits.
func objectSubjects(f *facts.Facts, all []plegbench.Inspection) []checks.Subject {
	return append([]checks.Subject{facts.SubjectOf(f, all[0])}, facts.Related(f, all[1:])...)
}

// objectEvidence adds the calls about objects: the first, how many more, how the others did, and the processes.
func objectEvidence(f *facts.Facts, e *checks.Evidence, all []plegbench.Inspection) {
	Addf(&e.For, "%v: %v", all[0], all[0].Call)
	if more := len(all) - 1; more > 0 {
		var names []string
		for _, i := range top(all[1:]) {
			names = append(names, facts.Label(i))
		}
		Addf(&e.For, "so did %s, such as %s", units.Count(more, "other"), units.List(names))
	}
	if n, s := f.Sweep.Answered, f.Sweep.Summary; n > 0 && s != nil && s.P99Seconds != nil {
		Addf(&e.For, "%s answered, p99 %s", units.Count(n, "status call"), units.Seconds(*s.P99Seconds))
	}
	processEvidence(f, e, all[0].ID, all[0].SandboxID)
}

// hungSummaryOf names the main object and states no more of the others than was seen.
func hungSummaryOf(f *facts.Facts, all []plegbench.Inspection) string {
	made, also := len(f.Sweep.Made), ""
	within := choose(f.Calls.Impatient, " within "+units.Duration(f.Limits.RPCTimeout), "")
	if n := len(all); n > 1 && float64(n) >= facts.MostOfStatuses*float64(made) {
		return textf("%s do not come%s, the first that of %v", outOf(n, made, "status call"), within, all[0])
	} else if n > 1 {
		also = " and " + units.Count(n-1, "other object")
	}
	others := choose(f.Sweep.Answered == 0, "no other was answered", "that of others does")
	return textf("the status of %v%s does not come%s; %s", all[0], also, within, others)
}

// adviseInspectHang adds only looks for an object that holds nobody up, or that waits for a root that is known.
func adviseInspectHang(f *facts.Facts, s *Steps, all []plegbench.Inspection, looks bool) {
	main := all[0]
	command := choose(main.Kind == facts.KindSandbox, "inspectp -q ", "inspect -q ")
	if main.Call.Hung() {
		addCapture(f, s)
	}
	s.lookIf(facts.Safe(main.ID), facts.CrictlCommand(f, command+main.ID), "Does this object alone still hang?")
	serving := facts.ProcessesServing(f, main.ID, main.SandboxID)
	if looks {
		for _, p := range serving {
			addStack(s, p, facts.Label(main))
		}
		AddService(f, s)
		return
	}
	addProcesses(f, s, main)
	addDeletePod(f, s, main.Pod, "A Deployment's replacement can start elsewhere. Here the stop may hang.")
	for _, i := range all[1:min(len(all), 3)] {
		addProcesses(f, s, i)
	}
	addRestart(f, s)
	for _, p := range serving {
		if facts.IsUninterruptible(&p) && p.Lasting {
			s.addNodeIf(true, "If what its process waits for does not come back, only a reboot ends it.")
		} else if facts.IsUninterruptible(&p) {
			addLookAgain(s, p)
		}
	}
}

// loggedInspectHang is for status calls of single pods or containers that do not come back.
func loggedInspectHang(in *Incident) *LogFinding {
	named := in.calls(isLate, signature.InspectFailed) > 0
	if !named && (in.peak == 0 && !in.allHung || in.down || in.lists > 0) {
		return nil
	}
	f := in.finding(objectTier, 0.25, "Single pods or containers cannot be inspected; the relist waits two minutes "+
		"for each.").raiseIf(named, 0.55, in.found(signature.InspectFailed)...)
	if !named {
		f.lacks("records that name what could not be inspected; identical ones are printed once a minute at most")
	}
	if in.allHung {
		f.Confidence = max(f.Confidence, 0.55)
	}
	return f.raiseIf(in.allHung, 0.1, in.relistsText()).
		raiseIf(in.peak > 0 && !in.allHung, 0.1, textf("%d calls hung one after the other: the worst age "+
			"is near as many deadlines of 2 min", in.peak)).
		lowerIf(in.listsMissed > 0 || in.down, 0.4, "lists or the status do not come back either")
}
