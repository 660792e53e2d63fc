package checks

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/plegbench"
)

func taskStuck() Definition {
	return Definition{
		Code:  codeTaskStuck,
		Title: "a process of a container, a shim, the runtime or the kubelet is stuck in the kernel",
		Means: "A task is in uninterruptible sleep (state D) and stays there: it waits in the kernel for a disk, a mount, a lock, and signals do not reach it. A container with such a task cannot be stopped: its pod " +
			"stays in Terminating. A runc or shim in this state holds the lock of its container, so that the status of that container hangs, or the whole container list; a runtime in it answers nothing.\n\n" +
			"Whoever uses a busy disk is in this state for moments, even in two looks. kdiag calls a task stuck when something else says the same: the kernel's report after 120 s, a mount or a write that does not " +
			"come back, a hung call about the same pod, a runc that should have ended long ago.",
		Confirm: []string{
			"ps -eLo stat,pid,tid,wchan:32,etime,comm | grep '^D', a few times: the same task in the same place?",
			"cat /proc/PID/task/TID/stack as root: nfs_ and rpc_ are a network file system, fuse_ a FUSE daemon, jbd2_, xfs_ and blk_ a disk, cgroup_ a lock of the control groups, copy_net_ns the network namespaces.",
			"journalctl -k --since -1h | grep 'blocked for more than': does the kernel report it?",
		},
		Fix: []string{
			"Bring back what it waits for: the file server, the FUSE daemon, the disk. It goes on by itself then.",
			"A function that ends in _killable lets SIGKILL through, and only that.",
			"A network mount whose server is gone for good: umount -f, then umount -l. Do not restart the kubelet while a mount hangs: it may not come up again.",
			"A lock of the kernel, or a disk that is gone: keep the stacks (echo w > /proc/sysrq-trigger), cordon, drain what can be drained, reboot.",
		},
		Mistaken: "IOStall: there tasks are in state D for moments, other ones each time, and go on. CgroupFrozen: on cgroup v1 a frozen task is shown as D as well, in __refrigerator or, since Linux 6.1, where it slept. A zombie (Z) is dead and waits for its parent only.",
		Sources: []string{
			"Linux: Documentation/filesystems/proc.rst (stack, wchan), kernel/hung_task.c, include/linux/sched.h (TASK_KILLABLE)",
			"kubernetes/kubernetes#45419 (runc init in the kernel), #94829 (one container on NFS), containerd/containerd#9770 (umount in a shim)",
		},
		RootOf:    []string{codeShimStuck, codeRuntimeHung, codeRuntimeSlow, codeCNIHung, codeListHang, codeInspectHang, codeKubeletStalled},
		recognise: recogniseTaskStuck,
	}
}

// A witness is what says, beside two looks, that a task is stuck and not only busy; empty for none.
func (f *Facts) witness(t host.BlockedTask) string {
	n := f.seen()
	for _, k := range f.hungTasks() {
		if k.PID > 0 && (k.PID == t.PID || k.PID == t.TID) {
			return "the kernel reports it as blocked for more than 120 s"
		}
	}
	if i, ok := f.heldBy(t); ok {
		return "the status of " + label(i) + " hangs with it"
	}
	switch w := waitOf(t); {
	case t.Role == host.RoleRuntime && f.wholeHang() != hangNone:
		return "the runtime answers nothing"
	case t.Role == host.RoleCNI && f.rpc(rpcStatus).Outcome == hung:
		return "Status, which waits for CNI operations, hangs"
	case (w == waitNetworkFS || w == waitFUSE || w == waitUnmount) && n.silentMount():
		return "a mount does not answer"
	case (w == waitDisk || w == waitUnmount) && n.silentDisk():
		return "a write to the disk does not end"
	}
	for _, p := range f.oldProcesses(host.RoleOCI, longOCI) {
		if p.PID == t.PID {
			return "it should have ended after a second or two, and has been at work for " + units.Duration(f.age(p))
		}
	}
	return ""
}

// heldBy returns the hung status call about the object or pod of a task. Where the shim of that pod is stopped, it is the shim that the
// call waits for, and not what a process of the container does.
func (f *Facts) heldBy(t host.BlockedTask) (plegbench.Inspection, bool) {
	i, ok := f.hungObjectOf(t.Owner)
	stopped := slices.ContainsFunc(f.stoppedShims(), func(p host.Process) bool { return serves(ownerOf(p), i) })
	return i, ok && (t.Role != "" || !stopped)
}

// taskWeight orders tasks by how much waits with them.
func taskWeight(t host.BlockedTask) int {
	i := slices.Index([]host.Role{host.RoleRuntime, host.RoleKubelet, host.RoleOCI, host.RoleShim, host.RoleCNI}, t.Role)
	if i < 0 {
		return 5
	}
	return i
}

// stuckTasks returns the blocked tasks of runtime, kubelet, shims and containers that something else calls stuck as well, those
// first with which most waits. A frozen task is none: it is the freeze that holds it.
func (f *Facts) stuckTasks() []host.BlockedTask {
	var stuck []host.BlockedTask
	for _, t := range f.seen().Tasks.Value.Blocked {
		if isOurs(t.Owner) && waitOf(t) != waitFrozen && !f.isFrozen(t) && f.witness(t) != "" {
			stuck = append(stuck, t)
		}
	}
	slices.SortStableFunc(stuck, func(a, b host.BlockedTask) int { return cmp.Compare(taskWeight(a), taskWeight(b)) })
	return stuck
}

// isFrozen reports whether a task lies in a frozen control group. Since Linux 6.1 one that was asleep stays where it slept, in state D, and no
// function of its stack tells (kernel/freezer.c). In a group that has not stopped whole, one that waits for something known holds that up.
func (f *Facts) isFrozen(t host.BlockedTask) bool {
	return slices.ContainsFunc(f.seen().Cgroups.Value.Frozen, func(g host.FrozenCgroup) bool {
		switch {
		case g.Freezing && waitOf(t) != waitUnknown:
			return false
		case g.ObjectID != "":
			return g.ObjectID == t.ObjectID
		case g.PodUID != "":
			return g.PodUID == t.PodUID
		case t.ObjectID != "" || t.PodUID != "":
			return holdsAllPods(g)
		}
		return g.Unit != "" && g.Unit == t.Unit
	})
}

// taskName names a blocked task: java (pid 7011) of web/checkout-1 (app).
func (f *Facts) taskName(t host.BlockedTask) string {
	return fmt.Sprintf("%s (pid %d)%s", clean(t.Name), t.PID, f.of(t.Owner))
}

func recogniseTaskStuck(f *Facts) *Cause {
	stuck := f.stuckTasks()
	if len(stuck) == 0 {
		return nil
	}
	main := stuck[0]
	var e Evidence
	severity, step := Warning, Strong
	for _, t := range stuck[:min(len(stuck), topHeaps)] {
		f.addTaskLine(&e, t)
	}
	if more := len(stuck) - topHeaps; more > 0 {
		addf(&e.For, "%s more", units.Count(more, "task"))
	}
	addf(&e.For, "it lasts: %s", f.witness(main))
	for _, t := range stuck {
		_, holds := f.heldBy(t)
		if holds || t.Role == host.RoleRuntime || t.Role == host.RoleKubelet {
			severity = Critical
		}
	}
	if waitOf(main) == waitUnknown {
		step = Fair
		addf(&e.Missing, "what it waits for: its kernel stack was not read, or names nothing that kdiag knows")
	} else if len(main.Stack) > 0 {
		step = Certain
	}
	f.seen().Tasks.missing(&e, "other tasks")
	what := waitOf(main).String()
	summary := fmt.Sprintf("%s is stuck in the kernel and waits for %s", f.taskName(main), what)
	if n := len(stuck) - 1; n > 0 {
		summary += fmt.Sprintf("; %s more", units.Count(n, "task"))
	}
	c := newCause(codeTaskStuck, severity, step, summary, e)
	for i, t := range stuck[:min(len(stuck), maxRelated+1)] {
		if s := f.blockedSubject(t); i == 0 {
			c.Subject = &s
		} else {
			c.Related = append(c.Related, s)
		}
	}
	c.NextSteps = f.stepsWhenTaskStuck(stuck)
	return c
}

// addTaskLine says where a task waits.
func (f *Facts) addTaskLine(e *Evidence, t host.BlockedTask) {
	at := where(t)
	if at == "" {
		at = "a place that may not be read"
	}
	line := fmt.Sprintf("%s is in uninterruptible sleep in two looks, in %s", f.taskName(t), at)
	if w := waitOf(t); w != waitUnknown {
		line += ": it waits for " + w.String()
	}
	e.For = append(e.For, line)
}

// addBlocked adds the blocked tasks that belong to one of the objects.
func (f *Facts) addBlocked(e *Evidence, ids ...string) {
	for _, t := range f.seen().Tasks.Value.Blocked {
		if t.ObjectID != "" && slices.Contains(ids, t.ObjectID) {
			f.addTaskLine(e, t)
		}
	}
}

// blockedSubject names a task as a culprit.
func (f *Facts) blockedSubject(t host.BlockedTask) Subject {
	s := f.owned(t.Owner)
	s.Kind, s.ID, s.Name = "Process", fmt.Sprint(t.PID), clean(t.Name)
	p := host.Process{PID: t.PID, Name: t.Name, Role: t.Role, State: 'D', Wchan: t.Wchan, Started: t.Started}
	s.Processes = []Process{f.processOf(p)}
	return s
}

func (f *Facts) stepsWhenTaskStuck(stuck []host.BlockedTask) []NextStep {
	var s steps
	for _, t := range stuck[:min(len(stuck), 2)] {
		if t.PID <= 1 {
			continue
		}
		tid := max(t.TID, t.PID)
		s.add(TouchesNothing, fmt.Sprintf("cat /proc/%d/task/%d/stack /proc/%d/task/%d/wchan; grep State /proc/%d/task/%d/status", t.PID, tid, t.PID, tid, t.PID, tid),
			"Does "+f.taskName(t)+" still wait there? Do not touch files of its mounts with a shell: that shell would hang as well.")
		if w := waitOf(t); w == waitNetworkFS || w == waitFUSE || w == waitUnmount {
			s.add(TouchesNothing, fmt.Sprintf("grep -E ' (nfs|cifs|ceph|fuse|9p)' /proc/%d/mounts", t.PID), "Which mounts over the network does it see? Reading the table does not hang.")
		}
		if isKillable(t) && t.Role == "" {
			s.add(TouchesPod, fmt.Sprintf("kill -KILL %d", t.PID), "It waits killably: SIGKILL ends this process of "+or(f.ownerLabel(t.Owner), "the host")+", no other signal does.")
		}
	}
	s.add(TouchesNothing, "ps -eLo stat,pid,tid,wchan:32,etime,comm | grep '^D'", "Look a few times: the same tasks in the same place are stuck, changing ones are a busy disk.")
	s.add(TouchesNothing, "echo w > /proc/sysrq-trigger; journalctl --no-pager -k -n 200", "Keep the evidence: the stacks of all blocked tasks, which a reboot destroys.")
	if f.isConsequence(codeTaskStuck) {
		return s.done()
	}
	addNode(&s, "No signal ends what waits uninterruptibly: if what it waits for does not come back, only a reboot does.")
	return s.done()
}

// taskStuckExplains reports whether a stuck task is why something else is not well: the same object or pod, or the daemon itself.
func taskStuckExplains(f *Facts, consequence string) bool {
	linked := func(want func(host.BlockedTask) bool) bool { return slices.ContainsFunc(f.stuckTasks(), want) }
	switch consequence {
	case codeRuntimeHung, codeRuntimeSlow:
		return linked(func(t host.BlockedTask) bool { return t.Role == host.RoleRuntime })
	case codeKubeletStalled:
		return linked(func(t host.BlockedTask) bool { return t.Role == host.RoleKubelet })
	case codeCNIHung:
		return linked(func(t host.BlockedTask) bool { return t.Role == host.RoleCNI })
	case codeShimStuck:
		ids := f.stuckShimIDs()
		return linked(func(t host.BlockedTask) bool { return slices.Contains(ids, t.ObjectID) })
	case codeInspectHang:
		return linked(func(t host.BlockedTask) bool { _, ok := f.heldBy(t); return ok })
	case codeListHang: // a list waits for the lock of one container: whose status hangs, or whose runc or shim is stuck
		if len(f.inspectionsThat(isHung)) == 0 {
			return linked(func(t host.BlockedTask) bool { return t.Role == host.RoleOCI || t.Role == host.RoleShim })
		}
		return linked(func(t host.BlockedTask) bool {
			_, ok := f.heldBy(t)
			return ok
		})
	}
	return false
}
