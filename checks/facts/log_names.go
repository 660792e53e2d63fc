package facts

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

// taskWithPID finds a task and its pid as the kernel and kdiag write them: runc:4711, runc (pid 4711), runc[4711].
var taskWithPID = regexp.MustCompile(`^(.+?)(?::|\s*\[|\s*\(pid[ :]*|\s+pid[ :=]*)(\d{1,10})[\])]?$`)

// A task is a process as the journal names it: by the 15 bytes that the kernel keeps of its name, and perhaps by its pid.
type LogTask struct {
	Name string
	PID  int // 0 when not known
	// InPod says that its control group is of a pod: docker in docker, or a cluster in a cluster.
	InPod bool
}

// TaskIn reads a task out of a subject of the journal.
func TaskIn(subject string) LogTask {
	s := strings.TrimSpace(strings.TrimPrefix(subject, "Process "))
	if m := taskWithPID.FindStringSubmatch(s); m != nil {
		pid, _ := strconv.Atoi(m[2])
		return LogTask{Name: strings.TrimSpace(m[1]), PID: pid}
	}
	if pid, err := strconv.Atoi(s); err == nil {
		return LogTask{PID: pid}
	}
	return LogTask{Name: s}
}

// Label names a task.
func (t LogTask) Label() string {
	switch {
	case t.Name == "":
		return "pid " + strconv.Itoa(t.PID)
	case t.PID == 0:
		return Clean(t.Name)
	}
	return Clean(t.Name) + " (pid " + strconv.Itoa(t.PID) + ")"
}

// A role is what a task or unit is to the node.
type Role = journal.Role

const (
	RoleOther   = journal.RoleOther
	RoleRuntime = journal.RoleRuntime
	RoleShim    = journal.RoleShim
	RoleOCI     = journal.RoleOCI
	RoleKubelet = journal.RoleKubelet
)

// Role tells tasks apart that the node cannot do without. A task called systemd may be any user's, and is none of them; nor is a daemon in a
// pod. A shim in a pod is the node's still: CRI-O puts conmon there.
func (t LogTask) Role() Role {
	r := journal.TaskRole(t.Name)
	if r == journal.RoleInit || t.InPod && (r == RoleRuntime || r == RoleKubelet) {
		return RoleOther
	}
	return r
}

// UnitRole tells whose a systemd unit is, by its name or, where systemd logs only that, by its description.
func UnitRole(name string) Role { return journal.UnitRole(name) }

// subjectsOf returns the objects that records of a signature name, with those that only the timeline names.
func subjectsOf(f *Facts, code string) []journal.SubjectCount {
	var out []journal.SubjectCount
	if c := Logged(f, code); c != nil {
		out = slices.Clone(c.Subjects)
	}
	for _, e := range eventsOf(f, code) {
		if e.Subject == "" || slices.ContainsFunc(out, func(s journal.SubjectCount) bool { return s.ID == e.Subject }) {
			continue
		}
		s := journal.SubjectCount{ID: e.Subject, First: e.At, Last: new(until(e))}
		for _, other := range eventsOf(f, code) {
			if other.Subject == e.Subject {
				s.Count += max(other.Count, 1)
				s.Last = new(until(other))
			}
		}
		out = append(out, s)
	}
	return out
}

// UnitsOf returns what records of a signature say of units of a role.
func UnitsOf(f *Facts, code string, want Role) []journal.SubjectCount {
	return slices.DeleteFunc(subjectsOf(f, code), func(s journal.SubjectCount) bool { return UnitRole(s.ID) != want })
}

// taskOf reads the task out of what records of a signature name. Counts name a process by its pid and the timeline by its
// name: the two are of one process when they begin with the same record.
func taskOf(f *Facts, code string, s journal.SubjectCount) LogTask {
	t := TaskIn(s.ID)
	t.InPod = s.InPod
	if s.Name != "" {
		t.Name = s.Name
	}
	if t.Name != "" || s.First == nil {
		return t
	}
	for _, e := range eventsOf(f, code) {
		if e.At.Equal(*s.First) && TaskIn(e.Subject).Name != "" {
			t.Name = TaskIn(e.Subject).Name
			break
		}
	}
	return t
}

// kubeletUnit is the unit of the kubelet, safe to paste: as systemd has it, else the usual one beside this runtime.
func kubeletUnit(f *Facts) string {
	if u := f.Agent.Unit; u != nil && Safe(u.Name) {
		return strings.TrimSuffix(u.Name, ".service")
	}
	if f.Target.RestartsKubelet && f.Target.Unit != "" {
		return f.Target.Unit
	}
	if strings.Contains(f.Runtime.Endpoint, "microk8s") {
		return "snap.microk8s.daemon-kubelite"
	}
	return "kubelet"
}

// KubeletLog is the command that prints what the kubelet has logged in the window.
func KubeletLog(f *Facts) string {
	var units []string
	for _, u := range strings.Fields(f.Target.KubeletUnit) {
		units = append(units, "-u "+u)
	}
	return "journalctl --no-pager " + strings.Join(units, " ") + " --since -15min"
}

// KubeletSubject names the kubelet as a culprit.
func KubeletSubject(f *Facts) *checks.Subject {
	s := &checks.Subject{Kind: "Unit", Name: f.Target.KubeletUnit + ".service"}
	if strings.ContainsAny(s.Name, "' ") {
		s.Name = "kubelet.service"
	}
	for _, p := range f.Processes {
		if f.Kubelet != nil && p.PID == f.Kubelet.PID {
			s.Processes = []checks.Process{ProcessOf(f, p)}
		}
	}
	if f.Target.NoSystemd {
		s.Kind, s.Name = "Process", "kubelet"
		if f.Kubelet != nil {
			s.ID, s.Name = strconv.Itoa(f.Kubelet.PID), Clean(f.Kubelet.Name)
		}
	}
	return s
}

// A named object is one that the kubelet's failing status calls name.
type named struct {
	ID string
	journal.SubjectCount
}

// namedByKubelet returns the objects whose status the kubelet has asked for in vain, as far as it still may: each relist
// tries again, and waits for each call.
func namedByKubelet(f *Facts) []named {
	var some []named
	for _, s := range subjectsOf(f, signature.InspectFailed) {
		if Fresh(f, s.Last, 2*f.Log.RetryPause) {
			some = append(some, named{strings.TrimSpace(s.ID), s})
		}
	}
	for _, e := range f.Log.Incidents {
		if !Fresh(f, e.End, 2*f.Log.RetryPause) {
			continue
		}
		for _, k := range e.Culprits { // counts name the first few objects, episodes more of them
			if k.Example == signature.InspectFailed && k.ID != "" && !slices.ContainsFunc(some, func(n named) bool { return n.Is(k.ID) }) {
				some = append(some, named{k.ID, journal.SubjectCount{Kind: k.Kind, ID: k.ID, Count: int64(k.Records)}})
			}
		}
	}
	return some
}

// Is reports whether two ids are of the same object. A log may hold the head of one only.
func (n named) Is(id string) bool {
	const head = 12
	if len(n.ID) < head || len(id) < head {
		return n.ID != "" && n.ID == id
	}
	return strings.HasPrefix(n.ID, id) || strings.HasPrefix(id, n.ID)
}
