package causes

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// TaskStuck is the code of this cause.
const TaskStuck = "TaskStuck"

var taskStuck = Definition{
	Code:   TaskStuck,
	Claims: []string{"host.tasks"},
	Roots: []Root{
		{Code: IOStall, When: taskWaitsForDisk},
		{Code: FilesystemHung, When: taskWaitsForMount},
		{Code: CgroupFrozen, When: taskInFreeze},
		{Code: KernelHung, When: kernelNamesTask},
	},
	Recognise: recogniseTaskStuck,
	FromLog: fromRecords(objectTier, 0.6, "A container's process cannot be killed: it waits in the kernel.",
		signature.ProcessBlocked),
}

// TaskName names a blocked task: java (pid 7011) of web/checkout-1 (app).
func TaskName(f *facts.Facts, t host.BlockedTask) string {
	return fmt.Sprintf("%s (pid %d)%s", facts.Clean(t.Name), t.PID, facts.OwnerSuffix(f, t.Owner))
}

func recogniseTaskStuck(f *facts.Facts) *Finding {
	stuck := f.Tasks.Stuck
	if len(stuck) == 0 {
		return nil
	}
	main := stuck[0]
	var e checks.Evidence
	severity, step := checks.Warning, checks.Strong
	for _, t := range stuck[:min(len(stuck), facts.MostNamed)] {
		addTaskLine(f, &e, t)
	}
	if more := len(stuck) - facts.MostNamed; more > 0 {
		Addf(&e.For, "%s more", units.Count(more, "task"))
	}
	Addf(&e.For, "it lasts: %s", facts.Corroboration(f, main))
	for _, t := range stuck {
		_, holds := facts.HeldBy(f, t)
		if holds || t.Role == host.RoleRuntime || t.Role == host.RoleKubelet {
			severity = checks.Critical
		}
	}
	if facts.WaitOf(main) == facts.WaitUnknown {
		step = checks.Fair
		Addf(&e.Missing, "what it waits for: its kernel stack was not read, or names nothing that kdiag knows")
	} else if len(main.Stack) > 0 {
		step = checks.Certain
	}
	missing(f.Seen.Tasks, &e, "other tasks")
	what := facts.WaitOf(main).String()
	summary := fmt.Sprintf("%s is stuck in the kernel and waits for %s", TaskName(f, main), what)
	if n := len(stuck) - 1; n > 0 {
		summary += fmt.Sprintf("; %s more", units.Count(n, "task"))
	}
	c := newFinding(severity, step, summary, e)
	for i, t := range stuck[:min(len(stuck), facts.MaxRelated+1)] {
		if s := blockedSubject(f, t); i == 0 {
			c.Subject = &s
		} else {
			c.Related = append(c.Related, s)
		}
	}
	c.Advise = func(root string) []checks.NextStep { return stepsWhenTaskStuck(f, stuck, root) }
	return c
}

// addTaskLine says where a task waits.
func addTaskLine(f *facts.Facts, e *checks.Evidence, t host.BlockedTask) {
	at := facts.WaitsIn(t)
	if at == "" {
		at = "a place that may not be read"
	}
	line := fmt.Sprintf("%s is in uninterruptible sleep in two looks, in %s", TaskName(f, t), at)
	if w := facts.WaitOf(t); w != facts.WaitUnknown {
		line += ": it waits for " + w.String()
	}
	e.For = append(e.For, line)
}

// addBlocked adds the blocked tasks that belong to one of the objects.
func addBlocked(f *facts.Facts, e *checks.Evidence, ids ...string) {
	for _, t := range f.Seen.Tasks.Value.Blocked {
		if t.ObjectID != "" && slices.Contains(ids, t.ObjectID) {
			addTaskLine(f, e, t)
		}
	}
}

// blockedSubject names a task as a culprit.
func blockedSubject(f *facts.Facts, t host.BlockedTask) checks.Subject {
	s := facts.OwnedBy(f, t.Owner)
	s.Kind, s.ID, s.Name = "Process", fmt.Sprint(t.PID), facts.Clean(t.Name)
	p := host.Process{PID: t.PID, Name: t.Name, Role: t.Role, State: 'D', Wchan: t.Wchan, Started: t.Started}
	s.Processes = []checks.Process{facts.ProcessOf(f, p)}
	return s
}

func stepsWhenTaskStuck(f *facts.Facts, stuck []host.BlockedTask, root string) []checks.NextStep {
	var s Steps
	for _, t := range stuck[:min(len(stuck), 2)] {
		if t.PID <= 1 {
			continue
		}
		tid := max(t.TID, t.PID)
		s.Add(checks.TouchesNothing,
			fmt.Sprintf("cat /proc/%d/task/%d/stack /proc/%d/task/%d/wchan; grep State /proc/%d/task/%d/status",
				t.PID, tid, t.PID, tid, t.PID, tid),
			"Does "+TaskName(f, t)+" still wait there? Do not touch files of its mounts with a shell: that shell "+
				"would hang as well.")
		if w := facts.WaitOf(t); w == facts.WaitNetworkFS || w == facts.WaitFUSE || w == facts.WaitUnmount {
			s.Add(checks.TouchesNothing, fmt.Sprintf("grep -E ' (nfs|cifs|ceph|fuse|9p)' /proc/%d/mounts", t.PID),
				"Which mounts over the network does it see? Reading the table does not hang.")
		}
		if facts.IsKillable(t) && t.Role == "" {
			s.Add(checks.TouchesPod, fmt.Sprintf("kill -KILL %d", t.PID),
				"It waits killably: SIGKILL ends this process of "+cmp.Or(facts.OwnerLabel(f, t.Owner),
					"the host")+", no other signal does.")
		}
	}
	s.Add(checks.TouchesNothing, "ps -eLo stat,pid,tid,wchan:32,etime,comm | grep '^D'",
		"Look a few times: the same tasks in the same place are stuck, changing ones are a busy disk.")
	s.Add(checks.TouchesNothing, "echo w > /proc/sysrq-trigger; journalctl --no-pager -k -n 200",
		"Keep the evidence: the stacks of all blocked tasks, which a reboot destroys.")
	if root != "" {
		return s.Done()
	}
	addNode(&s, "No signal ends what waits uninterruptibly: if what it waits for does not come back, only a "+
		"reboot does.")
	return s.Done()
}
