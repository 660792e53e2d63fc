package checks

import (
	"fmt"
	"slices"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

func kernelHung() Definition {
	return Definition{
		Code:  codeKernelHung,
		Title: "the kernel reports hung tasks, soft lockups or RCU stalls",
		Means: "The kernel watches itself. \"blocked for more than 120 seconds\" is a task in uninterruptible sleep that waits for a lock, a disk or a mount; \"soft lockup\" is a CPU that " +
			"has not let go of one task for 20 s and more; an RCU stall is a grace period that does not end, because a CPU or a task holds it up for 21 s and more. " +
			"They are looked at before whatever else is found, because a runtime seldom makes the kernel hang. Two exceptions: a mount that a pod serves (FUSE, CSI, an NFS server in a pod) hangs with that pod, " +
			"and a disk that cannot keep up gives hung task reports of jbd2, xfsaild or a database too, and lets go again.\n\n" +
			"When the task is the runtime, a shim, a runc or the kubelet, its calls hang until the kernel lets it go: RuntimeHung, ListHang, InspectHang, then PLEG. Another task tells of the same lock " +
			"or disk, which the runtime may need next. The kernel warns of hung tasks ten times and is silent after that (hung_task_warnings): that no more comes does not mean that it is over.",
		Confirm: []string{
			"journalctl -k --since -1h | grep -E 'blocked for more than|soft lockup|rcu.*stall' -A 20: the task, and the call trace below it.",
			"cat /proc/PID/stack /proc/PID/wchan: where does it wait? nfs, fuse, xfs, jbd2, cgroup and net_mutex name the culprit.",
			"ps -eo stat,pid,wchan:32,comm | grep '^D', a few times: the same tasks in the same place?",
			"uname -r, and the kernel's list of known faults: several releases hang in cgroup writeback or unmount.",
		},
		Fix: []string{
			"Keep the traces: echo w > /proc/sysrq-trigger writes the stacks of all blocked tasks into the kernel's log.",
			"A dead mount or disk: bring back what it waits for, and it goes on; a mount that a pod serves comes back with that pod, if that can start.",
			"A saturated disk: stop or throttle what writes, and the tasks go on by themselves.",
			"Soft lockups on a virtual machine: look at steal time and at the host beneath.",
			"A fault of the kernel: cordon, drain what can be drained, reboot, change the kernel. No signal reaches the task.",
		},
		Mistaken: "RuntimeHung of a stopped or deadlocked daemon: there the kernel's log is silent. Disks that cannot keep up: the reports name jbd2, xfsaild or whoever writes, other tasks each time, and I/O goes on meanwhile (/proc/pressure/io, iostat); find who writes, no reboot.",
		Sources: []string{
			"Linux: kernel/hung_task.c (120 s, ten warnings), kernel/watchdog.c (soft lockup), kernel/rcu/tree_stall.h",
			"awslabs/amazon-eks-ami#1071, #454 (kernel faults behind PLEG), kubernetes/kubernetes#45419 (runc init in the kernel)",
		},
		RootOf:    []string{codeTaskStuck, codeRuntimeHung, codeRuntimeSlow, codeListHang, codeInspectHang, codeImageServiceHung, codeCNIHung, codePLEGUnhealthy},
		recognise: recogniseKernelHung,
	}
}

// kernelSigns are the signatures of a kernel that hangs, in the order in which a report names them.
func kernelSigns() []struct{ code, noun string } {
	return []struct{ code, noun string }{
		{signature.SoftLockup, "soft lockup"},
		{signature.RCUStall, "RCU stall"},
		{signature.HungTask, "hung task report"},
	}
}

// hungTasks returns the tasks that the kernel reports as hung, those first that the node cannot do without.
func (f *Facts) hungTasks() []task {
	all := f.tasksOf(signature.HungTask, signature.SoftLockup, signature.RCUStall)
	slices.SortStableFunc(all, func(a, b task) int {
		switch {
		case (a.role() != roleOther) == (b.role() != roleOther):
			return 0
		case a.role() != roleOther:
			return -1
		}
		return 1
	})
	return all
}

// processNamed finds a task among the processes of the host; nil when it is not one of the runtime's, or gone.
func (f *Facts) processNamed(t task) *host.Process {
	for i := range f.Processes {
		if t.PID > 0 && f.Processes[i].PID == t.PID {
			return &f.Processes[i]
		}
	}
	return nil
}

func recogniseKernelHung(f *Facts) *Cause {
	if !f.hears() || f.simulated() {
		return nil
	}
	var e Evidence
	first := ""
	for _, sign := range kernelSigns() {
		c := f.logged(sign.code)
		if c == nil {
			continue
		}
		line := units.Count(int(c.Count), sign.noun)
		if c.Last != nil {
			line += " in the kernel's log, last at " + f.clock(*c.Last)
		}
		addf(&e.For, "%s: %s", line, f.quote(c.Example))
		if first == "" {
			first = units.Count(int(c.Count), sign.noun)
		}
	}
	if first == "" {
		return nil
	}
	tasks := f.hungTasks()
	severity, step := Warning, Strong
	summary := "the kernel reports " + first
	if len(tasks) > 0 {
		summary = fmt.Sprintf("the kernel reports %s as hung", tasks[0].label())
		if n := len(tasks) - 1; n > 0 {
			summary += " and " + units.Count(n, "other task")
		}
		switch t := tasks[0]; {
		case t.role() == roleOther:
			addf(&e.Against, "none of the tasks is the runtime, a shim or the kubelet")
		case f.letGo(tasks):
			step = Certain
			summary += ", and has let go of it since"
		default:
			severity, step = Critical, Certain
			summary += ": " + taskMatters(t)
		}
	}
	f.hungTaskStates(&e, tasks)
	if severity == Critical {
		f.hearPLEG(&e)
	}
	if line := f.pressureLine(); line != "" {
		e.For = append(e.For, line)
	}
	f.missingHost(&e)
	c := newCause(codeKernelHung, severity, step, summary, e)
	c.Subject, c.Related = f.taskSubjects(tasks)
	c.NextSteps = f.stepsWhenKernelHung(tasks, severity == Critical || !f.letGo(tasks))
	return c
}

// taskMatters says what hangs with a task.
func taskMatters(t task) string {
	switch t.role() {
	case roleRuntime:
		return "what the runtime serves waits with it"
	case roleKubelet:
		return "the kubelet's work waits with it"
	}
	return "its container cannot be asked, stopped or started meanwhile"
}

// letGo reports whether all tasks that the node cannot do without are seen to run again.
func (f *Facts) letGo(tasks []task) bool {
	seen := false
	for _, t := range tasks {
		if t.role() == roleOther {
			continue
		}
		p := f.processNamed(t)
		if p == nil || isUninterruptible(p) {
			return false
		}
		seen = true
	}
	return seen
}

// hungTaskStates adds what the tasks are doing now: the log is of the past.
func (f *Facts) hungTaskStates(e *Evidence, tasks []task) {
	for _, t := range tasks[:min(len(tasks), topHeaps)] {
		p := f.processNamed(t)
		switch {
		case p == nil:
		case isUninterruptible(p):
			addf(&e.For, "%s is still in %s", processLabel(*p), stateOf(*p))
		default:
			addf(&e.Against, "%s is %s now: the kernel has let it go", processLabel(*p), stateOf(*p))
		}
	}
}

func (f *Facts) stepsWhenKernelHung(tasks []task, lasts bool) []NextStep {
	var s steps
	s.add(TouchesNothing, "journalctl --no-pager -k --since -1h | grep -E -A 20 'blocked for more than|soft lockup|rcu.*stall' | tail -n 100", "The call traces: which lock, mount or device do the tasks wait for?")
	for _, t := range tasks[:min(len(tasks), 2)] {
		if t.PID > 1 {
			s.add(TouchesNothing, fmt.Sprintf("cat /proc/%d/stack /proc/%d/wchan; grep State /proc/%d/status", t.PID, t.PID, t.PID), "Does "+t.label()+" still wait there?")
		}
	}
	s.add(TouchesNothing, "ps -eo stat,pid,wchan:32,etime,comm | grep '^D'", "Look a few times: the same tasks in the same place are stuck.")
	s.add(TouchesNothing, "grep . /proc/pressure/io", "Can the disks not keep up? some avg10 near 100 says so, and that the tasks may go on by themselves.")
	s.add(TouchesNothing, "echo w > /proc/sysrq-trigger; journalctl --no-pager -k -n 200", "Keep the evidence: the stacks of all blocked tasks, which a reboot destroys.")
	if !lasts {
		return s.done()
	}
	addNode(&s, "Only a reboot ends a task that the kernel never lets go of; disks that are merely slow need none.")
	return s.done()
}
