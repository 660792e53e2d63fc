package causes

import (
	"cmp"
	"slices"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

// KernelHung is the code of this cause.
const KernelHung = "KernelHung"

var kernelHung = cause(KernelHung, recogniseKernelHung, loggedKernelHung, "journal.kernel")

// processNamed finds a task among the processes of the host; nil when it is not one of the runtime's, or gone.
func processNamed(f *facts.Facts, t facts.LogTask) *host.Process {
	i := slices.IndexFunc(f.Processes, func(p host.Process) bool { return t.PID > 0 && p.PID == t.PID })
	if i < 0 {
		return nil
	}
	return &f.Processes[i]
}

func recogniseKernelHung(f *facts.Facts) *Finding {
	if !f.Log.Read || f.Target.Simulated {
		return nil
	}
	var e checks.Evidence
	summary := ""
	for _, sign := range [][2]string{
		{signature.SoftLockup, "soft lockup"}, {signature.RCUStall, "RCU stall"}, {signature.HungTask, "hung task"},
	} {
		if c := facts.Logged(f, sign[0]); c != nil {
			summary = cmp.Or(summary, "the kernel reports "+units.Count(int(c.Count), sign[1]))
			Addf(&e.For, "%s in the kernel's log: %s", units.Count(int(c.Count), sign[1]), facts.Quote(f, c.Example))
		}
	}
	if summary == "" {
		return nil
	}
	tasks, gone := f.Log.HungTasks, letGo(f)
	severity, step := checks.Warning, checks.Strong
	if len(tasks) > 0 {
		summary = textf("the kernel reports %s as hung", tasks[0].Label())
		switch {
		case tasks[0].Role() == facts.RoleOther:
			Addf(&e.Against, "none of the tasks is the runtime, a shim or the kubelet")
		case gone:
			step = checks.Certain
			summary += ", and has let go of it since"
		default:
			severity, step = checks.Critical, checks.Certain
			summary += ": what it serves waits with it"
		}
	}
	summary += andMore(len(tasks)-1, "task")
	for _, t := range top(tasks) { // what they do now: the log is of the past
		if p := processNamed(f, t); p != nil && facts.IsUninterruptible(p) {
			Addf(&e.For, "%v is still in %s", *p, facts.StateOf(*p))
		} else if p != nil {
			Addf(&e.Against, "%v is %s now: the kernel has let it go", *p, facts.StateOf(*p))
		}
	}
	if severity == checks.Critical {
		logOfPLEG(f, &e)
	}
	addGaps(f, &e, gapHost)
	lasts := severity == checks.Critical || !gone
	return newFinding(severity, step, summary, e, taskSubjects(f, tasks)...).advise(func(s *Steps, _ string) {
		s.Look("journalctl --no-pager -k --since -1h | grep -E -A 20 'blocked for more than|soft lockup|rcu.*stall' | "+
			"tail -n 100", "The call traces: which lock, mount or device do the tasks wait for?")
		for _, t := range tasks[:min(len(tasks), 2)] {
			s.lookStack(t.PID, "Does "+t.Label()+" still wait there?")
		}
		s.lookBlocked()
		s.Look("grep . /proc/pressure/io", "Is some avg10 near 100? Then the disks are slow, and the tasks may go on.")
		s.lookStacks()
		s.addNodeIf(lasts, "Only a reboot ends a task that the kernel never lets go of; slow disks need none.")
	})
}

// letGo reports whether all hung tasks that the node cannot do without are seen to run again.
func letGo(f *facts.Facts) bool {
	needed := func(t facts.LogTask) bool { return t.Role() != facts.RoleOther }
	held := func(t facts.LogTask) bool {
		p := processNamed(f, t)
		return needed(t) && (p == nil || facts.IsUninterruptible(p))
	}
	return slices.ContainsFunc(f.Log.HungTasks, needed) && !slices.ContainsFunc(f.Log.HungTasks, held)
}

func loggedKernelHung(in *Incident) *LogFinding {
	codes := []string{signature.HungTask, signature.SoftLockup, signature.RCUStall}
	isEssential := func(b *journal.Burst) bool {
		return b.Object().Kind == "Process" && journal.TaskRole(b.Object().Name) != journal.RoleOther
	}
	return in.recorded(hostTier, 0.75, "The kernel reports tasks or CPUs that do not move.", codes...).
		raiseIf(slices.ContainsFunc(in.each(codes...), isEssential), 0.15,
			"the stuck task belongs to the runtime, a container's shim or the kubelet")
}
