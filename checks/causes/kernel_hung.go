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
	tasks, locked, oops := f.Log.HungTasks, facts.LockedUp(f), facts.Logged(f, signature.KernelOops) != nil
	if len(tasks) == 0 && !locked && !oops {
		return nil // the hung tasks run again
	}
	var e checks.Evidence
	summary := ""
	for _, sign := range [][2]string{
		{signature.SoftLockup, "soft lockup"},
		{signature.RCUStall, "RCU stall"},
		{signature.HungTask, "hung task"},
		{signature.KernelOops, "error of its own"},
	} {
		if c := facts.Logged(f, sign[0]); c != nil {
			summary = cmp.Or(summary, "the kernel reports "+units.Count(int(c.Count), sign[1]))
			Addf(&e.For, "%s in the kernel log: %s", units.Count(int(c.Count), sign[1]), Quote(c.Example))
		}
	}
	severity, step, vital := checks.Warning, checks.Strong, false
	if len(tasks) > 0 {
		summary = textf("the kernel reports %s as hung", tasks[0].Label())
		vital = tasks[0].Role() != facts.RoleOther
		if vital {
			severity, step = checks.Critical, checks.Certain
			summary += ": everything that needs it hangs too"
		} else {
			Addf(&e.Against, "none of the hung tasks is the runtime, a shim or the kubelet")
		}
	}
	summary += andMore(len(tasks)-1, "task")
	for _, t := range top(tasks) { // what they do now: the log is of the past
		if p := processNamed(f, t); p != nil && facts.IsUninterruptible(p) {
			Addf(&e.For, "%v is still in %s", *p, facts.StateOf(*p))
		}
	}
	if vital {
		logOfPLEG(f, &e)
	}
	addGaps(f, &e, gapHost)
	return newFinding(severity, step, summary, e, taskSubjects(f, tasks)...).advise(func(s *Steps, _ string) {
		s.Look("journalctl --no-pager -k --since -1h | "+
			"grep -E -A 20 'blocked for more than|soft lockup|rcu.*stall|BUG:|Oops' | tail -n 100",
			"Show the call traces: the lock, mount or device that the tasks wait for.")
		for _, t := range tasks[:min(len(tasks), 2)] {
			s.lookStack(t.PID, "Check if "+t.Label()+" still waits there.")
		}
		s.lookBlocked()
		s.Look("grep . /proc/pressure/io", "Check for slow disks (avg10 near 100): then the tasks may go on.")
		s.lookStacks()
		s.addNodeIf(vital || locked || oops, ifElse(vital || locked,
			"Reboot only if the tasks stay hung; slow disks need none.",
			"Reboot soon: what the kernel had locked stays locked."))
	})
}

// kernelHolds reports whether a hung task, or a CPU, holds up more than itself: it is a part of the runtime or the
// kubelet, or a thread of the kernel.
func kernelHolds(f *facts.Facts) bool {
	holds := func(t facts.LogTask) bool { return t.Role() != facts.RoleOther || t.IsKernels() }
	return facts.LockedUp(f) || slices.ContainsFunc(f.Log.HungTasks, holds)
}

func loggedKernelHung(in *Incident) *Finding {
	codes := []string{signature.HungTask, signature.SoftLockup, signature.RCUStall, signature.KernelOops}
	f := in.early(checks.Strong, "The kernel reports tasks or CPUs that do not move.", codes...)
	if slices.ContainsFunc(in.each(codes...), func(b *journal.Burst) bool {
		return b.Object().Kind == "Process" && journal.TaskRole(b.Object().Name) != journal.RoleOther
	}) {
		f.Step = ifElse(len(f.Evidence.Against) == 0, checks.Certain, f.Step)
		f.supports("the stuck task belongs to the runtime, a container's shim or the kubelet")
	}
	return f
}
