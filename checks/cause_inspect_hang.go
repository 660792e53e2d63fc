package checks

import (
	"fmt"
	"slices"
	"time"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/plegbench"
)

func inspectHang() Definition {
	return Definition{
		Code:  codeInspectHang,
		Title: "the status of one or a few objects does not come",
		Means: "Both lists answer, and so does the status of nearly everything; one or a few containers or sandboxes do not. Their shim, their runc, or the " +
			"lock that the runtime holds for them is stuck: on a dead mount, in a frozen cgroup, in the kernel.\n\n" +
			"The kubelet inspects changed pods one after the other and waits two minutes for each hung call. It gives up on that pod, keeps the " +
			"pod's events back and tries again in the next relist, so the two minutes come back every time. In 1.36 one such pod stays " +
			"below 3m, and every other pod's update comes two minutes late; two such pods are over. Older kubelets inspect a failing pod twice, so one " +
			"is enough: 4m, a node that flaps every four minutes. A hung pod in which nothing changes costs nothing, until the kubelet restarts.",
		Confirm: []string{
			"crictl inspect -q ID, or inspectp -q for a sandbox: hangs for this id, answers for others. Without -q, crictl asks the shim too.",
			"The kubelet's log repeats the same id with DeadlineExceeded in \"ContainerStatus from runtime service failed\" or \"PodSandboxStatus of sandbox\".",
			"ps for its runc: a create, start, kill, update or delete older than ten seconds is stuck (an exec or run lives as long as what it runs). /proc/PID/stack says on what.",
		},
		Fix: []string{
			"Keep the stack of the stuck process and a goroutine dump of the runtime.",
			"Kill the stuck runc of that container; the lock is freed and the node recovers at once.",
			"Kill that one containerd-shim; its pod is lost, nothing else. Never kill a conmon: its container would run on unwatched; crictl stop it.",
			"Delete the pod. A Deployment's replacement can run elsewhere; that of a StatefulSet or DaemonSet waits for it.",
			"Restart the runtime. If the process stays in D state, look after look: reboot, nothing else ends it.",
			"If a dead NFS or CSI mount is behind it, bring the server back; do not restart the kubelet first.",
		},
		Mistaken: "RuntimeHung: most or all objects hang. ListHang: a list hangs as well. RelistOverloaded: no call hangs, there are too many. " +
			"docker ps and crictl ps look perfectly well here: they do not inspect.",
		Sources: []string{
			"kubernetes/kubernetes#94829, #97362 (one hung container, 4m relists), #45419",
			"moby/moby#40817 (killing the stuck runc restores the node)",
			"containerd/containerd#8167 (PodSandboxStatus asks the shim before containerd 2)",
			"kubelet: pkg/kubelet/pleg/generic.go (serial inspection)",
		},
		recognise: recogniseInspectHang,
	}
}

func recogniseInspectHang(f *Facts) *Cause {
	if !f.connected() || f.wholeHang() != hangNone || f.stalls() || len(f.hungLists()) > 0 {
		return nil
	}
	if hungs := f.inspectionsThat(isHung); len(hungs) > 0 {
		return f.hungObjects(hungs)
	}
	if bad := f.inspectionsThat(isFailed); len(bad) > 0 {
		return f.failingObjects(bad)
	}
	return f.slowObject()
}

// hungObjects is the cause proper: status calls that missed their deadline.
func (f *Facts) hungObjects(hungs []plegbench.Inspection) *Cause {
	main, rest := mainCulprit(hungs)
	all := len(f.inspections())
	var e Evidence
	f.addHungObjects(&e, main, rest)
	addf(&e.For, "%s of %s status calls hung, in %s", units.Number(len(hungs)), units.Number(all), units.Count(podsOf(hungs), "pod"))
	f.addCalls(&e.For, isAlive, rpcSandboxes, rpcContainers)
	e.For = append(e.For, f.relistArithmetic(podsOf(hungs)))
	f.processEvidence(&e, main.ID, main.SandboxID)
	if p50, ok := f.statusMedian(); ok && f.Limits.SlowStatus > 0 && p50 >= f.Limits.SlowStatus {
		addf(&e.Against, "the other status calls take %s in the median: these may be the slowest of a slow runtime", units.Duration(p50))
	}
	if f.rpc(rpcImages).Outcome == hung && !f.imagesHold() {
		addf(&e.Against, "ListImages hangs too: the image store's lock may hold both")
	}
	f.missingHost(&e)
	f.missingKubelet(&e)
	f.missingPatience(&e)
	f.missingDeadline(&e)
	f.missingSweep(&e)
	f.missingJournal(&e)
	named := f.hearObject(&e, plegObjects(append([]plegbench.Inspection{main}, rest...))...)
	pleg := f.hearPLEG(&e)
	c := newCause(codeInspectHang, Critical, raised(f.patientStep(Certain), named || pleg), f.hungObjectsSummary(main, rest), e)
	s := f.subjectOf(main)
	c.Subject, c.Related = &s, f.related(rest)
	c.NextSteps = f.stepsWhenInspectHangs(main, rest)
	return c
}

// hungObjectsSummary names the objects and says no more of the others than was seen.
func (f *Facts) hungObjectsSummary(main plegbench.Inspection, rest []plegbench.Inspection) string {
	all, hungs := len(f.inspections()), len(rest)+1
	within := ""
	if f.impatient() {
		within = " within " + units.Duration(f.rpcTimeout())
	}
	others := ""
	if len(rest) > 0 {
		others = " and " + units.Count(len(rest), "other object")
	}
	pods := podsOf(append([]plegbench.Inspection{main}, rest...))
	switch {
	case hungs == all && all == 1:
		return fmt.Sprintf("the status of %s does not come%s; no other was asked", label(main), within)
	case f.statusesAnswered() == 0:
		return fmt.Sprintf("no status call is answered%s: %s of %s hang, the first that of %s; the lists answer", within, units.Number(hungs), units.Number(all), label(main))
	case pods > 1 && !slices.ContainsFunc(f.inspections(), func(i plegbench.Inspection) bool { return i.Kind == main.Kind && isAnswered(i) }):
		return fmt.Sprintf("no %s call is answered%s: %s of %s status calls hang, the first that of %s; the lists answer", or(main.Call.Method, "such"),
			within, units.Number(hungs), units.Number(all), label(main))
	case pods > 1 && float64(hungs) >= mostOfStatuses*float64(all):
		return fmt.Sprintf("%s of %s status calls do not come%s, the first that of %s; the lists answer", units.Number(hungs), units.Number(all), within, label(main))
	case f.rpc(rpcStatus).Outcome.alive() && f.rpc(rpcImages).Outcome.alive() && f.rpc(rpcImageFs).Outcome.alive():
		return fmt.Sprintf("the status of %s%s does not come%s; everything else answers", label(main), others, within)
	}
	return fmt.Sprintf("the status of %s%s does not come%s; that of others does", label(main), others, within)
}

// failingObjects reports status calls that come back with an error. They cost a relist no time, but the kubelet keeps
// such a pod's events back exactly as with a hung one.
func (f *Facts) failingObjects(bad []plegbench.Inspection) *Cause {
	main, rest := mainCulprit(bad)
	var e Evidence
	addf(&e.For, "%s of %s: %s: %s", main.Call.Method, label(main), clean(string(main.Call.Code)), clean(main.Call.Err))
	addf(&e.For, "%s of %s status calls failed; the kubelet keeps the events of these pods back and tries again in each relist",
		units.Number(len(bad)), units.Number(len(f.inspections())))
	addf(&e.Against, "the calls are answered: a relist does not wait for them")
	f.missingHost(&e)
	f.missingSweep(&e)
	c := newCause(codeInspectHang, Warning, Strong, fmt.Sprintf("the status of %s comes back with an error", label(main)), e)
	s := f.subjectOf(main)
	c.Subject, c.Related = &s, f.related(rest)
	c.NextSteps = f.stepsWhenInspectAnswers(main)
	return c
}

// slowObject reports an object whose status is far slower than the others': what is about to hang often looks so.
func (f *Facts) slowObject() *Cause {
	limit := f.Limits.SlowStatus
	p50, ok := f.statusMedian()
	if limit <= 0 || !ok || p50 >= limit/4 {
		return nil
	}
	slow := f.inspectionsThat(func(i plegbench.Inspection) bool { return i.Call.OK() && i.Call.Elapsed >= limit })
	if len(slow) == 0 || podsOf(slow) > manyOfStatuses {
		return nil
	}
	slices.SortStableFunc(slow, func(a, b plegbench.Inspection) int { return int((b.Call.Elapsed - a.Call.Elapsed) / time.Millisecond) })
	main, rest := slow[0], slow[1:]
	var e Evidence
	addf(&e.For, "%s of %s took %s; the median is %s", main.Call.Method, label(main), units.Duration(main.Call.Elapsed), units.Duration(p50))
	if len(rest) > 0 {
		addf(&e.For, "%s took longer than %s as well", units.Count(len(rest), "other status call"), units.Duration(limit))
	}
	addf(&e.Against, "it does answer")
	f.processEvidence(&e, main.ID, main.SandboxID)
	f.missingHost(&e)
	f.missingSweep(&e)
	c := newCause(codeInspectHang, Warning, Strong, fmt.Sprintf("the status of %s takes %s, that of others %s", label(main),
		units.Duration(main.Call.Elapsed), units.Duration(p50)), e)
	s := f.subjectOf(main)
	c.Subject, c.Related = &s, f.related(rest)
	c.NextSteps = f.stepsWhenInspectAnswers(main)
	return c
}

func (f *Facts) stepsWhenInspectHangs(main plegbench.Inspection, rest []plegbench.Inspection) []NextStep {
	var s steps
	f.addCapture(&s)
	f.addInspect(&s, main, "Ask once more for this object alone: does it still hang?")
	if f.isConsequence(codeInspectHang) {
		f.addLooks(&s, main)
		return s.done()
	}
	f.addProcesses(&s, main)
	f.addDeletePod(&s, main)
	for _, i := range rest[:min(len(rest), 2)] {
		f.addProcesses(&s, i)
	}
	f.addRestart(&s)
	blocked := slices.DeleteFunc(f.processesOf(main.ID, main.SandboxID), func(p host.Process) bool { return !isUninterruptible(&p) })
	if slices.ContainsFunc(blocked, func(p host.Process) bool { return p.Lasting }) {
		addNode(&s, "Its process was in uninterruptible sleep in two looks: if what it waits for does not come back, only a reboot ends it.")
	} else if len(blocked) > 0 {
		addLookAgain(&s, blocked[0])
	}
	return s.done()
}

// stepsWhenInspectAnswers only looks: an object that is slow or fails holds nobody up, so nothing is killed for it.
func (f *Facts) stepsWhenInspectAnswers(main plegbench.Inspection) []NextStep {
	var s steps
	f.addInspect(&s, main, "Ask once more for this object alone: what does it say, and how long does it take?")
	f.addLooks(&s, main)
	return s.done()
}

// addInspect adds one more question for an object.
func (f *Facts) addInspect(s *steps, i plegbench.Inspection, why string) {
	if !safe(i.ID) {
		return
	}
	command := "inspect -q "
	if i.Kind == kindSandbox {
		command = "inspectp -q "
	}
	s.add(TouchesNothing, f.crictlCommand(command+i.ID), why)
}

// addLooks adds where the processes of an object wait, and what the runtime's log says.
func (f *Facts) addLooks(s *steps, i plegbench.Inspection) {
	for _, p := range f.processesOf(i.ID, i.SandboxID) {
		if p.PID > 1 {
			addStack(s, p, label(i))
		}
	}
	f.addService(s)
}
