package causes

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
	"github.com/kdiag/kdiag/plegbench"
)

// InspectHang is the code of this cause.
const InspectHang = "InspectHang"

var inspectHang = Definition{
	Code:   InspectHang,
	Claims: []string{"runtime.inspect"},
	Roots: []Root{
		{Code: RuntimeSlow},
		{Code: ImageServiceHung, When: someStatusHangs},
		{Code: IOStall, When: diskStands},
		{Code: FilesystemHung, When: podMountHangs},
		{Code: OOMKilled, When: oomHitShim},
		{Code: PIDsExhausted, When: runtimeCannotFork},
		{Code: FilesExhausted, When: runtimeOutOfFiles},
		{Code: TaskStuck, When: taskHoldsCall},
		{Code: ShimStuck, When: shimHoldsCall},
		{Code: CgroupFrozen, When: freezeHoldsCall},
		{Code: SystemdWedged, When: runcWaitsForSystemd},
		{Code: KernelHung},
	},
	Recognise: recogniseInspectHang,
	FromLog:   loggedInspectHang,
}

func recogniseInspectHang(f *facts.Facts) *Finding {
	if !f.Calls.Connected || f.Pattern.Hang != facts.HangNone || f.Pattern.Stalls || len(f.Calls.HungLists) > 0 {
		return nil
	}
	if hungs := f.Sweep.Hung; len(hungs) > 0 {
		return hungObjects(f, hungs)
	}
	if bad := f.Sweep.Failed; len(bad) > 0 {
		return failingObjects(f, bad)
	}
	return slowObject(f)
}

// hungObjects is the cause proper: status calls that missed their deadline.
func hungObjects(f *facts.Facts, hungs []plegbench.Inspection) *Finding {
	main, rest := facts.MainCulprit(hungs)
	all := len(f.Sweep.Made)
	var e checks.Evidence
	addHungObjects(f, &e, main, rest)
	Addf(&e.For, "%s of %s status calls hung, in %s", units.Number(len(hungs)), units.Number(all),
		units.Count(facts.PodsOf(hungs), "pod"))
	addCalls(f, &e.For, isAlive, facts.RPCSandboxes, facts.RPCContainers)
	e.For = append(e.For, RelistArithmetic(f, facts.PodsOf(hungs)))
	processEvidence(f, &e, main.ID, main.SandboxID)
	if p50, ok := f.Sweep.Median, f.Sweep.Timed; ok && f.Limits.SlowStatus > 0 && p50 >= f.Limits.SlowStatus {
		Addf(&e.Against, "the other status calls take %s in the median: these may be the slowest of a slow runtime",
			units.Duration(p50))
	}
	if f.RPC[facts.RPCImages].Outcome == facts.Hung && !f.Pattern.ImagesHold {
		Addf(&e.Against, "ListImages hangs too: the image store's lock may hold both")
	}
	missingHost(f, &e)
	missingKubelet(f, &e)
	missingPatience(f, &e)
	missingDeadline(f, &e)
	missingSweep(f, &e)
	missingJournal(f, &e)
	named := logOfObject(f, &e, plegObjects(append([]plegbench.Inspection{main}, rest...))...)
	pleg := logOfPLEG(f, &e)
	c := newFinding(checks.Critical, raised(patientStep(f, checks.Certain), named || pleg),
		hungObjectsSummary(f, main, rest), e)
	s := facts.SubjectOf(f, main)
	c.Subject, c.Related = &s, facts.Related(f, rest)
	c.Advise = func(root string) []checks.NextStep { return stepsWhenInspectHangs(f, main, rest, root) }
	return c
}

// hungObjectsSummary names the objects and says no more of the others than was seen.
func hungObjectsSummary(f *facts.Facts, main plegbench.Inspection, rest []plegbench.Inspection) string {
	all, hungs := len(f.Sweep.Made), len(rest)+1
	within := ""
	if f.Calls.Impatient {
		within = " within " + units.Duration(f.Limits.RPCTimeout)
	}
	others := ""
	if len(rest) > 0 {
		others = " and " + units.Count(len(rest), "other object")
	}
	pods := facts.PodsOf(append([]plegbench.Inspection{main}, rest...))
	switch {
	case hungs == all && all == 1:
		return fmt.Sprintf("the status of %s does not come%s; no other was asked", facts.Label(main), within)
	case f.Sweep.Answered == 0:
		return fmt.Sprintf("no status call is answered%s: %s of %s hang, the first that of %s; the lists answer",
			within, units.Number(hungs), units.Number(all), facts.Label(main))
	case pods > 1 && !slices.ContainsFunc(f.Sweep.Made,
		func(i plegbench.Inspection) bool { return i.Kind == main.Kind && facts.IsAnswered(i) }):
		return fmt.Sprintf("no %s call is answered%s: %s of %s status calls hang, the first that of %s; the lists "+
			"answer", cmp.Or(main.Call.Method, "such"),
			within, units.Number(hungs), units.Number(all), facts.Label(main))
	case pods > 1 && float64(hungs) >= facts.MostOfStatuses*float64(all):
		return fmt.Sprintf("%s of %s status calls do not come%s, the first that of %s; the lists answer",
			units.Number(hungs), units.Number(all), within, facts.Label(main))
	case f.RPC[facts.RPCStatus].Outcome.Alive() && f.RPC[facts.RPCImages].Outcome.Alive() &&
		f.RPC[facts.RPCImageFs].Outcome.Alive():
		return fmt.Sprintf("the status of %s%s does not come%s; everything else answers", facts.Label(main), others,
			within)
	}
	return fmt.Sprintf("the status of %s%s does not come%s; that of others does", facts.Label(main), others, within)
}

// failingObjects reports status calls that come back with an error. They cost a relist no time, but the kubelet keeps
// such a pod's events back exactly as with a hung one.
func failingObjects(f *facts.Facts, bad []plegbench.Inspection) *Finding {
	main, rest := facts.MainCulprit(bad)
	var e checks.Evidence
	Addf(&e.For, "%s of %s: %s: %s", main.Call.Method, facts.Label(main), facts.Clean(string(main.Call.Code)),
		facts.Clean(main.Call.Err))
	Addf(&e.For, "%s of %s status calls failed; the kubelet keeps the events of these pods back and tries again "+
		"in each relist",
		units.Number(len(bad)), units.Number(len(f.Sweep.Made)))
	Addf(&e.Against, "the calls are answered: a relist does not wait for them")
	missingHost(f, &e)
	missingSweep(f, &e)
	c := newFinding(checks.Warning, checks.Strong, fmt.Sprintf("the status of %s comes back with an error",
		facts.Label(main)), e)
	s := facts.SubjectOf(f, main)
	c.Subject, c.Related = &s, facts.Related(f, rest)
	c.Advise = func(string) []checks.NextStep { return stepsWhenInspectAnswers(f, main) }
	return c
}

// slowObject reports an object whose status is far slower than the others': what is about to hang often looks so.
func slowObject(f *facts.Facts) *Finding {
	limit := f.Limits.SlowStatus
	p50, ok := f.Sweep.Median, f.Sweep.Timed
	if limit <= 0 || !ok || p50 >= limit/4 {
		return nil
	}
	slow := facts.InspectionsThat(f, func(i plegbench.Inspection) bool {
		return i.Call.OK() &&
			i.Call.Elapsed >= limit
	})
	if len(slow) == 0 || facts.PodsOf(slow) > facts.ManyOfStatuses {
		return nil
	}
	slices.SortStableFunc(slow,
		func(a, b plegbench.Inspection) int { return int((b.Call.Elapsed - a.Call.Elapsed) / time.Millisecond) })
	main, rest := slow[0], slow[1:]
	var e checks.Evidence
	Addf(&e.For, "%s of %s took %s; the median is %s", main.Call.Method, facts.Label(main),
		units.Duration(main.Call.Elapsed), units.Duration(p50))
	if len(rest) > 0 {
		Addf(&e.For, "%s took longer than %s as well", units.Count(len(rest), "other status call"),
			units.Duration(limit))
	}
	Addf(&e.Against, "it does answer")
	processEvidence(f, &e, main.ID, main.SandboxID)
	missingHost(f, &e)
	missingSweep(f, &e)
	c := newFinding(checks.Warning, checks.Strong, fmt.Sprintf("the status of %s takes %s, that of others %s",
		facts.Label(main),
		units.Duration(main.Call.Elapsed), units.Duration(p50)), e)
	s := facts.SubjectOf(f, main)
	c.Subject, c.Related = &s, facts.Related(f, rest)
	c.Advise = func(string) []checks.NextStep { return stepsWhenInspectAnswers(f, main) }
	return c
}

func stepsWhenInspectHangs(f *facts.Facts, main plegbench.Inspection, rest []plegbench.Inspection,
	root string,
) []checks.NextStep {
	var s Steps
	addCapture(f, &s)
	addInspect(f, &s, main, "Ask once more for this object alone: does it still hang?")
	if root != "" {
		addLooks(f, &s, main)
		return s.Done()
	}
	addProcesses(f, &s, main)
	addDeletePod(f, &s, main)
	for _, i := range rest[:min(len(rest), 2)] {
		addProcesses(f, &s, i)
	}
	addRestart(f, &s)
	blocked := slices.DeleteFunc(facts.ProcessesServing(f, main.ID, main.SandboxID),
		func(p host.Process) bool { return !facts.IsUninterruptible(&p) })
	if slices.ContainsFunc(blocked, func(p host.Process) bool { return p.Lasting }) {
		addNode(&s, "Its process was in uninterruptible sleep in two looks: if what it waits for does not come "+
			"back, only a reboot ends it.")
	} else if len(blocked) > 0 {
		addLookAgain(&s, blocked[0])
	}
	return s.Done()
}

// stepsWhenInspectAnswers only looks: an object that is slow or fails holds nobody up, so nothing is killed for it.
func stepsWhenInspectAnswers(f *facts.Facts, main plegbench.Inspection) []checks.NextStep {
	var s Steps
	addInspect(f, &s, main, "Ask once more for this object alone: what does it say, and how long does it take?")
	addLooks(f, &s, main)
	return s.Done()
}

// addInspect adds one more question for an object.
func addInspect(f *facts.Facts, s *Steps, i plegbench.Inspection, why string) {
	if !facts.Safe(i.ID) {
		return
	}
	command := "inspect -q "
	if i.Kind == facts.KindSandbox {
		command = "inspectp -q "
	}
	s.Add(checks.TouchesNothing, facts.CrictlCommand(f, command+i.ID), why)
}

// addLooks adds where the processes of an object wait, and what the runtime's log says.
func addLooks(f *facts.Facts, s *Steps, i plegbench.Inspection) {
	for _, p := range facts.ProcessesServing(f, i.ID, i.SandboxID) {
		if p.PID > 1 {
			addStack(s, p, facts.Label(i))
		}
	}
	AddService(f, s)
}

// loggedInspectHang is for status calls of single pods or containers that do not come back.
func loggedInspectHang(in *Incident) *LogFinding {
	named := in.calls(isLate, signature.InspectFailed) > 0
	if !named && (in.peak == 0 && !in.allHung || in.down || in.lists > 0) {
		return nil
	}
	f := in.finding(objectTier, 0.25, "Single pods or containers cannot be inspected; the relist waits two minutes "+
		"for each.")
	if named {
		f.raise(0.55, in.found(signature.InspectFailed)...)
	} else {
		f.lacks("records that name what could not be inspected; identical ones are printed once a minute at most")
	}
	switch {
	case in.allHung:
		f.Confidence = max(f.Confidence, 0.55)
		f.raise(0.1, in.relistsText())
	case in.peak > 0:
		f.raise(0.1, fmt.Sprintf("the worst age is near %d times the 2 min deadline of a call: %d calls hung one "+
			"after the other", in.peak, in.peak))
	}
	if in.listsMissed > 0 || in.down {
		f.lower(0.4, "lists or the status do not come back either, so the trouble is wider than these objects")
	}
	return f
}
