package facts

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

// A LogTask is a process as the kernel's log names it: by the 15 bytes that the kernel keeps of its name, and perhaps
// by its pid.
type LogTask struct {
	Name  string
	PID   int  // 0 when not known
	InPod bool // its control group is of a pod: docker in docker, or a cluster in a cluster
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

// Role is what a task is to the node. A task called systemd may be any user's, and is none of
// them; nor is a daemon in a pod. A shim in a pod is the node's still: CRI-O puts conmon there.
func (t LogTask) Role() Role {
	r := journal.TaskRole(t.Name)
	if r == journal.RoleInit || t.InPod && (r == RoleRuntime || r == RoleKubelet) {
		return RoleOther
	}
	return r
}

// tasksOf returns the tasks that records of the signatures name, each once.
func tasksOf(f *Facts, codes ...string) []LogTask {
	var out []LogTask
	for _, code := range codes {
		for _, s := range subjectsOf(f, code) {
			t := LogTask{Name: s.Name, InPod: s.InPod}
			pid, err := strconv.Atoi(s.ID)
			if t.PID = pid; err != nil {
				t.Name = s.ID
			}
			if !slices.Contains(out, t) {
				out = append(out, t)
			}
		}
	}
	return out
}

// hungTasks returns the tasks that the kernel reports as hung, those first that the node cannot do without.
func hungTasks(f *Facts) []LogTask {
	all := tasksOf(f, signature.HungTask, signature.SoftLockup, signature.RCUStall)
	other := func(t LogTask) bool { return t.Role() == RoleOther }
	vital := slices.DeleteFunc(slices.Clone(all), other)
	return append(vital, slices.DeleteFunc(all, func(t LogTask) bool { return !other(t) })...)
}

// nodeVictims returns the victims that the node cannot do without. An OCI runtime is none: it dies in the cgroup of the
// container that it is setting up, of that container's limit.
func nodeVictims(f *Facts) []string {
	var names []string
	for _, v := range f.Log.OOMVictims {
		if r := v.Role(); r != RoleOther && r != RoleOCI {
			names = append(names, v.Label())
		}
	}
	for _, r := range []Role{RoleRuntime, RoleKubelet} {
		for _, u := range UnitsOf(f, signature.UnitOOMKilled, r) {
			if !slices.ContainsFunc(f.Log.OOMVictims, func(v LogTask) bool { return v.Role() == r }) {
				names = append(names, "a process of "+Clean(u.ID))
			}
		}
	}
	return names
}

// oomBeforePLEG reports whether the newest incident of PLEG may come from a victim that the node cannot do without:
// killed before it ended, and not long before its last good relist began.
func oomBeforePLEG(f *Facts) bool {
	const before = 2 * time.Minute // a relist that runs into what was left behind waits as long for its first call
	all, last := f.Log.Incidents, LastOf(f, signature.OOMKill, signature.UnitOOMKilled)
	if len(all) == 0 || last == nil || len(f.Log.NodeVictims) == 0 {
		return false
	}
	e := all[len(all)-1]
	return !last.After(*e.End) && !last.Before(cmp.Or(e.Anchor, e.Start).Add(-before))
}

// oomGlobal reports whether a kill was for want of memory on the whole node, as far as the journal shows.
func oomGlobal(f *Facts) bool {
	return slices.ContainsFunc([]string{signature.OOMKill, signature.OOMInvoked}, func(code string) bool {
		c := Logged(f, code)
		return c != nil && (ContainsAny(strings.ToLower(c.Example), []string{"constraint_none", "global_oom"}) ||
			strings.Contains(c.Example, "Out of memory: Kill"))
	})
}

// Head returns the first few of a list.
func Head(list []string, n int) []string { return list[:min(len(list), n)] }
