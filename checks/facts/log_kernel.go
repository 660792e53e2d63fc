package facts

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

// A LogTask is a process as the kernel's log names it: by the 15 bytes that the kernel keeps of its name, and perhaps
// by its pid.
type LogTask struct {
	Name  string
	PID   int        // 0 when not known
	InPod bool       // it is a pod's or another runtime's: docker in docker, or a cluster in a cluster
	last  *time.Time // of the records that name it
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

// Role is the role of a task on the node. A task called systemd may be any user's, and is none of
// them; nor is a daemon or a shim in a pod. Only CRI-O puts its own there: conmon.
func (t LogTask) Role() Role {
	r := journal.TaskRole(t.Name)
	if r == journal.RoleInit || t.InPod && !strings.HasPrefix(t.Name, "conmon") {
		return RoleOther
	}
	return r
}

// IsKernels reports whether a task is a thread of the kernel, which works for all: jbd2/sda1-8, kworker/u8:2, kswapd0.
func (t LogTask) IsKernels() bool {
	return strings.Contains(t.Name, "/") || strings.HasPrefix(t.Name, "kswapd") || strings.HasPrefix(t.Name, "xfs")
}

// tasksOf returns the tasks that records of the signatures name, each once.
func tasksOf(f *Facts, codes ...string) []LogTask {
	var out []LogTask
	for _, code := range codes {
		for _, s := range subjectsOf(f, code) {
			t := LogTask{Name: s.Name, InPod: s.InPod, last: s.Last}
			pid, err := strconv.Atoi(s.ID)
			if t.PID = pid; err != nil {
				t.Name = s.ID
			}
			same := func(o LogTask) bool { return o.Name == t.Name && o.PID == t.PID }
			if i := slices.IndexFunc(out, same); i < 0 {
				out = append(out, t)
			} else if t.last != nil && (out[i].last == nil || t.last.After(*out[i].last)) {
				out[i].last = t.last
			}
		}
	}
	return out
}

// stillHung is the maximum age of the record of a task that counts as hung, where nothing else shows whether it is.
// The kernel repeats it every 120 s (hung_task_timeout_secs), ten times by default, and a lockup more often.
const stillHung = 3 * time.Minute

// deriveHungTasks divides the tasks that the kernel reports as hung into those that hang still, the vital ones first,
// and those that do not.
func deriveHungTasks(f *Facts) {
	for _, t := range tasksOf(f, signature.HungTask, signature.SoftLockup, signature.RCUStall) {
		list := &f.Log.HungTasks
		if isHungNoMore(f, t) {
			list = &f.Log.HungBefore
		}
		*list = append(*list, t)
	}
	slices.SortStableFunc(f.Log.HungTasks,
		func(a, b LogTask) int { return first(a.Role() != RoleOther, b.Role() != RoleOther) })
}

// isHungNoMore reports whether a task that the kernel reported runs again, or is gone.
func isHungNoMore(f *Facts, t LogTask) bool {
	i := slices.IndexFunc(f.Processes, func(p host.Process) bool { return p.PID == t.PID })
	blocked := func(b host.BlockedTask) bool { return b.TID == t.PID || b.PID == t.PID }
	if t.PID > 0 && (i >= 0 || f.Seen.Tasks.OK) {
		return (i < 0 || !IsUninterruptible(&f.Processes[i])) &&
			!slices.ContainsFunc(f.Seen.Tasks.Value.Blocked, blocked)
	}
	return !Fresh(f, t.last, stillHung)
}

// LockedUp reports whether a CPU has been locked up or stalled a moment ago.
func LockedUp(f *Facts) bool {
	return Fresh(f, LastOf(f, signature.SoftLockup, signature.RCUStall), stillHung)
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
				names = append(names, unitVictim+Clean(u.ID))
			}
		}
	}
	return names
}

// oomBeforePLEG reports whether the newest incident of PLEG may come from a victim that the node cannot do without:
// killed before it ended, and not long before its last good relist began.
func oomBeforePLEG(f *Facts) bool {
	const before = 2 * time.Minute // a relist that meets a leftover waits as long for its first call
	all, last := f.Log.Incidents, LastKill(f)
	if len(all) == 0 || last == nil || len(f.Log.NodeVictims) == 0 {
		return false
	}
	e := all[len(all)-1]
	return !last.After(*e.End) && !last.Before(cmp.Or(e.Anchor, e.Start).Add(-before))
}

// LastKill is when the kernel last killed for memory what the node cannot do without, else anything; nil when not
// known. Under version 2 systemd logs the kills of containers' scopes too.
func LastKill(f *Facts) *time.Time {
	var last *time.Time
	for _, r := range []Role{RoleRuntime, RoleKubelet} {
		for _, u := range UnitsOf(f, signature.UnitOOMKilled, r) {
			if u.Last != nil && (last == nil || u.Last.After(*last)) {
				last = u.Last
			}
		}
	}
	for _, v := range f.Log.OOMVictims {
		if v.Role() != RoleOther && v.last != nil && (last == nil || v.last.After(*last)) {
			last = v.last
		}
	}
	return cmp.Or(last, LastOf(f, signature.OOMKill))
}

// deriveKills divides the kills for memory by whose memory was at its end: that of the node or of a group that all pods
// or the daemons share, or that of one container, pod or service, which is its own affair.
func deriveKills(f *Facts) {
	if f.Journal == nil {
		return
	}
	for _, k := range f.Journal.MemoryKills {
		switch {
		case k.Limit == "":
			f.Log.OOMGlobal = true
		case ranThrough(f, journal.TaskRole(k.Task), k.Last): // it was another node's, of one kernel log
		case isNodeGroup(k.Limit):
			f.Log.OOMShared = append(f.Log.OOMShared, k)
		default:
			f.Log.OOMOwn = append(f.Log.OOMOwn, k)
		}
	}
	if len(f.Journal.MemoryKills) > 0 {
		return
	}
	for _, code := range []string{signature.OOMKill, signature.OOMInvoked} { // Linux before 4.19
		c := Logged(f, code)
		f.Log.OOMGlobal = f.Log.OOMGlobal || c != nil && (strings.Contains(c.Example, "Out of memory: Kill") ||
			Says(strings.ToLower(c.Example), "constraint_none", "global_oom"))
	}
}

// oomVictims returns the tasks that the kernel killed for memory, each once. The log's list of the most frequent ones
// may lack those that the node needs, so they are added. A daemon that was killed while the one of the node ran is
// another's, like one in a pod, and like one whose limit is not that of a unit of the node.
func oomVictims(f *Facts) []LogTask {
	all := tasksOf(f, signature.OOMKill)
	for _, k := range slices.Concat(f.Log.OOMOwn, f.Log.OOMShared) {
		i := slices.IndexFunc(all, func(t LogTask) bool { return t.Name == k.Task })
		if i < 0 {
			i, all = len(all), append(all, LogTask{Name: k.Task, last: k.Last})
		}
		o := host.OwnerOfCgroup(k.Cgroup)
		all[i].InPod = all[i].InPod || o.PodUID != "" || o.ObjectID != ""
	}
	for i, v := range all {
		ofTask := func(k journal.MemoryKill) bool { return k.Task == v.Name }
		all[i].InPod = v.InPod || slices.ContainsFunc(f.Log.OOMOwn, ofTask) &&
			!slices.ContainsFunc(f.Log.OOMShared, ofTask)
	}
	for i, v := range all {
		all[i].InPod = v.InPod || ranThrough(f, v.Role(), v.last)
	}
	return all
}

// ranThrough reports whether the daemon of a role was running when one of its name was killed, and runs still.
// Containers, virtual machines and boxes that are nodes themselves may share a kernel's log.
func ranThrough(f *Facts, r Role, kill *time.Time) bool {
	now := daemonOf(f, r)
	return now != nil && kill != nil && !now.Started.IsZero() && now.Started.Before(kill.Add(-startSkew))
}

// startSkew is by how much the start of a process, which the kernel counts from the boot, may lie before its record in
// the log.
const startSkew = 2 * time.Second

// settled is for how long a daemon that was killed must have run for the kill to be over.
const settled = time.Minute

// daemonOf returns the process that has a role now; nil where it is not known.
func daemonOf(f *Facts, r Role) *host.Process {
	if all := ProcessesOf(f, host.RoleKubelet); r == RoleKubelet && len(all) == 1 {
		return &all[0]
	}
	if r == RoleRuntime && !f.Target.Daemon.Guessed {
		return f.Target.Daemon.Process
	}
	return nil
}

// OOMMended reports whether each daemon that was killed has been started again, and has run for as long as calmAfter
// says since. A shim is not started again: its pod is, within some minutes at most.
func OOMMended(f *Facts) bool {
	const noticed, replaced = 30 * time.Second, 5 * time.Minute
	lasts := func(v LogTask) bool {
		now, r := daemonOf(f, v.Role()), v.Role()
		switch r {
		case RoleRuntime, RoleKubelet:
			if now == nil && r == RoleRuntime && f.Calls.BothLists { // another process answers now, though unseen
				return false
			}
			return now == nil || v.last == nil || AgeOf(f, *now) < calmAfter(f, r)
		case RoleShim:
			late := Fresh(f, v.last, noticed) || Fresh(f, v.last, replaced) && !podsRunAgain(f, *v.last)
			return late || f.Log.OOMBeforePLEG
		}
		return false
	}
	ofUnit := func(name string) bool { return strings.HasPrefix(name, unitVictim) }
	return !slices.ContainsFunc(f.Log.OOMVictims, lasts) && !slices.ContainsFunc(f.Log.NodeVictims, ofUnit)
}

// calmAfter returns for how long a daemon must have run after a kill for that to be over: twice the mean time between
// the kills of the window, and at least for settled. After a single one that is settled where the limit is of its own
// unit, which it may soon reach again, else 0.
func calmAfter(f *Facts, r Role) time.Duration {
	var kills []time.Time
	for _, v := range f.Log.OOMVictims {
		if v.Role() == r && v.last != nil {
			kills = append(kills, *v.last)
		}
	}
	if n := len(kills); n > 1 {
		slices.SortFunc(kills, time.Time.Compare)
		return max(settled, 2*kills[n-1].Sub(kills[0])/time.Duration(n-1))
	}
	own := func(k journal.MemoryKill) bool { return UnitRole(host.OwnerOfCgroup(k.Limit).Unit) == r }
	if slices.ContainsFunc(f.Log.OOMShared, own) {
		return settled
	}
	return 0
}

// A CountedKill is a daemon that was OOM-killed, as its unit and its control group show without a log.
type CountedKill struct {
	Role   Role
	Unit   *host.Unit
	Group  *host.MemoryLimit // whose memory.events has the kills; nil where systemd's result tells of one
	Last   time.Time         // when the daemon was started again, or its unit ended
	Runs   bool              // it was started again
	Mended bool              // it runs, and was started again only once, or has run for a minute since
}

// countedKills returns the daemons that were OOM-killed within the window: those whose unit ended so, and those whose
// control group counts kills, where the log does not reach back so far. memory.events counts since the group was made,
// so it says nothing of a daemon whose group is as new as itself. Each automatic start of the unit must have a kill,
// else another end of the daemon may have been the last one.
func countedKills(f *Facts) (list []CountedKill) {
	for _, d := range []struct {
		role Role
		runs []host.Process
		unit *host.Unit
	}{
		{RoleRuntime, ProcessesOf(f, host.RoleRuntime), f.Target.RuntimeUnit},
		{RoleKubelet, ProcessesOf(f, host.RoleKubelet), f.KubeletState.Unit},
	} {
		u := d.unit
		if u == nil || f.Target.Simulated || len(d.runs) > 1 {
			continue
		}
		k := CountedKill{Role: d.role, Unit: u, Last: u.Since}
		starts := uint64(max(u.Restarts, 0))
		i := slices.IndexFunc(f.Seen.Starvation.Value.MemoryLimits, func(m host.MemoryLimit) bool {
			return m.Unit == u.Name && m.Older && m.Kills > 0
		})
		if i >= 0 {
			k.Group = &f.Seen.Starvation.Value.MemoryLimits[i]
		}
		logged, killed := false, false
		switch {
		case len(d.runs) == 1:
			k.Last, k.Runs = d.runs[0].Started, true
			k.Mended = u.Active == "active" && (starts == 1 || AgeOf(f, d.runs[0]) >= settled)
			killed = k.Group != nil && starts > 0 && k.Group.Kills >= starts
		case u.Result == "oom-kill":
			k.Group, killed = nil, true
		case u.Result == "signal" && u.ExitStatus == int(syscall.SIGKILL):
			killed = k.Group != nil && k.Group.Kills > starts
		}
		if k.Group != nil {
			logged = f.Log.Read && f.Log.From.Before(k.Last.Add(-startSkew))
		}
		window := cmp.Or(f.Limits.JournalWindow, checks.DefaultLimits().JournalWindow)
		if killed && !logged && f.Now.Sub(k.Last) < window {
			list = append(list, k)
		}
	}
	return list
}

// podsRunAgain reports whether each pod has a ready sandbox, of which one at least was made after a kill.
func podsRunAgain(f *Facts, kill time.Time) bool {
	again, ready := false, map[string]bool{}
	for e := range Entries(f, RPCSandboxes) {
		ready[e.Pod.UID] = ready[e.Pod.UID] || e.Runs
		again = again || e.Runs && time.Unix(0, e.CreatedAt).After(kill)
	}
	return again && f.Calls.BothLists && !slices.Contains(slices.Collect(maps.Values(ready)), false)
}

// unitVictim begins the name of a victim of which systemd names the unit alone.
const unitVictim = "a process of "

// isNodeGroup reports whether a control group holds all pods, those of one class, or daemons of the node.
func isNodeGroup(group string) bool {
	o := host.OwnerOfCgroup(group)
	if o.ObjectID != "" || o.PodUID != "" {
		return false
	}
	shared := []string{"system.slice", "runtime.slice", "podruntime.slice", "kubelet.slice", "kubelet"}
	return strings.Contains(group, "kubepods") || slices.Contains(shared, path.Base(group)) ||
		UnitRole(o.Unit) != RoleOther && inNodeSlice(group, o.Unit)
}

// inNodeSlice reports whether a unit is one of the node's systemd: such a unit lies in a slice. Those of a user's
// systemd, and groups that another runtime or a person named like a unit, are not the node's.
func inNodeSlice(group, unit string) bool {
	parent, _, _ := strings.Cut(group, "/"+unit)
	return strings.HasSuffix(parent, ".slice") && !strings.Contains(parent, "/user.slice")
}

// OwnKills writes whom the kernel killed at their own limits, the most often first: pods, containers, services.
func OwnKills(f *Facts) []string {
	counts, names := map[string]int{}, map[string]string{} // by pod, or by what it is else
	for _, k := range f.Log.OOMOwn {                       // those most often killed first
		o := host.OwnerOfCgroup(k.Cgroup)
		if o.PodUID != "" && OwnedBy(f, o).Pod == "" {
			o.ObjectID = "" // the container is gone, the pod may be there
		}
		name := cmp.Or(OwnerLabel(f, o), "control group "+Clean(k.Limit))
		key := cmp.Or(o.PodUID, name)
		counts[key] += int(k.Count)
		if names[key] == "" || OwnedBy(f, o).Name != "" && !strings.HasSuffix(names[key], ")") {
			names[key] = name
		}
	}
	if kills := occasions(f, signature.OOMKill); kills > 0 && len(f.Journal.MemoryKills) == 0 && !f.Log.OOMGlobal {
		counts[""], names[""] = kills, "a container" // which one, Linux before 4.19 does not log here
	}
	var lines []string
	for _, key := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	}) {
		lines = append(lines, fmt.Sprintf("%s was OOM-killed %s in %s at its own memory limit", names[key],
			units.Times(counts[key]), units.Duration(f.Log.Window)))
	}
	return lines
}

// Head returns the first few of a list.
func Head(list []string, n int) []string { return list[:min(len(list), n)] }
