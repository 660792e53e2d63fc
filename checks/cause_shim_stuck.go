package checks

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/crictl"
	"github.com/kdiag/kdiag/journal/signature"
)

// shimSettled is the age from which a shim and its sandbox must know of each other: the lists and the processes are not read at the
// same moment, and a sandbox takes seconds to set up.
const shimSettled = 2 * time.Minute

func shimStuck() Definition {
	return Definition{
		Code:  codeShimStuck,
		Title: "a shim is stopped, left over, or gone",
		Means: "Between the runtime and the processes of a pod stands its shim (containerd-shim; CRI-O has one conmon for each container). It starts, stops and executes, and it reports exits. One that is stopped by a signal does " +
			"nothing of this: exec probes and stops of that pod run into their deadlines, and where the runtime asks it for the status, the status hangs and the relist of the kubelet with it.\n\n" +
			"One that is left over serves a pod that the runtime has forgotten: the kubelet cannot remove what it does not see. A sandbox that is ready for the runtime while its shim is gone is the reverse: the pod is dead, and " +
			"nobody is told.",
		Confirm: []string{
			"ps -o pid,stat,wchan:32,etime,args -C containerd-shim-runc-v2: T is stopped. The id behind -id is the sandbox.",
			"crictl pods --id ID: does the runtime know the sandbox? ctr -n k8s.io tasks ls shows what containerd itself sees.",
			"crictl inspectp ID, without -q, asks the shim.",
		},
		Fix: []string{
			"Stopped: kill -CONT PID, then find out who sent SIGSTOP. Nothing is lost.",
			"Left over: look at its children first; then end the shim, which ends what it still runs.",
			"Gone: delete the pod; the kubelet makes a new one.",
			"The runtime and its shims disagree about several pods: restart the runtime, which reads its shims anew.",
		},
		Mistaken: "TaskStuck: there the shim is in uninterruptible sleep, and no signal helps. Shims of docker, nerdctl or ctr live in other namespaces of containerd, and conmon of podman is no CRI-O's: the kubelet's runtime does not list them, and rightly.",
		Sources: []string{
			"containerd: core/runtime/v2 (shims, reconnecting after a restart), containerd/containerd#3529 (shim deadlock), #8167 (status asks the shim)",
			"moby/moby#36010, #40817 (shims that hang on a runc)",
		},
		RootOf:    []string{codeInspectHang, codeListHang},
		recognise: recogniseShimStuck,
	}
}

// stoppedShims returns the shims that a signal or a tracer stopped, but for those of another runtime.
func (f *Facts) stoppedShims() []host.Process {
	return slices.DeleteFunc(f.everyStoppedShim(), f.isForeignShim)
}

// everyStoppedShim returns those of other runtimes as well.
func (f *Facts) everyStoppedShim() []host.Process {
	n := f.seen()
	var out []host.Process
	for _, p := range slices.Concat(n.Tasks.Value.Stopped, f.processes(host.RoleShim)) {
		known := slices.ContainsFunc(out, func(o host.Process) bool { return o.PID == p.PID })
		if n.Tasks.OK && p.Role == host.RoleShim && isStopped(&p) && !known {
			out = append(out, p)
		}
	}
	return out
}

// isForeignShim reports whether a shim serves what the runtime that was asked does not list, without anything that names it as trouble.
func (f *Facts) isForeignShim(p host.Process) bool {
	return p.Role == host.RoleShim && p.ObjectID != "" && f.age(p) >= shimSettled && f.listsCompare() && !f.lists(p.ObjectID) && !f.troubles(p.ObjectID)
}

// listsCompare reports whether the lists are whole, and of the runtime that the shims of this host can be held against.
func (f *Facts) listsCompare() bool {
	if f.simulated() || f.HostMissing != "" || !f.connected() || f.otherEndpoint() {
		return false
	}
	m := f.Measurement
	return m.Sandboxes != nil && m.Containers != nil && m.Sandboxes.Complete && m.Containers.Complete && f.bothLists()
}

// lists reports whether the runtime lists a sandbox or container of an id.
func (f *Facts) lists(id string) bool {
	m := f.Measurement
	return m != nil && (m.Sandboxes != nil && slices.ContainsFunc(m.Sandboxes.Sandboxes, func(s crictl.PodSandbox) bool { return s.ID == id }) ||
		m.Containers != nil && slices.ContainsFunc(m.Containers.Containers, func(c crictl.Container) bool { return c.ID == id }))
}

// stuckShimIDs returns the ids that the shims serve of which ShimStuck speaks.
func (f *Facts) stuckShimIDs() []string {
	var ids []string
	for _, p := range f.stoppedShims() {
		if p.ObjectID != "" {
			ids = append(ids, p.ObjectID)
		}
	}
	return ids
}

// A shimGap is where the processes of the host and the lists of the runtime do not agree.
type shimGap struct {
	Orphans  []host.Process      // shims whose object the runtime does not list
	Shimless []crictl.PodSandbox // ready, and without a shim
}

// shimGap compares shims and lists. Both must be whole, and old enough to know of each other. CRI-O runs sandboxes without any
// process, and a shim of each container: there only shims of one object each are compared.
func (f *Facts) shimGap() (shimGap, bool) {
	var g shimGap
	m, shims := f.Measurement, f.processes(host.RoleShim)
	if !f.listsCompare() || len(shims) == 0 {
		return g, false
	}
	listed := map[string]bool{}
	for _, s := range m.Sandboxes.Sandboxes {
		listed[s.ID] = true
	}
	for _, c := range m.Containers.Containers {
		listed[c.ID] = true
	}
	served, matches := map[string]bool{}, 0
	for _, p := range shims {
		served[p.ObjectID] = true
		switch {
		case listed[p.ObjectID]:
			matches++
		case p.ObjectID != "" && f.age(p) >= shimSettled:
			g.Orphans = append(g.Orphans, p)
		}
	}
	if matches == 0 {
		return g, len(g.Orphans) > 0
	}
	ready := 0
	for _, s := range m.Sandboxes.Sandboxes {
		if s.State != crictl.SandboxReady || f.Now.Sub(time.Unix(0, s.CreatedAt)) < shimSettled {
			continue
		}
		ready++
		if !served[s.ID] {
			g.Shimless = append(g.Shimless, s)
		}
	}
	if 2*len(g.Shimless) > ready || slices.ContainsFunc(shims, isConmon) {
		g.Shimless = nil // this runtime does not have a shim for each sandbox
	}
	return g, true
}

// troubles reports whether the kubelet's log or a status call names an object as one that does not obey. Without that, a shim
// that is not listed may be another tool's.
func (f *Facts) troubles(id string) bool {
	for _, code := range []string{signature.StopFailed, signature.RemoveFailed, signature.InspectFailed} {
		for _, s := range f.subjectsOf(code) {
			if (named{strings.TrimSpace(s.ID), s}).is(id) {
				return true
			}
		}
	}
	for _, i := range f.inspections() {
		if (i.ID == id || i.SandboxID == id) && (isHung(i) || isFailed(i)) {
			return true
		}
	}
	return false
}

// gapCulprits returns what the comparison finds and something else confirms.
func (f *Facts) gapCulprits() shimGap {
	g, _ := f.shimGap()
	g.Orphans = slices.DeleteFunc(g.Orphans, func(p host.Process) bool { return !f.troubles(p.ObjectID) })
	g.Shimless = slices.DeleteFunc(g.Shimless, func(s crictl.PodSandbox) bool { return !f.troubles(s.ID) })
	return g
}

func recogniseShimStuck(f *Facts) *Cause {
	if !f.seen().Tasks.OK {
		return nil // kdiag was not asked to look at the host
	}
	stopped, gap := f.stoppedShims(), f.gapCulprits()
	var e Evidence
	var summary string
	var subjects []Subject
	step := Strong
	for _, p := range stopped {
		addf(&e.For, "%s%s is %s: a signal or a tracer stopped it", processLabel(p), f.of(ownerOf(p)), stateOf(p))
		subjects = append(subjects, f.shimSubject(p))
		if f.lists(p.ObjectID) || f.troubles(p.ObjectID) {
			step = Certain
		}
	}
	if len(stopped) > 0 && step != Certain {
		addf(&e.Missing, "whether %s this runtime's: its lists, to compare with, do not tell", verb(len(stopped), "that shim is", "those shims are"))
	}
	for _, p := range gap.Orphans {
		addf(&e.For, "%s has been running for %s for %s, which the runtime does not list; calls about it fail", processLabel(p), units.Duration(f.age(p)), shortID(p.ObjectID))
		subjects = append(subjects, f.shimSubject(p))
	}
	for _, s := range gap.Shimless {
		o := host.Owner{ObjectID: s.ID}
		addf(&e.For, "the runtime calls the sandbox of %s ready, its shim is not among the processes, and calls about it fail", f.ownerLabel(o))
		b := f.owned(o)
		b.Kind, b.ID = kindSandbox, clean(s.ID)
		subjects = append(subjects, b)
	}
	switch {
	case len(stopped) > 0:
		summary = fmt.Sprintf("%s%s is stopped: nothing of that pod can be started, stopped or asked", processLabel(stopped[0]), f.of(ownerOf(stopped[0])))
	case len(gap.Orphans) > 0:
		summary = fmt.Sprintf("%s serves %s, which the runtime has forgotten", processLabel(gap.Orphans[0]), shortID(gap.Orphans[0].ObjectID))
	case len(gap.Shimless) > 0:
		summary = fmt.Sprintf("the shim of %s is gone, and the runtime calls its sandbox ready", f.ownerLabel(host.Owner{ObjectID: gap.Shimless[0].ID}))
	default:
		return nil
	}
	if n := len(subjects) - 1; n > 0 {
		summary += fmt.Sprintf("; %s more", units.Count(n, "shim"))
	}
	e.For = head(e.For, maxRelated)
	if len(stopped) == 0 {
		addf(&e.Missing, "what the shims' own namespace says (ctr -n k8s.io tasks ls): kdiag compared processes and lists")
	}
	c := newCause(codeShimStuck, Warning, step, summary, e)
	c.Subject, c.Related = &subjects[0], subjects[1:min(len(subjects), maxRelated+1)]
	c.NextSteps = f.stepsWhenShimStuck(stopped, gap)
	return c
}

// ownerOf is the owner of one of the runtime's processes.
func ownerOf(p host.Process) host.Owner { return host.Owner{Role: p.Role, ObjectID: p.ObjectID} }

// shimSubject names a shim as a culprit, with the pod that it serves where that is known.
func (f *Facts) shimSubject(p host.Process) Subject {
	s := f.owned(ownerOf(p))
	s.Kind, s.ID, s.Name, s.Processes = "Process", fmt.Sprint(p.PID), clean(p.Name), []Process{f.processOf(p)}
	return s
}

func (f *Facts) stepsWhenShimStuck(stopped []host.Process, gap shimGap) []NextStep {
	var s steps
	for _, p := range stopped[:min(len(stopped), topHeaps)] {
		if p.PID > 1 {
			s.add(TouchesNothing, fmt.Sprintf("grep -E 'State|TracerPid' /proc/%d/status", p.PID), "Is it still stopped, and does a debugger hold it?")
			s.add(TouchesProcess, fmt.Sprintf("kill -CONT %d", p.PID), processLabel(p)+" goes on; nothing is lost.")
		}
	}
	for _, p := range gap.Orphans[:min(len(gap.Orphans), topHeaps)] {
		if p.PID > 1 {
			s.add(TouchesNothing, fmt.Sprintf("ps -o pid,stat,etime,comm --ppid %d", p.PID), "What does it still run? Shims of docker or nerdctl are not listed by the kubelet's runtime, and are well.")
			s.add(TouchesPod, fmt.Sprintf("kill -KILL %d", p.PID), "Ends what is left over, with all that it still runs. Only when nothing of it is needed.")
		}
	}
	for _, b := range gap.Shimless[:min(len(gap.Shimless), topHeaps)] {
		if safe(b.ID) {
			s.add(TouchesNothing, f.crictlCommand("inspectp "+b.ID), "Asks the shim as well: ttrpc: closed, or no answer, says that it is gone.")
		}
		if b.Pod != nil && safe(b.Pod.Namespace, b.Pod.Name) {
			s.add(TouchesPod, fmt.Sprintf("kubectl delete pod -n %s %s --wait=false", b.Pod.Namespace, b.Pod.Name), "The pod is dead already; this makes room for a new one.")
		}
	}
	if len(stopped) == 0 {
		f.addService(&s)
		f.addRestart(&s)
	}
	return s.done()
}

// shimStuckExplains reports whether a shim is why calls hang: those about its own pod.
func shimStuckExplains(f *Facts, consequence string) bool {
	if consequence != codeInspectHang && consequence != codeListHang {
		return false
	}
	for _, p := range f.stoppedShims() {
		if _, ok := f.hungObjectOf(ownerOf(p)); ok {
			return true
		}
	}
	return consequence == codeListHang && len(f.stoppedShims()) > 0 && len(f.inspectionsThat(isHung)) == 0
}
