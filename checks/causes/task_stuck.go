package causes

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/journal/signature"
)

// TaskStuck is the code of this cause.
const TaskStuck = "TaskStuck"

func loggedTaskStuck(in *Incident) *Finding {
	return in.recorded(checks.Fair, "A container's process cannot be killed: it waits in the kernel.",
		signature.ProcessBlocked)
}

// taskName names a blocked task: java (pid 7011) of web/checkout-1 (app).
func taskName(f *facts.Facts, t host.BlockedTask) string {
	return processOwned(f, t.PID, t.Name, t.Owner)
}

func recogniseTaskStuck(f *facts.Facts) *Finding {
	stuck := f.Tasks.Stuck
	if len(stuck) == 0 {
		return nil
	}
	main, what := stuck[0], facts.WaitOf(stuck[0])
	var e checks.Evidence
	var subjects []checks.Subject
	critical := false
	for _, t := range stuck {
		_, holds := facts.HeldBy(f, t)
		critical = critical || holds || t.Role == host.RoleRuntime || t.Role == host.RoleKubelet
		p := host.Process{PID: t.PID, Name: t.Name, Role: t.Role, State: 'D', Wchan: t.Wchan, Started: t.Started}
		subjects = append(subjects, facts.ProcessSubject(f, p, t.Owner))
	}
	for _, t := range top(stuck) {
		e.For = append(e.For, TaskLine(f, t))
	}
	Addf(&e.For, "it lasts: %s", facts.Corroboration(f, main))
	step, unknown := ifElse(len(main.Stack) > 0, checks.Certain, checks.Strong), what == facts.WaitUnknown
	step = ifElse(unknown, checks.Fair, step)
	if main.Role == "" && main.PodUID == "" && !facts.IsListed(f, main.ObjectID) {
		step = checks.Weak
		Addf(&e.Missing, "whether it is this runtime's: the lists do not show it")
	}
	addIf(unknown, &e.Missing, "what it waits for: its kernel stack was not read, or is unknown to kdiag")
	summary := textf("%s is stuck in the kernel and waits for %s", taskName(f, main), what)
	disks := facts.FrozenDisks(main)
	for _, d := range top(disks) {
		Addf(&e.For, "%s", frozenLine(d))
		subjects = append(subjects, checks.Subject{Kind: "Filesystem", ID: facts.Clean(d.Source), Name: facts.Clean(d.Mount)})
	}
	if len(disks) == 1 {
		summary += ": " + frozenLine(disks[0])
	}
	summary += andMore(len(stuck)-1, "task")
	return newFinding(criticalIf(critical), step, summary, e, subjects...).advise(func(s *Steps, root string) {
		for _, t := range stuck[:min(len(stuck), 2)] {
			s.lookStack(max(t.TID, t.PID), "Check whether it still waits there")
			if t.PID > 1 && isKillable(t) && t.Role == "" {
				s.Add(checks.TouchesPod, textf("kill -KILL %d", t.PID), "End it: its sleep is killable")
			}
		}
		s.thaw(disks)
		s.lookBlocked()
		s.lookStacks()
		s.addNodeIf(root == "" && !isKillable(main) && what != facts.WaitThaw,
			"Reboot: no signal ends an uninterruptible sleep")
	})
}

// frozenLine names a file system that is frozen, or may be.
func frozenLine(d host.TaskDisk) string {
	name := textf("%s (%s)", facts.Clean(cmp.Or(d.Mount, "a file system")), facts.Clean(d.Source))
	return name + ifElse(d.Suspended, ", whose device is suspended", ", which it may write to")
}

// thaw appends what ends the freeze of file systems.
func (s *Steps) thaw(disks []host.TaskDisk) {
	s.lookIf(len(disks) > 0,
		"grep -s . /sys/block/dm-*/dm/suspended; ps -eo pid,etime,comm | grep -E 'PID|fsfreeze|dmsetup|lvm'",
		"Find out who froze it: a snapshot or backup may still be at work.")
	for _, d := range disks {
		name, mapped := strings.CutPrefix(d.Source, "/dev/mapper/")
		switch {
		case d.Suspended && mapped && facts.Safe(name):
			s.Add(checks.TouchesMount, "dmsetup resume "+name, "Lets its requests go on, if no snapshot needs them to wait")
		case d.Mount != "/" && facts.SafePath.MatchString(d.Mount):
			s.Add(checks.TouchesMount, "fsfreeze -u "+d.Mount, "Thaw the file system; it helps only if it is frozen")
		}
	}
}

// addTasks adds where the blocked tasks that match wait, and reports whether there are any.
func addTasks(f *facts.Facts, e *checks.Evidence, match func(host.BlockedTask) bool) bool {
	found := false
	for _, t := range f.Seen.Tasks.Value.Blocked {
		if match(t) && len(e.For) < facts.MaxRelated {
			found = true
			e.For = append(e.For, TaskLine(f, t))
		}
	}
	return found
}

// TaskLine writes where a task waits.
func TaskLine(f *facts.Facts, t host.BlockedTask) string {
	where := strings.Join(facts.Head(t.Stack, 6), " < ") // the innermost function first
	where = facts.Clean(cmp.Or(where, ifElse(t.Wchan == "0", "", t.Wchan), "the kernel"))
	w := facts.WaitOf(t)
	return textf("%s is in uninterruptible sleep in two looks, in %s%s", taskName(f, t), where,
		ifElse(w == facts.WaitUnknown, "", ": it waits for "+w.String()))
}

// isKillable reports whether a task waits so that SIGKILL, and no other signal, reaches it: the names of the kernel's
// functions for it show it (TASK_KILLABLE; state D in /proc all the same).
func isKillable(t host.BlockedTask) bool {
	return strings.HasSuffix(t.Wchan, "_killable") ||
		slices.Contains([]string{"wait_for_vfork_done", "mem_cgroup_handle_over_high"}, t.Wchan)
}
