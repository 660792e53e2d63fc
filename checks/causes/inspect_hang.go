package causes

import (
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
	"github.com/kdiag/kdiag/plegbench"
)

// InspectHang is the code of this cause.
const InspectHang = "InspectHang"

func recogniseInspectHang(f *facts.Facts) *Finding {
	if !talks(f) || f.Pattern.Stalls || len(f.Calls.HungLists) > 0 {
		return nil
	}
	var e checks.Evidence
	severity, step, summary, against := checks.Warning, checks.Strong, "", ""
	var effect []string
	all := mainFirst(f.Sweep.Hung)
	if len(all) > 0 {
		summary = hungSummaryOf(f, all)
	} else if all = mainFirst(facts.InspectionsThat(f, facts.IsFailed)); len(all) > 0 {
		summary = statusOf(all[0]) + " fails"
		against = "the calls are answered: a relist does not wait for them"
	} else if all = slowObjects(f); len(all) > 0 {
		summary = textf("%s takes %s, others %s", statusOf(all[0]), all[0].Call.Elapsed, f.Sweep.Median)
		against = "it does answer"
	} else {
		return nil
	}
	objectEvidence(f, &e, all)
	addGaps(f, &e, gapHost, gapSweep)
	if against != "" {
		Addf(&e.Against, "%s", against)
	} else {
		named := hungEvidenceOf(f, &e, all)
		holds := stackEvidence(f, &e, all[0].Call.Method, serving(all[0].Call.Method).inPod(all[0]),
			serving(all[0].Call.Method))
		lines, notReady := hangEffect(f, facts.PodsOf(all))
		unhealthy := logOfPLEG(f, &e)
		severity, effect = criticalIf(unhealthy || notReady), lines
		step = raised(patientStep(f, checks.Certain), unhealthy || named || len(holds) > 0)
	}
	return newFinding(severity, step, summary, e, objectSubjects(f, all)...).affects(effect...).
		advise(func(s *Steps, root string) { adviseInspectHang(f, s, all, root != "" || against != "") })
}

// statusOf names the status call about an object: ContainerStatus of web/checkout-1 (app).
func statusOf(i plegbench.Inspection) string {
	return i.Call.Method + " of " + strings.TrimPrefix(facts.Label(i), "sandbox of ")
}

// hungEvidenceOf adds the state of the rest of the runtime, and reports whether the kubelet's log names the object too.
func hungEvidenceOf(f *facts.Facts, e *checks.Evidence, all []plegbench.Inspection) bool {
	if f.Calls.BothLists && f.Calls.ListMedian > 0 {
		Addf(&e.For, "both lists answer in %s", f.Calls.ListMedian)
	} else {
		addCalls(f, &e.For, facts.Outcome.Alive, facts.RPCSandboxes, facts.RPCContainers)
	}
	if p50 := f.Sweep.Median; f.Sweep.Median > 0 && f.Limits.SlowStatus > 0 && p50 >= f.Limits.SlowStatus {
		Addf(&e.Against, "the other status calls take %s (median): the runtime may be slow", p50)
	}
	addIf(f.RPC[facts.RPCImages].Outcome == facts.Hung && !f.Pattern.ImagesHold, &e.Against, "ListImages hangs too")
	addGaps(f, e, gapKubelet, gapPatience, gapDeadline, gapJournal)
	return logOfObject(f, e, all)
}

// slowObjects returns the objects whose status is far slower than the others', the slowest first. An
// object that is about to hang often is.
func slowObjects(f *facts.Facts) []plegbench.Inspection {
	limit := f.Limits.SlowStatus
	isSlow := func(i plegbench.Inspection) bool { return i.Call.OK() && i.Call.Elapsed >= limit }
	slow := facts.InspectionsThat(f, isSlow)
	if limit <= 0 || f.Sweep.Median == 0 || f.Sweep.Median >= limit/4 || facts.PodsOf(slow) > facts.ManyOfStatuses {
		return nil
	}
	slices.SortStableFunc(slow, func(a, b plegbench.Inspection) int { return int(b.Call.Elapsed - a.Call.Elapsed) })
	return slow
}

// mainFirst orders inspections so that the one to name is the first: the sandbox in place of its container where both
// hang, since what holds a sandbox holds its containers too.
func mainFirst(all []plegbench.Inspection) []plegbench.Inspection {
	i := slices.IndexFunc(all, func(i plegbench.Inspection) bool {
		return i.Kind == facts.KindSandbox && i.ID == all[0].SandboxID
	})
	if i <= 0 {
		return all
	}
	return slices.Concat(all[i:i+1], all[:i], all[i+1:])
}

// objectSubjects names the objects of inspections as culprits.
func objectSubjects(f *facts.Facts, all []plegbench.Inspection) (subjects []checks.Subject) {
	for _, i := range all[:min(len(all), facts.MaxRelated+1)] {
		subjects = append(subjects, facts.SubjectOf(f, i))
	}
	return subjects
}

// objectEvidence adds the calls about objects: the first, how many more, how the others did, and the processes.
func objectEvidence(f *facts.Facts, e *checks.Evidence, all []plegbench.Inspection) {
	line := textf("%v: %v", all[0], all[0].Call)
	if n, s := f.Sweep.Answered, f.Sweep.Summary; n > 0 && s != nil && s.P99Seconds != nil {
		line += textf("; %s answered (p99 %s)", units.Count(n, "status call"), units.Seconds(*s.P99Seconds))
	}
	e.For = append(e.For, line)
	if n := len(all); n > 1 {
		var names []string
		for _, i := range top(all[1:]) {
			names = append(names, facts.Label(i))
		}
		Addf(&e.For, "%s %s, in %s: also %s", outOf(n, len(f.Sweep.Made), "status call"),
			ifElse(all[0].Call.Hung(), "hung", "did so"), units.Count(facts.PodsOf(all), "pod"), units.List(names))
	}
	processEvidence(f, e, all[0].ID, all[0].SandboxID)
}

// hungSummaryOf names the main object and states no more of the others than was seen.
func hungSummaryOf(f *facts.Facts, all []plegbench.Inspection) string {
	made, more := len(f.Sweep.Made), len(all)-1
	line := statusOf(all[0]) + ifElse(more > 0, textf(" and %s hang", units.Count(more, "other")), " hangs")
	if more > 0 && float64(more+1) >= facts.MostOfStatuses*float64(made) {
		line = textf("%s hang, the first: %s", outOf(more+1, made, "status call"), statusOf(all[0]))
	} else if f.Sweep.Answered == 0 {
		line += "; no other was answered"
	}
	return line + ifElse(f.Calls.Impatient, textf(" (no reply in %s)", f.Limits.RPCTimeout), "")
}

// adviseInspectHang adds only looks for an object that holds nobody up, or that waits for a root that is known.
func adviseInspectHang(f *facts.Facts, s *Steps, all []plegbench.Inspection, looks bool) {
	main := all[0]
	command := ifElse(main.Kind == facts.KindSandbox, "inspectp -q ", "inspect -q ")
	if main.Call.Hung() {
		addCapture(f, s)
	}
	s.lookIf(facts.Safe(main.ID), facts.CrictlCommand(f, command+main.ID),
		"Query only this "+ifElse(main.Kind == facts.KindSandbox, "sandbox", "container")+"; does it still hang?")
	serving := facts.ProcessesServing(f, main.ID, main.SandboxID)
	if looks {
		for _, p := range serving {
			addStack(s, p, facts.Label(main))
		}
		AddService(f, s)
		return
	}
	addProcesses(f, s, main)
	addDeletePod(f, s, main.Pod, "")
	for _, i := range all[1:min(len(all), 3)] {
		addProcesses(f, s, i)
	}
	addRestart(f, s)
	for _, p := range serving {
		if facts.IsUninterruptible(&p) && p.Lasting {
			s.addNodeIf(true, "Reboot if what its process waits for does not return")
		} else if facts.IsUninterruptible(&p) {
			addLookAgain(s, p)
		}
	}
}

// loggedInspectHang is for status calls of single pods or containers that do not come back.
func loggedInspectHang(in *Incident) *Finding {
	named := in.calls(isLate, signature.InspectFailed) > 0
	if !named && (in.peak == 0 && !in.allHung || in.down || in.lists > 0) {
		return nil
	}
	f := in.finding(checks.Weak, "Single pods or containers cannot be inspected; the relist waits two minutes for each.")
	switch {
	case named && (in.allHung || in.peak > 0):
		f.Step = checks.Certain
	case named:
		f.Step = checks.Strong
	case in.allHung:
		f.Step = checks.Fair
	}
	if named {
		f.supports(in.found(signature.InspectFailed)...)
	} else {
		f.lacks("records that name what could not be inspected; identical ones are printed once a minute at most")
	}
	if in.allHung {
		f.supports(in.relistsText())
	} else if in.peak > 0 {
		f.supports(textf("%d calls hung one after the other: the worst age is near as many deadlines of 2 min", in.peak))
	}
	if in.listsMissed > 0 || in.down {
		return f.unlikely("lists or the status do not come back either")
	}
	return f
}
