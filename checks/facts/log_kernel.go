package facts

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/journal/signature"
)

// hungTasks returns the tasks that the kernel reports as hung, those first that the node cannot do without.
func hungTasks(f *Facts) []LogTask {
	all := tasksOf(f, signature.HungTask, signature.SoftLockup, signature.RCUStall)
	slices.SortStableFunc(all, func(a, b LogTask) int {
		switch {
		case (a.Role() != RoleOther) == (b.Role() != RoleOther):
			return 0
		case a.Role() != RoleOther:
			return -1
		}
		return 1
	})
	return all
}

// oomPause parts one kill, which may be of many processes at once, from the next.
const oomPause = 2 * time.Second

// oomVictims returns the tasks that the kernel killed for memory, each once, in the order of the journal.
func oomVictims(f *Facts) []LogTask {
	return tasksOf(f, signature.OOMKill)
}

// tasksOf returns the tasks that records of the signatures name, each once.
func tasksOf(f *Facts, codes ...string) []LogTask {
	var out []LogTask
	add := func(t LogTask) {
		if t.Name == "" && t.PID == 0 {
			return
		}
		i := slices.IndexFunc(out, func(o LogTask) bool { return o.Name == t.Name && (o.PID == t.PID || o.PID == 0 || t.PID == 0) })
		if i < 0 {
			out = append(out, t)
		} else {
			out[i].PID, out[i].InPod = max(out[i].PID, t.PID), out[i].InPod || t.InPod
		}
	}
	for _, code := range codes {
		for _, s := range subjectsOf(f, code) {
			add(taskOf(f, code, s))
		}
	}
	for _, e := range f.Log.Incidents {
		for _, k := range e.Culprits {
			if k.Kind == "Process" && slices.Contains(codes, k.Example) {
				t := TaskIn(cmp.Or(k.Name, k.ID))
				if t.PID == 0 && k.Name != "" {
					t.PID = TaskIn(k.ID).PID
				}
				add(t)
			}
		}
	}
	return out
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

// oomBeforePLEG reports whether the newest incident of PLEG may come from a victim that the node cannot do without: killed
// before it ended, and not long before its last good relist began.
func oomBeforePLEG(f *Facts) bool {
	const before = 2 * time.Minute // a relist that runs into what was left behind waits as long for its first call
	all, last := f.Log.Incidents, LastOf(f, signature.OOMKill, signature.UnitOOMKilled)
	if len(all) == 0 || last == nil || len(f.Log.NodeVictims) == 0 {
		return false
	}
	e := all[len(all)-1]
	return !last.After(*e.End) && !last.Before(TimeOr(e.Anchor, *e.Start).Add(-before))
}

// oomGlobal reports whether a kill was for want of memory on the whole node, as far as the journal says.
func oomGlobal(f *Facts) bool {
	global := func(text string) bool {
		s := strings.ToLower(text)
		return ContainsAny(s, []string{"constraint_none", "global_oom", "system oom"}) ||
			strings.Contains(s, "out of memory: kill") && !strings.Contains(s, "memory cgroup out of memory")
	}
	for _, code := range []string{signature.OOMKill, signature.OOMInvoked} {
		if c := Logged(f, code); c != nil && global(c.Example) {
			return true
		}
	}
	return false
}

// oomKills counts kills. A container's processes are killed together (memory.oom.group), a line each.
func oomKills(f *Facts) int { return occasions(f, oomPause, signature.OOMKill) }

// Head returns the first few of a list.
func Head(list []string, n int) []string { return list[:min(len(list), n)] }
