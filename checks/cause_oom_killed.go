package checks

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// manyOOMs is how many times the kernel must have killed for memory in the window before it is the node's trouble and not
// that of one container with a limit.
const manyOOMs = 3

// oomPause parts one kill, which may be of many processes at once, from the next.
const oomPause = 2 * time.Second

func oomKilled() Definition {
	return Definition{
		Code:  codeOOMKilled,
		Title: "the kernel killed processes that the node needs, or many, for memory",
		Means: "The kernel ran out of memory and killed a process: on the whole node, or in a cgroup over its limit. That one container over its own limit is killed is daily business and no trouble of " +
			"the node; kdiag does not report it. It does report the runtime, the kubelet or a shim among the victims, kills again and again, and any kill for want of memory on the whole node.\n\n" +
			"A killed daemon is started again by systemd: RuntimeDown or KubeletCrashLooping for a moment. With a killed containerd-shim, containerd ends the containers of its pod; " +
			"when conmon (CRI-O) is killed, the container runs on and nobody watches it: its exit and its output are lost. Either may leave a lock held or a mount in place, so that the status of " +
			"its objects hangs: InspectHang, and so PLEG. Before the kill the node often crawls for minutes, since reclaiming memory comes first.",
		Confirm: []string{
			"journalctl -k --since -1h | grep -iE 'invoked oom-killer|oom-kill:|out of memory': who asked, who was killed, and in which cgroup?",
			"constraint=CONSTRAINT_NONE is the whole node; CONSTRAINT_MEMCG is the limit of one cgroup, which oom_memcg= names. oom_memcg=/kubepods.slice or /kubepods is all pods together (the node's allocatable), " +
				"not one container.",
			"grep . /proc/pressure/memory: full avg10 over 5 says that it goes on.",
			"systemctl show containerd kubelet -p MemoryMax -p OOMScoreAdjust: does a unit have a limit of its own, or a bad score?",
		},
		Fix: []string{
			"Find who used the memory up: the table of tasks that the kernel wrote with the kill.",
			"Give its pods limits, or move them; reserve memory for the system (systemReserved, kubeReserved, evictionHard).",
			"A unit with MemoryMax: raise it. containerd and CRI-O grow with the number of containers, dead ones too.",
			"A pod whose shim or conmon was killed: delete it; what hangs is listed as a consequence.",
			"All pods together over their limit: give pods requests that fit what they use, so that the scheduler places fewer here.",
		},
		Mistaken: "A container with reason OOMKilled in kubectl describe pod: its own limit, not this. RuntimeHung while memory is short but nothing was killed yet: /proc/pressure/memory tells.",
		Sources: []string{
			"Linux: mm/oom_kill.c (oom-kill:constraint=, Out of memory: Killed process, Memory cgroup out of memory)",
			"systemd: src/core/service.c (A process of this unit has been killed by the OOM killer)",
			"kubernetes/kubernetes#72533 (memory without reserve before the hang)",
		},
		RootOf:    []string{codeRuntimeDown, codeListHang, codeInspectHang, codeKubeletCrashLooping, codeKubeletDown},
		recognise: recogniseOOMKilled,
	}
}

// oomVictims returns the tasks that the kernel killed for memory, each once, in the order of the journal.
func (f *Facts) oomVictims() []task {
	return f.tasksOf(signature.OOMKill)
}

// tasksOf returns the tasks that records of the signatures name, each once.
func (f *Facts) tasksOf(codes ...string) []task {
	var out []task
	add := func(t task) {
		if t.Name == "" && t.PID == 0 {
			return
		}
		i := slices.IndexFunc(out, func(o task) bool { return o.Name == t.Name && (o.PID == t.PID || o.PID == 0 || t.PID == 0) })
		if i < 0 {
			out = append(out, t)
		} else {
			out[i].PID, out[i].InPod = max(out[i].PID, t.PID), out[i].InPod || t.InPod
		}
	}
	for _, code := range codes {
		for _, s := range f.subjectsOf(code) {
			add(f.taskOf(code, s))
		}
	}
	for _, e := range f.incidents() {
		for _, k := range e.Culprits {
			if k.Kind == "Process" && slices.Contains(codes, k.Example) {
				t := taskIn(or(k.Name, k.ID))
				if t.PID == 0 && k.Name != "" {
					t.PID = taskIn(k.ID).PID
				}
				add(t)
			}
		}
	}
	return out
}

// nodeVictims returns the victims that the node cannot do without. An OCI runtime is none: it dies in the cgroup of the
// container that it is setting up, of that container's limit.
func (f *Facts) nodeVictims() []string {
	var names []string
	for _, v := range f.oomVictims() {
		if r := v.role(); r != roleOther && r != roleOCI {
			names = append(names, v.label())
		}
	}
	for _, r := range []role{roleRuntime, roleKubelet} {
		for _, u := range f.unitsOf(signature.UnitOOMKilled, r) {
			if !slices.ContainsFunc(f.oomVictims(), func(v task) bool { return v.role() == r }) {
				names = append(names, "a process of "+clean(u.ID))
			}
		}
	}
	return names
}

// oomHits reports whether the OOM killer hit a task or unit of a role.
func (f *Facts) oomHits(r role) bool {
	return slices.ContainsFunc(f.oomVictims(), func(v task) bool { return v.role() == r }) || len(f.unitsOf(signature.UnitOOMKilled, r)) > 0
}

// oomBeforePLEG reports whether the newest incident of PLEG may come from a victim that the node cannot do without: killed
// before it ended, and not long before its last good relist began.
func (f *Facts) oomBeforePLEG() bool {
	const before = 2 * time.Minute // a relist that runs into what was left behind waits as long for its first call
	all, last := f.incidents(), f.lastOf(signature.OOMKill, signature.UnitOOMKilled)
	if len(all) == 0 || last == nil || len(f.nodeVictims()) == 0 {
		return false
	}
	e := all[len(all)-1]
	return !last.After(*e.End) && !last.Before(timeOr(e.Anchor, *e.Start).Add(-before))
}

// oomGlobal reports whether a kill was for want of memory on the whole node, as far as the journal says.
func (f *Facts) oomGlobal() bool {
	global := func(text string) bool {
		s := strings.ToLower(text)
		return containsAny(s, []string{"constraint_none", "global_oom", "system oom"}) ||
			strings.Contains(s, "out of memory: kill") && !strings.Contains(s, "memory cgroup out of memory")
	}
	for _, code := range []string{signature.OOMKill, signature.OOMInvoked} {
		if c := f.logged(code); c != nil && global(c.Example) {
			return true
		}
	}
	return false
}

// oomKills counts kills. A container's processes are killed together (memory.oom.group), a line each.
func (f *Facts) oomKills() int { return f.occasions(oomPause, signature.OOMKill) }

func recogniseOOMKilled(f *Facts) *Cause {
	if !f.hears() || f.simulated() {
		return nil
	}
	victims, kills, global := f.nodeVictims(), f.oomKills(), f.oomGlobal()
	if len(victims) == 0 && kills < manyOOMs && !global {
		return nil
	}
	var e Evidence
	severity, step := Warning, Strong
	var summary string
	switch {
	case len(victims) > 0:
		severity, step = Critical, Certain
		summary = "the kernel killed " + units.List(head(victims, topHeaps)) + " for want of memory"
		addf(&e.For, "among the victims of the OOM killer: %s", units.List(head(victims, maxRelated)))
	case global:
		summary = "the node ran out of memory, and the kernel killed " + f.victimsLine()
	default:
		summary = fmt.Sprintf("the kernel killed for memory %s in the last %s: %s", units.Times(kills), units.Duration(f.journalWindow()), f.victimsLine())
		addf(&e.Against, "none of the victims is the runtime, the kubelet or a shim")
	}
	if last := f.lastOf(signature.OOMKill, signature.UnitOOMKilled); last != nil {
		summary += ", last at " + f.clock(*last)
	}
	if kills > 0 {
		addf(&e.For, "%s in the last %s: %s", units.Count(kills, "kill"), units.Duration(f.journalWindow()), f.victimsLine())
	}
	if global {
		addf(&e.For, "memory was short on the whole node, not only in one cgroup")
	}
	if example := f.firstExample(signature.OOMKill, signature.UnitOOMKilled); example != "" {
		addf(&e.For, "the first record: %s", example)
	}
	if f.oomBeforePLEG() {
		f.hearPLEG(&e)
	}
	f.memoryNow(&e)
	c := newCause(codeOOMKilled, severity, step, summary, e)
	c.Subject, c.Related = f.taskSubjects(f.oomVictims())
	c.NextSteps = f.stepsWhenOOM()
	return c
}

// memoryNow adds whether memory is short at this moment: the kill is past.
func (f *Facts) memoryNow(e *Evidence) {
	n := f.seen()
	if m := n.Memory; m.OK && m.Value.Total > 0 {
		addf(&e.For, "now %s of %s are available", units.Size(m.Value.Available), units.Size(m.Value.Total))
	}
	p := n.Pressure.Value.Memory
	switch {
	case !n.Pressure.OK || p == nil:
		addf(&e.Missing, "pressure of memory (/proc/pressure/memory) was not read: whether it goes on is not known")
	case p.Full.Avg10 >= f.nodeLimits().MemoryFull:
		addf(&e.For, "it goes on: all tasks waited for memory for %s", pressure(p.Full))
	default:
		addf(&e.For, "memory is not short at this moment: all tasks waited for it for %s", pressure(p.Full))
	}
}

// head returns the first few of a list.
func head(list []string, n int) []string { return list[:min(len(list), n)] }

// victimsLine names the victims.
func (f *Facts) victimsLine() string {
	var names []string
	all := f.oomVictims()
	for _, v := range all[:min(len(all), topHeaps)] {
		names = append(names, v.label())
	}
	if more := len(all) - len(names); more > 0 {
		names = append(names, units.Count(more, "other"))
	}
	return or(units.List(names), "processes that the log does not name")
}

// taskSubjects names tasks as culprits, those first that the node cannot do without.
func (f *Facts) taskSubjects(all []task) (*Subject, []Subject) {
	ordered := slices.Clone(all)
	slices.SortStableFunc(ordered, func(a, b task) int {
		switch important := func(t task) bool { return t.role() != roleOther }; {
		case important(a) == important(b):
			return 0
		case important(a):
			return -1
		}
		return 1
	})
	var subjects []Subject
	for _, t := range ordered[:min(len(ordered), maxRelated+1)] {
		s := Subject{Kind: "Process", Name: clean(t.Name)}
		if t.PID > 0 {
			s.ID = fmt.Sprint(t.PID)
		}
		if p := f.processNamed(t); p != nil {
			s.Processes = []Process{f.processOf(*p)}
		}
		subjects = append(subjects, s)
	}
	if len(subjects) == 0 {
		return &Subject{Kind: "Node", Name: "the kernel"}, nil
	}
	return &subjects[0], subjects[1:]
}

func (f *Facts) stepsWhenOOM() []NextStep {
	var s steps
	s.add(TouchesNothing, "journalctl --no-pager -k --since -1h | grep -iE 'invoked oom-killer|oom-kill:|out of memory'", "Who asked for memory, who was killed, and was it one cgroup or the whole node?")
	s.add(TouchesNothing, "grep . /proc/pressure/memory; free -m", "Is memory still short? full avg10 over 5 says so.")
	s.add(TouchesNothing, "ps -eo pid,rss,etime,comm --sort=-rss | head -n 15", "Who holds most of it now?")
	if f.oomHits(roleRuntime) && f.unit() != "" {
		s.add(TouchesNothing, "systemctl show "+f.unit()+" -p MemoryMax -p MemoryCurrent -p OOMScoreAdjust", "Does the runtime's unit have a limit of its own?")
	}
	s.add(TouchesScheduler, `kubectl cordon "$(hostname)"`, "No new pod should start here while memory is short.")
	return s.done()
}
