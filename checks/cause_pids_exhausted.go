package checks

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

func pidsExhausted() Definition {
	return Definition{
		Code:  codePIDsExhausted,
		Title: "the node, the runtime or a pod is at its limit of processes and threads",
		Means: "Nothing can be forked. Each thread takes a PID: kernel.pid_max and threads-max count for the node, TasksMax for a unit, pids.max for pods. At the node's limit, or that of the runtime's unit, no shim and no runc can be " +
			"started: pods do not start, probes that exec fail, and what runs goes on. You cannot log in by ssh either; a shell that is open can still use its builtins.\n\n" +
			"Zombies hold PIDs until their parent waits for them: a pod without an init, or a broken kubelet, leaves thousands (kubernetes/kubernetes#54313). " +
			"A pod at its own limit (podPidsLimit) is that pod's trouble, and a warning here.\n\n" +
			"kdiag names who has most: pods and units by their control group, and processes by name, with the parent of most of them. A leak of threads is one process, a server that does not wait for its children one parent, a fork bomb one name.",
		Confirm: []string{
			"cat /proc/sys/kernel/pid_max /proc/sys/kernel/threads-max /proc/loadavg: the number behind the slash is all threads.",
			"systemctl show containerd kubelet -p TasksCurrent -p TasksMax",
			"ps -eo ppid,stat | awk '$2 ~ /^Z/ {n[$1]++} END {for (p in n) print n[p], p}' | sort -rn | head: who does not wait for its children?",
			"The runtime's log: \"resource temporarily unavailable\", \"fork/exec\", \"failed to create new OS thread\".",
		},
		Fix: []string{
			"Find who has the threads, and delete that pod; zombies go when their parent does.",
			"Raise the limit that is reached: TasksMax of the unit, or sysctl kernel.pid_max (up to 4194304 on 64 bits).",
			"Set podPidsLimit in the kubelet's settings, so that the next pod stops at its own limit.",
		},
		Mistaken: "MemoryPressure: fork fails for want of memory with other words (cannot allocate memory). FilesExhausted: \"too many open files\".",
		Sources: []string{
			"kernel: Documentation/admin-guide/sysctl/kernel.rst (pid_max, threads-max), Documentation/admin-guide/cgroup-v2.rst (pids)",
			"kubernetes/kubernetes#54313, #79466, awslabs/amazon-eks-ami#239, containerd/containerd#3781",
		},
		RootOf: []string{
			codeRuntimeDown, codeRuntimeHung, codeRuntimeNotReady, codeRuntimeSlow, codeInspectHang, codeKubeletDown, codeKubeletCrashLooping,
		},
		recognise: recognisePIDsExhausted,
	}
}

// pidsExhaustedExplains reports whether it is the node, the daemon itself or a slice above it that cannot fork: neither pods nor the other
// daemon.
func pidsExhaustedExplains(f *Facts, consequence string) bool {
	other := roleKubelet
	if consequence == codeKubeletDown || consequence == codeKubeletCrashLooping {
		other = roleRuntime
	}
	return slices.ContainsFunc(f.pidLimits(), func(l pidLimit) bool {
		g := host.FrozenCgroup{Path: l.group.Path, Owner: l.group.Owner}
		return !l.pod && l.share >= f.nodeLimits().LimitCritical && cgroupRole(g) != other && !holdsAllPods(g)
	})
}

// A pidLimit is a limit on processes and threads that is nearly used up.
type pidLimit struct {
	name  string
	line  string
	share float64
	there uint64 // processes and threads that count for it
	pod   bool   // of one pod
	group host.CgroupUsage
}

// pidLimits returns the limits that are nearly used up, those of the node and its daemons first.
func (f *Facts) pidLimits() []pidLimit {
	var out []pidLimit
	add := func(p pidLimit, u host.Usage) {
		if p.share = used(u); p.share >= f.nodeLimits().LimitWarning {
			p.line, p.there = p.name+": "+usage(u), u.Current
			out = append(out, p)
		}
	}
	p := f.seen().PIDs.Value
	threads := uint64(max(p.Tasks, 0))
	add(pidLimit{name: "threads of the node are near kernel.pid_max"}, host.Usage{Current: threads, Max: p.PIDMax})
	add(pidLimit{name: "threads of the node are near kernel.threads-max"}, host.Usage{Current: threads, Max: p.ThreadsMax})
	for _, g := range p.Cgroups {
		name := "processes and threads" + or(f.of(g.Owner), " in "+clean(g.Path)) + " are near the limit of their control group"
		add(pidLimit{name: name, pod: g.PodUID != "" || g.ObjectID != "", group: g}, g.Usage)
	}
	slices.SortStableFunc(out, func(a, b pidLimit) int {
		if a.pod != b.pod {
			if b.pod {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.share, a.share)
	})
	return out
}

func recognisePIDsExhausted(f *Facts) *Cause {
	limits := f.pidLimits()
	if len(limits) == 0 {
		return nil
	}
	main := limits[0]
	var e Evidence
	severity := Warning
	for _, l := range limits[:min(len(limits), maxRelated)] {
		addf(&e.For, "%s", l.line)
		if l.group.Events > 0 {
			addf(&e.For, "the kernel refused %s there so far", units.Count(int(min(l.group.Events, 1<<31)), "fork"))
		}
		if !l.pod && l.share >= f.nodeLimits().LimitCritical {
			severity = Critical
		}
	}
	zombies := f.seen().Tasks.Value
	parents := zombies.ZombiesByParent
	if zombies.Zombies >= f.nodeLimits().Zombies && len(parents) > 0 {
		addf(&e.For, "%s; %s are children of %s (pid %d)%s", units.Count(zombies.Zombies, "zombie"), units.Number(parents[0].Count), clean(parents[0].Name), parents[0].PID, f.of(parents[0].Owner))
	}
	holders := f.pidHolders(main)
	f.addHolderLines(&e, holders, main.group.Path == "", "the processes and threads")
	if l := f.logged(signature.ForkRejected); l != nil && strings.Contains(l.Example, main.group.Path) { // others may be at theirs
		f.heard(&e, signature.ForkRejected)
	}
	f.heard(&e, signature.ForkFailed)
	f.seen().PIDs.missing(&e, "further limits on processes")
	f.seen().Holders.missing(&e, "who has the processes")
	c := newCause(codePIDsExhausted, severity, Certain, main.line+ofCulprit(holders), e)
	c.Subject = f.pidSubject(main)
	for _, l := range limits[1:min(len(limits), maxRelated+1)] {
		c.Related = append(c.Related, *f.pidSubject(l))
	}
	c.blame(holders)
	c.NextSteps = f.stepsWhenPIDsExhausted(limits, holders)
	return c
}

func (f *Facts) pidSubject(l pidLimit) *Subject {
	if l.group.Path == "" {
		return &Subject{Kind: "Node", Name: "process table"}
	}
	return new(f.groupSubject(l.group.Path, l.group.Owner))
}

// pidHolders are who has most of the processes that count for a limit: control groups, and then processes by their names.
func (f *Facts) pidHolders(l pidLimit) []holder {
	seen := f.seen().Holders.Value
	var out []holder
	for _, g := range seen.PIDs {
		h := f.groupHolder(g.Path, g.Owner)
		h.share, h.brief = share(g.Current, l.there), fmt.Sprintf("%s has %s of them", h.name, units.Number(g.Current))
		h.line = fmt.Sprintf("%s, %s", h.brief, units.Percent(h.share))
		switch {
		case g.Max > 0:
			h.line += ", and a limit of " + units.Number(g.Max)
		case g.PodUID != "":
			h.line += ", and no limit"
		}
		if safeDir(g.Dir) {
			h.show = NextStep{Command: fmt.Sprintf("grep . '%s'/pids.*", g.Dir), Why: "Does the number of " + h.name + " grow? Look twice."}
		}
		out = append(out, h)
	}
	for _, c := range seen.ProcessGroups {
		if z := f.seen().Tasks.Value.ZombiesByParent; len(z) == 0 || z[0].PID != c.PID || z[0].Count < f.nodeLimits().Zombies {
			out = append(out, f.crowdHolder(c, l.there))
		}
	}
	return worthNaming(out)
}

// crowdHolder describes the processes of one name: one with many threads, the children of one parent, or a fork bomb.
func (f *Facts) crowdHolder(c host.ProcessGroup, all uint64) holder {
	name, threads := clean(c.Name), uint64(max(c.Threads, 0))
	part := units.Percent(share(threads, all))
	var h holder
	switch {
	case c.Processes == 1:
		h = f.processHolder(c.PID, c.Name, c.Owner)
		h.line = fmt.Sprintf("%s has %s, %s", h.name, units.Count(c.Threads, "thread"), part)
		h.show = NextStep{
			Command: fmt.Sprintf("ps -L -o comm= -p %d | sort | uniq -c | sort -rn | head -n 10", c.PID),
			Why:     "Of which kind are the threads of " + h.name + "? They often have names of their own.",
		}
	case c.PID > 0:
		h = f.processHolder(c.PID, c.Parent, c.Owner)
		h.line = fmt.Sprintf("%s processes called %s have %s, %s; most are children of %s", units.Number(c.Processes), name, units.Count(c.Threads, "thread"), part, h.name)
		h.show = NextStep{
			Command: fmt.Sprintf("ps -o pid,nlwp,stat,etime,comm --ppid %d | tail -n 15", c.PID),
			Why:     "What has " + h.name + " started, and does it wait for them?",
		}
	default:
		h = holder{name: "processes called " + name, subject: Subject{Kind: "Process", Name: name}}
		h.line = fmt.Sprintf("%s processes called %s have %s, %s; no parent has most of them", units.Number(c.Processes), name, units.Count(c.Threads, "thread"), part)
		if safe(c.Name) {
			h.show = NextStep{
				Command: "ps -o pid,ppid,nlwp,stat,etime -C " + c.Name + " | tail -n 15",
				Why:     "Where do they come from? A fork bomb is children of children, all of the same name and age.",
			}
		}
	}
	h.share, h.brief = share(threads, all), h.line
	return h
}

// pidsDir is where the limit of a control group can be read and set, safe to paste in single quotes; empty for none.
func (f *Facts) pidsDir(g host.CgroupUsage) string {
	switch {
	case !safeCgroup.MatchString(g.Path) || strings.Contains(g.Path, ".."):
		return ""
	case f.seen().Cgroups.Value.Version == 1:
		return "/sys/fs/cgroup/pids" + g.Path
	}
	return "/sys/fs/cgroup" + g.Path
}

func (f *Facts) stepsWhenPIDsExhausted(limits []pidLimit, holders []holder) []NextStep {
	var s steps
	if dir := f.pidsDir(limits[0].group); dir != "" {
		s.add(TouchesNothing, fmt.Sprintf("grep . '%s'/pids.*", dir), "How many are there, against which limit, and how often was a fork refused?")
	}
	if !limits[0].pod {
		s.add(TouchesNothing, "cat /proc/sys/kernel/pid_max /proc/sys/kernel/threads-max /proc/loadavg", "How many threads are there (behind the slash), against which limit?")
	}
	f.addHolders(&s, holders, "Ends them all. Its replacement starts with none, and may get there again: it needs a limit (podPidsLimit).")
	if !shown(holders) {
		s.add(TouchesNothing, "ps -eo nlwp,pid,ppid,stat,comm --sort=-nlwp | head -n 15", "Who has the threads?")
	}
	if z := f.seen().Tasks.Value.ZombiesByParent; len(z) > 0 && z[0].PID > 1 && z[0].Count >= f.nodeLimits().Zombies {
		s.add(TouchesNothing, "cat /proc/"+strconv.Itoa(z[0].PID)+"/cgroup", fmt.Sprintf("%s (pid %d) does not wait for its children: whose is it? Zombies go when their parent ends.", clean(z[0].Name), z[0].PID))
		f.addDeletePodByUID(&s, z[0].PodUID, "Ends the parent of the zombies, and with it the zombies.")
	}
	for _, l := range limits[:min(len(limits), 3)] {
		switch unit := strings.TrimSpace(l.group.Unit); {
		case l.pod:
			f.addDeletePodByUID(&s, l.group.PodUID, "The pod at its limit. Its replacement starts with no threads, and may get there again.")
		case l.group.Path == "":
			s.add(TouchesScheduler, "sysctl -w kernel.pid_max=4194304", "Raises the node's limit until the next boot, where that is the one reached. The leak goes on.")
		case safe(unit):
			s.add(TouchesScheduler, "systemctl set-property --runtime "+unit+" TasksMax=infinity", "Takes the limit off the unit until the next boot, without a restart.")
		case f.pidsDir(l.group) != "":
			s.add(TouchesScheduler, fmt.Sprintf("echo max > '%s/pids.max'", f.pidsDir(l.group)), "Takes the limit off the control group until the next boot, without a restart.")
		}
	}
	if !limits[0].pod {
		s.add(TouchesScheduler, `kubectl cordon "$(hostname)"`, "No new pod can start here.")
	}
	return s.done()
}
