package causes

import (
	"fmt"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

// KernelHung is the code of this cause.
const KernelHung = "KernelHung"

var kernelHung = Definition{
	Code:   KernelHung,
	Claims: []string{"journal.kernel"},
	Roots: []Root{
		{Code: IOStall, When: diskStands},
		{Code: FilesystemHung, When: anyMountHangs},
	},
	Past:      true,
	Recognise: recogniseKernelHung,
	FromLog:   loggedKernelHung,
}

// kernelSigns are the signatures of a kernel that hangs, in the order in which a report names them.
func kernelSigns() []struct{ code, noun string } {
	return []struct{ code, noun string }{
		{signature.SoftLockup, "soft lockup"},
		{signature.RCUStall, "RCU stall"},
		{signature.HungTask, "hung task report"},
	}
}

// processNamed finds a task among the processes of the host; nil when it is not one of the runtime's, or gone.
func processNamed(f *facts.Facts, t facts.LogTask) *host.Process {
	for i := range f.Processes {
		if t.PID > 0 && f.Processes[i].PID == t.PID {
			return &f.Processes[i]
		}
	}
	return nil
}

func recogniseKernelHung(f *facts.Facts) *Finding {
	if !f.Log.Read || f.Target.Simulated {
		return nil
	}
	var e checks.Evidence
	first := ""
	for _, sign := range kernelSigns() {
		c := facts.Logged(f, sign.code)
		if c == nil {
			continue
		}
		line := units.Count(int(c.Count), sign.noun)
		if c.Last != nil {
			line += " in the kernel's log, last at " + facts.ClockText(f, *c.Last)
		}
		Addf(&e.For, "%s: %s", line, facts.Quote(f, c.Example))
		if first == "" {
			first = units.Count(int(c.Count), sign.noun)
		}
	}
	if first == "" {
		return nil
	}
	tasks := f.Log.HungTasks
	severity, step := checks.Warning, checks.Strong
	summary := "the kernel reports " + first
	if len(tasks) > 0 {
		summary = fmt.Sprintf("the kernel reports %s as hung", tasks[0].Label())
		if n := len(tasks) - 1; n > 0 {
			summary += " and " + units.Count(n, "other task")
		}
		switch t := tasks[0]; {
		case t.Role() == facts.RoleOther:
			Addf(&e.Against, "none of the tasks is the runtime, a shim or the kubelet")
		case letGo(f, tasks):
			step = checks.Certain
			summary += ", and has let go of it since"
		default:
			severity, step = checks.Critical, checks.Certain
			summary += ": " + taskMatters(t)
		}
	}
	hungTaskStates(f, &e, tasks)
	if severity == checks.Critical {
		logOfPLEG(f, &e)
	}
	if line := pressureLine(f); line != "" {
		e.For = append(e.For, line)
	}
	missingHost(f, &e)
	c := newFinding(severity, step, summary, e)
	c.Subject, c.Related = taskSubjects(f, tasks)
	c.Advise = func(string) []checks.NextStep {
		return stepsWhenKernelHung(f, tasks, severity == checks.Critical || !letGo(f, tasks))
	}
	return c
}

// taskMatters says what hangs with a task.
func taskMatters(t facts.LogTask) string {
	switch t.Role() {
	case facts.RoleRuntime:
		return "what the runtime serves waits with it"
	case facts.RoleKubelet:
		return "the kubelet's work waits with it"
	}
	return "its container cannot be asked, stopped or started meanwhile"
}

// letGo reports whether all tasks that the node cannot do without are seen to run again.
func letGo(f *facts.Facts, tasks []facts.LogTask) bool {
	seen := false
	for _, t := range tasks {
		if t.Role() == facts.RoleOther {
			continue
		}
		p := processNamed(f, t)
		if p == nil || facts.IsUninterruptible(p) {
			return false
		}
		seen = true
	}
	return seen
}

// hungTaskStates adds what the tasks are doing now: the log is of the past.
func hungTaskStates(f *facts.Facts, e *checks.Evidence, tasks []facts.LogTask) {
	for _, t := range tasks[:min(len(tasks), facts.MostNamed)] {
		p := processNamed(f, t)
		switch {
		case p == nil:
		case facts.IsUninterruptible(p):
			Addf(&e.For, "%s is still in %s", facts.ProcessLabel(*p), facts.StateOf(*p))
		default:
			Addf(&e.Against, "%s is %s now: the kernel has let it go", facts.ProcessLabel(*p), facts.StateOf(*p))
		}
	}
}

func stepsWhenKernelHung(f *facts.Facts, tasks []facts.LogTask, lasts bool) []checks.NextStep {
	var s Steps
	s.Add(checks.TouchesNothing,
		"journalctl --no-pager -k --since -1h | grep -E -A 20 'blocked for more than|soft lockup|rcu.*stall' | "+
			"tail -n 100", "The call traces: which lock, mount or device do the tasks wait for?")
	for _, t := range tasks[:min(len(tasks), 2)] {
		if t.PID > 1 {
			s.Add(checks.TouchesNothing, fmt.Sprintf("cat /proc/%d/stack /proc/%d/wchan; grep State /proc/%d/status",
				t.PID, t.PID, t.PID), "Does "+t.Label()+" still wait there?")
		}
	}
	s.Add(checks.TouchesNothing, "ps -eo stat,pid,wchan:32,etime,comm | grep '^D'",
		"Look a few times: the same tasks in the same place are stuck.")
	s.Add(checks.TouchesNothing, "grep . /proc/pressure/io",
		"Can the disks not keep up? some avg10 near 100 says so, and that the tasks may go on by themselves.")
	s.Add(checks.TouchesNothing, "echo w > /proc/sysrq-trigger; journalctl --no-pager -k -n 200",
		"Keep the evidence: the stacks of all blocked tasks, which a reboot destroys.")
	if !lasts {
		return s.Done()
	}
	addNode(&s, "Only a reboot ends a task that the kernel never lets go of; disks that are merely slow need none.")
	return s.Done()
}

func loggedKernelHung(in *Incident) *LogFinding {
	codes := []string{signature.HungTask, signature.SoftLockup, signature.RCUStall}
	if in.count(codes...) == 0 {
		return nil
	}
	f := in.finding(hostTier, 0.75, "The kernel reports tasks or CPUs that do not move.", codes...)
	for _, b := range in.each(codes...) {
		if b.Object().Kind == "Process" && journal.TaskRole(b.Object().Name) != journal.RoleOther {
			return f.raise(0.15, "the stuck task belongs to the runtime, a container's shim or the kubelet")
		}
	}
	return f
}
