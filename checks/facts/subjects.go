package facts

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/plegbench"
)

// MostNamed is how many of many a report names.
const MostNamed = 3

// The kinds of objects that a runtime holds.
const (
	KindSandbox   = "PodSandbox"
	KindContainer = "Container"
)

// MaxRelated is the most further culprits that a cause lists; the evidence counts the others.
const MaxRelated = 20

// LongOCI is the age from which a runc at work is stuck: it creates, starts or deletes within a second or two.
const LongOCI = 10 * time.Second

// Label names what an inspection was about: web/checkout-1 (app), sandbox of web/checkout-1, container 3f1c9a.
func Label(i plegbench.Inspection) string {
	return LabelOf(i.Kind, i.ID, i.Pod.Namespace, i.Pod.Name, i.Name)
}

// LabelOf names a sandbox or container as well as it is known.
func LabelOf(kind, id, namespace, pod, name string) string {
	if pod == "" {
		what := "container "
		if kind == KindSandbox {
			what = "sandbox "
		}
		return what + ShortID(id)
	}
	where := Clean(pod)
	if namespace != "" {
		where = Clean(namespace) + "/" + where
	}
	switch {
	case kind == KindSandbox:
		return "sandbox of " + where
	case name != "":
		return where + " (" + Clean(name) + ")"
	}
	return where + " (" + ShortID(id) + ")"
}

// ShortID is the head of an id, as crictl prints it.
func ShortID(id string) string {
	id = Clean(id)
	if len(id) > 13 {
		return id[:13]
	}
	return id
}

// SubjectOf names the object of an inspection as a culprit, with its processes on this host.
func SubjectOf(f *Facts, i plegbench.Inspection) checks.Subject {
	s := checks.Subject{
		Kind: i.Kind, ID: Clean(i.ID), Name: Clean(i.Name),
		Namespace: Clean(i.Pod.Namespace), Pod: Clean(i.Pod.Name), PodUID: Clean(i.Pod.UID),
	}
	for _, p := range ProcessesServing(f, i.ID, i.SandboxID) {
		s.Processes = append(s.Processes, ProcessOf(f, p))
	}
	return s
}

// ProcessesServing returns the host's processes that serve one of the ids, OCI runtimes first, then by pid.
func ProcessesServing(f *Facts, ids ...string) []host.Process {
	found := filter(f.Processes,
		func(p host.Process) bool { return p.ObjectID != "" && slices.Contains(ids, p.ObjectID) })
	slices.SortStableFunc(found, func(a, b host.Process) int {
		return cmp.Or(first(a.Role == host.RoleOCI, b.Role == host.RoleOCI), a.PID-b.PID)
	})
	return found
}

// MainCulprit picks whom to name among hung inspections: the first, and the sandbox in place of its container where
// both hang, since what holds a sandbox holds its containers too. The others follow in their order.
func MainCulprit(hungs []plegbench.Inspection) (plegbench.Inspection, []plegbench.Inspection) {
	main := 0
	if hungs[0].Kind == KindContainer {
		main = max(0, slices.IndexFunc(hungs, func(i plegbench.Inspection) bool {
			return i.Kind == KindSandbox && i.ID == hungs[0].SandboxID
		}))
	}
	return hungs[main], slices.Delete(slices.Clone(hungs), main, main+1)
}

// Related lists further culprits, at most MaxRelated.
func Related(f *Facts, rest []plegbench.Inspection) []checks.Subject {
	var subjects []checks.Subject
	for _, i := range rest[:min(len(rest), MaxRelated)] {
		subjects = append(subjects, SubjectOf(f, i))
	}
	return subjects
}

// IsConmon reports whether a process watches one container for CRI-O. It is no shim of a pod: the container outlives
// it, unsupervised.
func IsConmon(p host.Process) bool { return strings.HasPrefix(p.Name, "conmon") }

// ProcessLabel names a process: runc (pid 4720).
func ProcessLabel(p host.Process) string { return fmt.Sprintf("%s (pid %d)", Clean(p.Name), p.PID) }

// StateOf is a process's state and where it waits.
func StateOf(p host.Process) string {
	s := Clean(p.StateWord())
	if p.Wchan != "" && p.Wchan != "0" {
		s += " in " + Clean(p.Wchan)
	}
	if p.Lasting && IsUninterruptible(&p) {
		s += " in two looks"
	}
	return s
}

// OldProcesses returns the processes of a role that have been running for at least d, the oldest first. Of a process
// and what it started the first is meant; a zombie no longer runs.
func OldProcesses(f *Facts, role host.Role, d time.Duration) []host.Process {
	old := filter(f.Processes, func(p host.Process) bool {
		return p.Role == role && p.State != 'Z' && AgeOf(f, p) >= d &&
			!slices.ContainsFunc(f.Processes, func(o host.Process) bool { return o.PID == p.PPID && o.Role == role })
	})
	slices.SortStableFunc(old, func(a, b host.Process) int { return a.Started.Compare(b.Started) })
	return old
}

// ProcessSubject names a process as a culprit.
func ProcessSubject(f *Facts, p host.Process) checks.Subject {
	return checks.Subject{
		Kind: "Process", ID: fmt.Sprint(p.PID), Name: Clean(p.Name),
		Processes: []checks.Process{ProcessOf(f, p)},
	}
}
