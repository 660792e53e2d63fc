package checks

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/plegbench"
)

// The kinds of objects that a runtime holds.
const (
	kindSandbox   = "PodSandbox"
	kindContainer = "Container"
)

// maxRelated is the most further culprits that a cause lists; the evidence says how many more there are.
const maxRelated = 20

// longOCI is the age from which a runc at work is stuck: it creates, starts or deletes within a second or two.
const longOCI = 10 * time.Second

// label names what an inspection was about: web/checkout-1 (app), sandbox of web/checkout-1, container 3f1c9a.
func label(i plegbench.Inspection) string {
	return labelOf(i.Kind, i.ID, i.Pod.Namespace, i.Pod.Name, i.Name)
}

// labelOf names a sandbox or container as well as it is known.
func labelOf(kind, id, namespace, pod, name string) string {
	if pod == "" {
		what := "container "
		if kind == kindSandbox {
			what = "sandbox "
		}
		return what + shortID(id)
	}
	where := clean(pod)
	if namespace != "" {
		where = clean(namespace) + "/" + where
	}
	switch {
	case kind == kindSandbox:
		return "sandbox of " + where
	case name != "":
		return where + " (" + clean(name) + ")"
	}
	return where + " (" + shortID(id) + ")"
}

// shortID is the head of an id, as crictl prints it.
func shortID(id string) string {
	id = clean(id)
	if len(id) > 13 {
		return id[:13]
	}
	return id
}

// subjectOf names the object of an inspection as a culprit, with its processes on this host.
func (f *Facts) subjectOf(i plegbench.Inspection) Subject {
	s := Subject{
		Kind: i.Kind, ID: clean(i.ID), Name: clean(i.Name),
		Namespace: clean(i.Pod.Namespace), Pod: clean(i.Pod.Name), PodUID: clean(i.Pod.UID),
	}
	for _, p := range f.processesOf(i.ID, i.SandboxID) {
		s.Processes = append(s.Processes, f.processOf(p))
	}
	return s
}

// processesOf returns the host's processes that serve one of the ids, OCI runtimes first, then by pid.
func (f *Facts) processesOf(ids ...string) []host.Process {
	var found []host.Process
	for _, p := range f.Processes {
		if p.ObjectID != "" && slices.Contains(ids, p.ObjectID) {
			found = append(found, p)
		}
	}
	slices.SortStableFunc(found, func(a, b host.Process) int {
		if (a.Role == host.RoleOCI) != (b.Role == host.RoleOCI) {
			if a.Role == host.RoleOCI {
				return -1
			}
			return 1
		}
		return a.PID - b.PID
	})
	return found
}

// mainCulprit picks whom to name among hung inspections: the first, and the sandbox in place of its container where
// both hang, since what holds a sandbox holds its containers too. The others follow in their order.
func mainCulprit(hungs []plegbench.Inspection) (plegbench.Inspection, []plegbench.Inspection) {
	first := 0
	if hungs[0].Kind == kindContainer {
		for n, i := range hungs {
			if i.Kind == kindSandbox && i.ID == hungs[0].SandboxID {
				first = n
			}
		}
	}
	rest := slices.Clone(hungs)
	rest = slices.Delete(rest, first, first+1)
	return hungs[first], rest
}

// related lists further culprits, at most maxRelated.
func (f *Facts) related(rest []plegbench.Inspection) []Subject {
	var subjects []Subject
	for _, i := range rest[:min(len(rest), maxRelated)] {
		subjects = append(subjects, f.subjectOf(i))
	}
	return subjects
}

// processEvidence adds what is wrong with the processes of a culprit. That none was found says nothing: an exited
// container has none.
func (f *Facts) processEvidence(e *Evidence, ids ...string) {
	f.addBlocked(e, ids...)
	if f.HostMissing != "" {
		return
	}
	for _, p := range f.processesOf(ids...) {
		switch {
		case p.Role == host.RoleOCI && f.age(p) >= longOCI:
			e.For = append(e.For, fmt.Sprintf("%s has been at work on it for %s (%s)", processLabel(p), units.Duration(f.age(p)), stateOf(p)))
		case isStopped(&p), isUninterruptible(&p):
			e.For = append(e.For, fmt.Sprintf("%s, its %s, is in state %q", processLabel(p), p.Role, stateOf(p)))
		}
	}
}

// isConmon reports whether a process watches one container for CRI-O. It is no shim of a pod: the container outlives it,
// unsupervised.
func isConmon(p host.Process) bool { return strings.HasPrefix(p.Name, "conmon") }

// processLabel names a process: runc (pid 4720).
func processLabel(p host.Process) string { return fmt.Sprintf("%s (pid %d)", clean(p.Name), p.PID) }

// stateOf says a process's state and where it waits.
func stateOf(p host.Process) string {
	s := clean(p.StateWord())
	if p.Wchan != "" && p.Wchan != "0" {
		s += " in " + clean(p.Wchan)
	}
	if p.Lasting && isUninterruptible(&p) {
		s += " in two looks"
	}
	return s
}

// oldProcesses returns the processes of a role that have been running for at least d, the oldest first.
func (f *Facts) oldProcesses(role host.Role, d time.Duration) []host.Process {
	var old []host.Process
	for _, p := range f.processes(role) {
		if f.age(p) >= d {
			old = append(old, p)
		}
	}
	slices.SortStableFunc(old, func(a, b host.Process) int { return a.Started.Compare(b.Started) })
	return old
}

// processSubject names a process as a culprit.
func (f *Facts) processSubject(p host.Process) Subject {
	return Subject{Kind: "Process", ID: fmt.Sprint(p.PID), Name: clean(p.Name), Processes: []Process{f.processOf(p)}}
}
