package checks

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kdiag/kdiag/journal"
)

// taskWithPID finds a task and its pid as the kernel and kdiag write them: runc:4711, runc (pid 4711), runc[4711].
var taskWithPID = regexp.MustCompile(`^(.+?)(?::|\s*\[|\s*\(pid[ :]*|\s+pid[ :=]*)(\d{1,10})[\])]?$`)

// A task is a process as the journal names it: by the 15 bytes that the kernel keeps of its name, and perhaps by its pid.
type task struct {
	Name string
	PID  int // 0 when not known
	// InPod says that its control group is of a pod: docker in docker, or a cluster in a cluster.
	InPod bool
}

// taskIn reads a task out of a subject of the journal.
func taskIn(subject string) task {
	s := strings.TrimSpace(strings.TrimPrefix(subject, "Process "))
	if m := taskWithPID.FindStringSubmatch(s); m != nil {
		pid, _ := strconv.Atoi(m[2])
		return task{Name: strings.TrimSpace(m[1]), PID: pid}
	}
	if pid, err := strconv.Atoi(s); err == nil {
		return task{PID: pid}
	}
	return task{Name: s}
}

// label names a task.
func (t task) label() string {
	switch {
	case t.Name == "":
		return "pid " + strconv.Itoa(t.PID)
	case t.PID == 0:
		return clean(t.Name)
	}
	return clean(t.Name) + " (pid " + strconv.Itoa(t.PID) + ")"
}

// A role is what a task or unit is to the node.
type role = journal.Role

const (
	roleOther   = journal.RoleOther
	roleRuntime = journal.RoleRuntime
	roleShim    = journal.RoleShim
	roleOCI     = journal.RoleOCI
	roleKubelet = journal.RoleKubelet
)

// role tells tasks apart that the node cannot do without. A task called systemd may be any user's, and is none of them; nor is a daemon in a
// pod. A shim in a pod is the node's still: CRI-O puts conmon there.
func (t task) role() role {
	r := journal.TaskRole(t.Name)
	if r == journal.RoleInit || t.InPod && (r == roleRuntime || r == roleKubelet) {
		return roleOther
	}
	return r
}

// unitRole tells whose a systemd unit is, by its name or, where systemd logs only that, by its description.
func unitRole(name string) role { return journal.UnitRole(name) }

// subjectsOf returns the objects that records of a signature name, with those that only the timeline names.
func (f *Facts) subjectsOf(code string) []journal.SubjectCount {
	var out []journal.SubjectCount
	if c := f.logged(code); c != nil {
		out = slices.Clone(c.Subjects)
	}
	for _, e := range f.eventsOf(code) {
		if e.Subject == "" || slices.ContainsFunc(out, func(s journal.SubjectCount) bool { return s.ID == e.Subject }) {
			continue
		}
		s := journal.SubjectCount{ID: e.Subject, First: e.At, Last: new(until(e))}
		for _, other := range f.eventsOf(code) {
			if other.Subject == e.Subject {
				s.Count += max(other.Count, 1)
				s.Last = new(until(other))
			}
		}
		out = append(out, s)
	}
	return out
}

// unitsOf returns what records of a signature say of units of a role.
func (f *Facts) unitsOf(code string, want role) []journal.SubjectCount {
	return slices.DeleteFunc(f.subjectsOf(code), func(s journal.SubjectCount) bool { return unitRole(s.ID) != want })
}

// taskOf reads the task out of what records of a signature name. Counts name a process by its pid and the timeline by its
// name: the two are of one process when they begin with the same record.
func (f *Facts) taskOf(code string, s journal.SubjectCount) task {
	t := taskIn(s.ID)
	t.InPod = s.InPod
	if s.Name != "" {
		t.Name = s.Name
	}
	if t.Name != "" || s.First == nil {
		return t
	}
	for _, e := range f.eventsOf(code) {
		if e.At.Equal(*s.First) && taskIn(e.Subject).Name != "" {
			t.Name = taskIn(e.Subject).Name
			break
		}
	}
	return t
}

// kubeletUnit is the unit of the kubelet, safe to paste: as systemd has it, else the usual one beside this runtime.
func (f *Facts) kubeletUnit() string {
	if u := f.kubeletUnitSeen(); u != nil && safe(u.Name) {
		return strings.TrimSuffix(u.Name, ".service")
	}
	if f.restartsKubelet() && f.unit() != "" {
		return f.unit()
	}
	if strings.Contains(f.Runtime.Endpoint, "microk8s") {
		return "snap.microk8s.daemon-kubelite"
	}
	return "kubelet"
}

// kubeletLog is the command that prints what the kubelet has logged in the window.
func (f *Facts) kubeletLog() string {
	var units []string
	for _, u := range strings.Fields(f.kubeletUnit()) {
		units = append(units, "-u "+u)
	}
	return "journalctl --no-pager " + strings.Join(units, " ") + " --since -15min"
}

// kubeletSubject names the kubelet as a culprit.
func (f *Facts) kubeletSubject() *Subject {
	s := &Subject{Kind: "Unit", Name: f.kubeletUnit() + ".service"}
	if strings.ContainsAny(s.Name, "' ") {
		s.Name = "kubelet.service"
	}
	for _, p := range f.Processes {
		if f.Kubelet != nil && p.PID == f.Kubelet.PID {
			s.Processes = []Process{f.processOf(p)}
		}
	}
	if f.lacksSystemd() {
		s.Kind, s.Name = "Process", "kubelet"
		if f.Kubelet != nil {
			s.ID, s.Name = strconv.Itoa(f.Kubelet.PID), clean(f.Kubelet.Name)
		}
	}
	return s
}
