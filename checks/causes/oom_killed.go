package causes

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
)

// manyOOMs is how many times the kernel must have killed for memory in the window before it is the node's trouble and
// not that of one container with a limit.
const manyOOMs = 3

// OOMKilled is the code of this cause.
const OOMKilled = "OOMKilled"

var oomKilled = cause(OOMKilled, recogniseOOMKilled, loggedOOMKilled, "journal.kernel")

// oomHits reports whether the OOM killer hit a task or unit of a role.
func oomHits(f *facts.Facts, r facts.Role) bool {
	return slices.ContainsFunc(f.Log.OOMVictims, func(v facts.LogTask) bool { return v.Role() == r }) ||
		len(facts.UnitsOf(f, signature.UnitOOMKilled, r)) > 0
}

func recogniseOOMKilled(f *facts.Facts) *Finding {
	if !f.Log.Read || f.Target.Simulated {
		return nil
	}
	victims, kills, global := f.Log.NodeVictims, f.Log.OOMKills, f.Log.OOMGlobal
	if len(victims) == 0 && kills < manyOOMs && !global {
		return nil
	}
	var e checks.Evidence
	step := checks.Strong
	var summary string
	switch {
	case len(victims) > 0:
		step = checks.Certain
		summary = "the kernel killed " + units.List(top(victims)) + " for want of memory"
	case global:
		summary = "the node ran out of memory, and the kernel killed " + victimsLine(f)
	default:
		summary = textf("the kernel killed for memory %s in %s: %s", units.Times(kills), f.Log.Window, victimsLine(f))
		Addf(&e.Against, "none of the victims is the runtime, the kubelet or a shim")
	}
	if last := facts.LastOf(f, signature.OOMKill, signature.UnitOOMKilled); last != nil {
		summary += ", last at " + facts.ClockText(f, *last)
	}
	addIf(global, &e.For, "memory was short on the whole node, not only in one cgroup")
	if example := facts.FirstExample(f, signature.OOMKill, signature.UnitOOMKilled); example != "" {
		Addf(&e.For, "the first record: %s", example)
	}
	if f.Log.OOMBeforePLEG {
		logOfPLEG(f, &e)
	}
	if p := f.Seen.Pressure.Value.Memory; !f.Seen.Pressure.OK || p == nil {
		Addf(&e.Missing, "pressure of memory (/proc/pressure/memory) was not read: whether it goes on is not known")
	} else {
		Addf(&e.For, "now: all tasks waited for memory for %s", facts.PressureText(p.Full))
	}
	severity, subjects := criticalIf(len(victims) > 0), taskSubjects(f, f.Log.OOMVictims)
	return newFinding(severity, step, summary, e, subjects...).advise(func(s *Steps, _ string) {
		s.Look("journalctl --no-pager -k --since -1h | grep -iE 'oom-kill|out of memory'", "Who was killed, where?")
		s.Look("grep . /proc/pressure/memory; free -m", "Is memory still short? full avg10 over 5 is.")
		s.Look("ps -eo pid,rss,etime,comm --sort=-rss | head -n 15", "Who holds most of it now?")
		s.lookIf(oomHits(f, facts.RoleRuntime) && f.Target.Unit != "",
			"systemctl show "+f.Target.Unit+" -p MemoryMax -p MemoryCurrent", "Has the runtime's unit a limit?")
		s.cordon()
	})
}

// victimsLine names the victims.
func victimsLine(f *facts.Facts) string {
	var names []string
	for _, v := range top(f.Log.OOMVictims) {
		names = append(names, v.Label())
	}
	if more := len(f.Log.OOMVictims) - len(names); more > 0 {
		names = append(names, units.Count(more, "other"))
	}
	return cmp.Or(units.List(names), "processes that the log does not name")
}

// taskSubjects names tasks as culprits, those first that the node cannot do without.
func taskSubjects(f *facts.Facts, all []facts.LogTask) []checks.Subject {
	if len(all) == 0 {
		return []checks.Subject{ofNode("the kernel")}
	}
	rank := func(t facts.LogTask) int { return choose(t.Role() == facts.RoleOther, 1, 0) }
	all = slices.SortedStableFunc(slices.Values(all), func(a, b facts.LogTask) int { return rank(a) - rank(b) })
	var subjects []checks.Subject
	for _, t := range all {
		s := checks.Subject{Kind: "Process", Name: t.Name, ID: choose(t.PID > 0, strconv.Itoa(t.PID), "")}
		if p := processNamed(f, t); p != nil {
			s.Processes = []checks.Process{facts.ProcessOf(f, *p)}
		}
		subjects = append(subjects, s)
	}
	return subjects
}

func loggedOOMKilled(in *Incident) *LogFinding {
	codes := []string{signature.OOMKill, signature.UnitOOMKilled}
	victim := in.essentialVictim()
	f := in.recorded(hostTier, 0.35, "The kernel killed processes to free memory.", codes...).
		lowerIf(victim == nil, 0, "no part of the runtime or the kubelet is among the victims that are named").
		raiseIf(victim != nil, 0.45, "a part of the runtime or the kubelet is among the victims")
	if f != nil && victim != nil {
		f.Summary = "The kernel killed the runtime, a shim or the kubelet to free memory."
		f.late = in.lateStart([]*journal.Burst{victim})
	}
	return f
}
