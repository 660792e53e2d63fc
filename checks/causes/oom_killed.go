package causes

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// OOMKilled is the code of this cause.
const OOMKilled = "OOMKilled"

// oomHits reports whether the OOM killer hit a task or unit of a role.
func oomHits(f *facts.Facts, r facts.Role) bool {
	if slices.ContainsFunc(f.Log.OOMCounted, func(k facts.CountedKill) bool { return k.Role == r }) {
		return true
	}
	return slices.ContainsFunc(f.Log.OOMVictims, func(v facts.LogTask) bool { return v.Role() == r }) ||
		len(facts.UnitsOf(f, signature.UnitOOMKilled, r)) > 0
}

func recogniseOOMKilled(f *facts.Facts) *Finding {
	victims, shared, mended := f.Log.NodeVictims, f.Log.OOMShared, false
	if len(victims) == 0 && len(f.Log.OOMCounted) > 0 {
		return countedOOM(f)
	}
	if !f.Log.Read || f.Target.Simulated || len(victims) == 0 && len(shared) == 0 && !f.Log.OOMGlobal {
		return nil
	}
	var e checks.Evidence
	step, summary := checks.Strong, ""
	subjects := []checks.Subject{ofNode("memory")}
	switch {
	case len(victims) > 0:
		mended = facts.OOMMended(f)
		step = ifElse(mended, checks.Weak, checks.Certain)
		summary = "the kernel OOM-killed " + units.List(top(victims))
		subjects = taskSubjects(f, slices.DeleteFunc(slices.Clone(f.Log.OOMVictims),
			func(t facts.LogTask) bool { return t.Role() == facts.RoleOther }))
	case f.Log.OOMGlobal:
		summary = "the node ran out of memory: the kernel OOM-killed " + cmp.Or(
			firstOf(f.Log.OOMVictims, facts.LogTask.Label, "process"), "processes that the log does not name")
	default:
		k := shared[0]
		summary = textf("%s reached its memory limit: the kernel OOM-killed %s in it %s", facts.Clean(k.Limit),
			cmp.Or(facts.Clean(k.Task), "processes"), units.Times(int(k.Count)))
		subjects = []checks.Subject{{Kind: "Cgroup", Name: facts.Clean(k.Limit)}}
	}
	if last := facts.LastKill(f); last != nil {
		summary += ", last at " + facts.ClockText(f, *last)
	}
	summary += ifElse(mended, "; it is over", "")
	addIf(f.Log.OOMGlobal, &e.For, "the node itself ran out of memory, not only one control group")
	for _, k := range top(shared) {
		Addf(&e.For, "%s reached its memory limit: %s OOM-killed %s", facts.Clean(k.Limit), facts.Clean(k.Task),
			units.Times(int(k.Count)))
	}
	if len(f.Log.OOMOwn) == 0 {
		logEvidence(f, &e, signature.OOMKill, signature.UnitOOMKilled)
	}
	if f.Log.OOMBeforePLEG {
		logOfPLEG(f, &e)
	}
	if p := f.Seen.Pressure.Value.Memory; !f.Seen.Pressure.OK || p == nil {
		Addf(&e.Missing, "memory pressure (/proc/pressure/memory) was not read: it may still be short")
	} else if f.Pressure.MemorySeverity != "" {
		Addf(&e.For, "memory is still short: all tasks waited for it for %s", pressureText(p.Full))
	}
	severity := criticalIf(len(victims) > 0 && !mended)
	return newFinding(severity, step, summary, e, subjects...).advise(func(s *Steps, _ string) {
		s.Look("journalctl --no-pager -k --since -1h | grep -iE 'oom-kill|out of memory'",
			"Show who was killed, and at which limit (oom_memcg).")
		adviseOOM(f, s, mended)
	})
}

// adviseOOM appends the looks at what memory there is, and at the limits of the daemons that were killed.
func adviseOOM(f *facts.Facts, s *Steps, mended bool) {
	s.lookIf(!mended, "grep . /proc/pressure/memory; free -m", "Check if memory is still short: full avg10 > 5.")
	s.lookIf(!mended, "ps -eo pid,rss,etime,comm --sort=-rss | head -n 15", "List who holds most memory now.")
	s.lookIf(oomHits(f, facts.RoleRuntime) && f.Target.Unit != "",
		"systemctl show "+f.Target.Unit+" -p MemoryMax -p MemoryCurrent",
		"Check the memory limit of the runtime's unit.")
	s.lookIf(oomHits(f, facts.RoleKubelet), "systemctl show "+f.Target.KubeletUnit+" -p MemoryMax -p MemoryCurrent",
		"Check the memory limit of the kubelet's unit.")
	if f.Pressure.MemoryLow {
		s.cordon()
	}
}

// countedOOM is the finding for daemons that were OOM-killed as their groups' memory.events and their units show.
func countedOOM(f *facts.Facts) *Finding {
	var e checks.Evidence
	var subjects []checks.Subject
	first, mended := f.Log.OOMCounted[0], true
	for _, k := range f.Log.OOMCounted {
		unit := facts.Clean(k.Unit.Name)
		mended = mended && k.Mended
		if k.Group != nil {
			Addf(&e.For, "the kernel has OOM-killed %s in %s since the group was made (memory.events)",
				units.Count(int(k.Group.Kills), "process"), facts.Clean(k.Group.Path))
			limit, file := facts.MemoryLimit(*k.Group)
			addIf(limit > 0, &e.For, "%s of %s is %s, and it has %s", file, unit, units.Size(limit),
				units.Size(k.Group.Current))
		}
		Addf(&e.For, "systemd: %s", UnitLine(f, k.Unit))
		subjects = append(subjects, checks.Subject{Kind: "Unit", Name: k.Unit.Name})
	}
	addIf(!f.Log.Read || f.Log.From.After(first.Last), &e.Missing, "the kernel's record of the kill: the journal %s",
		ifElse(f.Log.Read, "begins at "+facts.ClockText(f, f.Log.From), "was not read"))
	summary := "the kernel OOM-killed a process of " + facts.Clean(first.Unit.Name) +
		ifElse(first.Runs, ", which systemd started again at ", " at ") + facts.ClockText(f, first.Last) +
		ifElse(mended, "; it is over", "")
	return newFinding(criticalIf(!mended), ifElse(mended, checks.Weak, checks.Strong), summary, e, subjects...).
		advise(func(s *Steps, _ string) {
			for _, k := range f.Log.OOMCounted {
				if k.Group != nil && safeDir(k.Group.Dir) {
					s.Look("(cd '"+k.Group.Dir+"' && grep -s . memory.events.local memory.max memory.current memory.pressure)",
						"Show its limit, and how often it met it: max, oom, oom_kill.")
				}
			}
			adviseOOM(f, s, mended)
		})
}

// taskSubjects names tasks as culprits, those first that the node cannot do without.
func taskSubjects(f *facts.Facts, all []facts.LogTask) []checks.Subject {
	if len(all) == 0 {
		return []checks.Subject{ofNode("the kernel")}
	}
	rank := func(t facts.LogTask) int { return ifElse(t.Role() == facts.RoleOther, 1, 0) }
	all = slices.SortedStableFunc(slices.Values(all), func(a, b facts.LogTask) int { return rank(a) - rank(b) })
	var subjects []checks.Subject
	for _, t := range all {
		s := checks.Subject{Kind: "Process", Name: t.Name, ID: ifElse(t.PID > 0, strconv.Itoa(t.PID), "")}
		if p := processNamed(f, t); p != nil {
			s.Processes = []checks.Process{facts.ProcessOf(f, *p)}
		}
		subjects = append(subjects, s)
	}
	return subjects
}

func loggedOOMKilled(in *Incident) *Finding {
	f := in.recorded(checks.Certain, "The kernel killed the runtime, a shim or the kubelet to free memory.",
		signature.OOMKill, signature.UnitOOMKilled)
	if f == nil {
		return nil
	}
	victim := in.essentialVictim()
	if victim == nil {
		f.Summary = "The kernel killed processes to free memory."
		return f.unlikely("no part of the runtime or the kubelet is among the victims that are named")
	}
	return f.supports("a part of the runtime or the kubelet is among the victims").limitLate(in, victim)
}
