package checks

import (
	"fmt"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/plegbench"
)

func listHang() Definition {
	return Definition{
		Code:  codeListHang,
		Title: "one list hangs while the other answers",
		Means: "ListContainers takes the status lock of every container in turn. In containerd UpdateContainerResources holds that lock while it waits for " +
			"the container's shim, and so does the handling of an exit while it writes to disk. One stuck shim, runc update or unmount " +
			"therefore blocks the list for everybody, while ListPodSandbox, Version and Status answer at once.\n\n" +
			"A relist needs both lists. It fails after two minutes, PLEG's clock stands still, and after 3m the node is NotReady with \"PLEG is not " +
			"healthy\" alone: \"container runtime is down\" does not appear, because Status is fine. The kubelet's housekeeping and garbage collection hang too.",
		Confirm: []string{
			"crictl pods answers, crictl ps -a hangs.",
			"crictl inspect -q ID hangs for one id only: that container's lock is held. crictl ps -a --id ID is no test: containerd reads every status before it filters.",
			"ps -eo pid,etime,stat,args | grep 'runc.*update': an update at work for more than ten seconds.",
			"A goroutine dump of containerd: many in ListContainers behind one RWMutex, one holder in UpdateContainerResources.",
		},
		Fix: []string{
			"Dump goroutines and the stack of the stuck process.",
			"Kill the stuck runc of that container: the update fails, the lock is freed, the list answers at once.",
			"Kill that container's containerd-shim, if it is the shim that does not answer; its pod is lost. Never kill a conmon: crictl stop its container.",
			"Free what the shim waits for: a dead mount, a frozen cgroup, a saturated disk.",
			"Restart the runtime.",
		},
		Mistaken: "RuntimeHung: all RPCs hang. ListTooLarge: the list fails at once with ResourceExhausted. RuntimeSlow: the list comes, late. " +
			"The CPU manager, in-place resizing and NRI plugins send updates all the time and make this more likely.",
		Sources: []string{
			"containerd/containerd#9770, #10583, #12680 (status lock held by an update)",
			"containerd: internal/cri/store/container/status.go, internal/cri/server/container_update_resources.go",
		},
		RootOf:    []string{codeKubeletCrashLooping},
		recognise: recogniseListHang,
	}
}

// hungLists returns the lists that hang now, in the order in which a relist asks for them.
func (f *Facts) hungLists() []rpc {
	var lists []rpc
	for _, name := range []string{rpcSandboxes, rpcContainers} {
		if r := f.rpc(name); r.Outcome == hung {
			lists = append(lists, r)
		}
	}
	return lists
}

func recogniseListHang(f *Facts) *Cause {
	if !f.connected() || f.wholeHang() != hangNone {
		return nil
	}
	lists := f.hungLists()
	someAnswer := f.anyList() || f.rpc(rpcStatus).Outcome.alive() || f.sweepLine() != ""
	if len(lists) == 0 || !someAnswer {
		return nil
	}
	var e Evidence
	for _, r := range lists {
		e.For = append(e.For, callLine(r.last()))
	}
	f.addCalls(&e.For, isAlive, rpcSandboxes, rpcContainers, rpcVersion, rpcStatus)
	c := f.listHolder(lists, &e)
	c.NextSteps = f.stepsWhenListHangs()
	return c
}

// listHolder builds the cause, with the holder of the lock as subject where it was found.
func (f *Facts) listHolder(lists []rpc, e *Evidence) *Cause {
	name := lists[0].Name
	hungs := f.inspectionsThat(isHung)
	step := Strong
	summary := fmt.Sprintf("%s hangs while other calls answer: a lock on its way is held", name)
	if len(lists) == 2 {
		name, step = "both lists", Fair
		summary = "both lists hang while other calls answer: a lock on their way is held"
	}
	subject := &Subject{Kind: "RPC", Name: lists[0].Name}
	var others []Subject
	switch {
	case len(hungs) > 0:
		main, rest := mainCulprit(hungs)
		f.addHungObjects(e, main, rest)
		f.processEvidence(e, main.ID, main.SandboxID)
		if len(lists) == 1 && lists[0].Name == rpcContainers {
			step = Certain
		}
		s := f.subjectOf(main)
		subject, others = &s, f.related(rest)
		summary = fmt.Sprintf("%s %s for %s: its status lock is held (in containerd by UpdateContainerResources or exit handling)",
			name, verb(len(lists), "waits", "wait"), label(main))
	default:
		if old := f.oldProcesses(host.RoleOCI, longOCI); len(old) > 0 {
			addf(&e.For, "%s has been at work for %s (%s), on %s", processLabel(old[0]), units.Duration(f.age(old[0])), stateOf(old[0]), objectOf(old[0]))
			s := f.processSubject(old[0])
			subject = &s
			summary = fmt.Sprintf("%s %s, probably for %s, at work for %s", name, verb(len(lists), "waits", "wait"),
				processLabel(old[0]), units.Duration(f.age(old[0])))
		}
		f.missingHolder(e)
	}
	if f.impatient() {
		summary = fmt.Sprintf("%s %s not come within %s while other calls answer: a lock is held, or it is slow", name,
			verb(len(lists), "does", "do"), units.Duration(f.rpcTimeout()))
	}
	f.missingHost(e)
	f.missingPatience(e)
	f.missingDeadline(e)
	f.missingSweep(e)
	step = f.patientStep(step)
	agrees := f.hearLists(e)
	if len(hungs) > 0 {
		agrees = f.hearObject(e, plegObjects(hungs)...) || agrees
	}
	c := newCause(codeListHang, Critical, raised(step, agrees), summary, *e)
	c.Subject, c.Related = subject, others
	return c
}

// objectOf names what a process works on.
func objectOf(p host.Process) string {
	if p.ObjectID == "" {
		return "an object that is not known"
	}
	return shortID(p.ObjectID)
}

// missingHolder notes why nobody is named.
func (f *Facts) missingHolder(e *Evidence) {
	asked := 0
	for _, i := range f.inspections() {
		if i.Kind == kindContainer {
			asked++
		}
	}
	if asked == 0 {
		addf(&e.Missing, "which container holds the lock: without the list, and without ids from the host, none could be asked")
		return
	}
	addf(&e.Against, "the status of %s was asked and none hung: the holder is not among them", units.Count(asked, "container"))
}

// addHungObjects adds the hung status calls: the main one, how many more, and how the others did.
func (f *Facts) addHungObjects(e *Evidence, main plegbench.Inspection, rest []plegbench.Inspection) {
	line := fmt.Sprintf("%s of %s did not answer in %s", main.Call.Method, label(main), units.Duration(main.Call.Elapsed))
	if main.Call.Method == "" {
		line = fmt.Sprintf("the status of %s did not arrive in %s", label(main), units.Duration(main.Call.Elapsed))
	}
	if s := f.sweepLine(); s != "" {
		line += "; " + s
	}
	e.For = append(e.For, line)
	if len(rest) == 0 {
		return
	}
	var names []string
	for _, i := range rest[:min(len(rest), 3)] {
		names = append(names, label(i))
	}
	if more := len(rest) - len(names); more > 0 {
		names = append(names, units.Count(more, "other"))
	}
	addf(&e.For, "so did %s", units.List(names))
	if more := len(rest) - maxRelated; more > 0 {
		addf(&e.For, "%s hang beyond those listed as related", units.Number(more))
	}
}

func (f *Facts) stepsWhenListHangs() []NextStep {
	var s steps
	f.addCapture(&s)
	hungs := f.inspectionsThat(isHung)
	if len(hungs) > 0 {
		main, _ := mainCulprit(hungs)
		f.addProcesses(&s, main)
		f.addDeletePod(&s, main)
	} else if old := f.oldProcesses(host.RoleOCI, longOCI); len(old) > 0 {
		f.addKill(&s, old[0], objectOf(old[0])) // the oldest: the others may well wait behind it
	}
	if len(hungs) == 0 {
		s.add(TouchesNothing, "ps -eo pid,ppid,stat,wchan:32,etime,comm --sort=-etime | grep -E 'runc|crun'", "A create, start, kill, update or delete at work for more than ten seconds is the likely holder; an exec or run lives as long as what it runs.")
	}
	f.addRestart(&s)
	return s.done()
}
