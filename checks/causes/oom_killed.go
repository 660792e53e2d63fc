package causes

import (
	"cmp"
	"fmt"
	"slices"

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

var oomKilled = Definition{
	Code:   OOMKilled,
	Claims: []string{"journal.kernel"},
	Roots: []Root{
		{Code: MemoryPressure, When: memoryIsLow},
	},
	Past:      true,
	Recognise: recogniseOOMKilled,
	FromLog:   loggedOOMKilled,
}

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
	severity, step := checks.Warning, checks.Strong
	var summary string
	switch {
	case len(victims) > 0:
		severity, step = checks.Critical, checks.Certain
		summary = "the kernel killed " + units.List(facts.Head(victims, facts.MostNamed)) + " for want of memory"
		Addf(&e.For, "among the victims of the OOM killer: %s", units.List(facts.Head(victims, facts.MaxRelated)))
	case global:
		summary = "the node ran out of memory, and the kernel killed " + victimsLine(f)
	default:
		summary = fmt.Sprintf("the kernel killed for memory %s in the last %s: %s", units.Times(kills),
			units.Duration(f.Log.Window), victimsLine(f))
		Addf(&e.Against, "none of the victims is the runtime, the kubelet or a shim")
	}
	if last := facts.LastOf(f, signature.OOMKill, signature.UnitOOMKilled); last != nil {
		summary += ", last at " + facts.ClockText(f, *last)
	}
	if kills > 0 {
		Addf(&e.For, "%s in the last %s: %s", units.Count(kills, "kill"), units.Duration(f.Log.Window), victimsLine(f))
	}
	if global {
		Addf(&e.For, "memory was short on the whole node, not only in one cgroup")
	}
	if example := facts.FirstExample(f, signature.OOMKill, signature.UnitOOMKilled); example != "" {
		Addf(&e.For, "the first record: %s", example)
	}
	if f.Log.OOMBeforePLEG {
		logOfPLEG(f, &e)
	}
	memoryNow(f, &e)
	c := newFinding(severity, step, summary, e)
	c.Subject, c.Related = taskSubjects(f, f.Log.OOMVictims)
	c.Advise = func(string) []checks.NextStep { return stepsWhenOOM(f) }
	return c
}

// memoryNow adds whether memory is short at this moment: the kill is past.
func memoryNow(f *facts.Facts, e *checks.Evidence) {
	n := f.Seen
	if m := n.Memory; m.OK && m.Value.Total > 0 {
		Addf(&e.For, "now %s of %s are available", units.Size(m.Value.Available), units.Size(m.Value.Total))
	}
	p := n.Pressure.Value.Memory
	switch {
	case !n.Pressure.OK || p == nil:
		Addf(&e.Missing, "pressure of memory (/proc/pressure/memory) was not read: whether it goes on is not known")
	case p.Full.Avg10 >= f.Limits.Node.MemoryFull:
		Addf(&e.For, "it goes on: all tasks waited for memory for %s", facts.PressureText(p.Full))
	default:
		Addf(&e.For, "memory is not short at this moment: all tasks waited for it for %s", facts.PressureText(p.Full))
	}
}

// victimsLine names the victims.
func victimsLine(f *facts.Facts) string {
	var names []string
	all := f.Log.OOMVictims
	for _, v := range all[:min(len(all), facts.MostNamed)] {
		names = append(names, v.Label())
	}
	if more := len(all) - len(names); more > 0 {
		names = append(names, units.Count(more, "other"))
	}
	return cmp.Or(units.List(names), "processes that the log does not name")
}

// taskSubjects names tasks as culprits, those first that the node cannot do without.
func taskSubjects(f *facts.Facts, all []facts.LogTask) (*checks.Subject, []checks.Subject) {
	ordered := slices.Clone(all)
	slices.SortStableFunc(ordered, func(a, b facts.LogTask) int {
		switch important := func(t facts.LogTask) bool { return t.Role() != facts.RoleOther }; {
		case important(a) == important(b):
			return 0
		case important(a):
			return -1
		}
		return 1
	})
	var subjects []checks.Subject
	for _, t := range ordered[:min(len(ordered), facts.MaxRelated+1)] {
		s := checks.Subject{Kind: "Process", Name: facts.Clean(t.Name)}
		if t.PID > 0 {
			s.ID = fmt.Sprint(t.PID)
		}
		if p := processNamed(f, t); p != nil {
			s.Processes = []checks.Process{facts.ProcessOf(f, *p)}
		}
		subjects = append(subjects, s)
	}
	if len(subjects) == 0 {
		return &checks.Subject{Kind: "Node", Name: "the kernel"}, nil
	}
	return &subjects[0], subjects[1:]
}

func stepsWhenOOM(f *facts.Facts) []checks.NextStep {
	var s Steps
	s.Add(checks.TouchesNothing,
		"journalctl --no-pager -k --since -1h | grep -iE 'invoked oom-killer|oom-kill:|out of memory'", "Who asked for memory, who was killed, and was it one cgroup or the whole node?")
	s.Add(checks.TouchesNothing, "grep . /proc/pressure/memory; free -m",
		"Is memory still short? full avg10 over 5 says so.")
	s.Add(checks.TouchesNothing, "ps -eo pid,rss,etime,comm --sort=-rss | head -n 15", "Who holds most of it now?")
	if oomHits(f, facts.RoleRuntime) && f.Target.Unit != "" {
		s.Add(checks.TouchesNothing,
			"systemctl show "+f.Target.Unit+" -p MemoryMax -p MemoryCurrent -p OOMScoreAdjust", "Does the runtime's unit have a limit of its own?")
	}
	s.Add(checks.TouchesScheduler, `kubectl cordon "$(hostname)"`,
		"No new pod should start here while memory is short.")
	return s.Done()
}

func loggedOOMKilled(in *Incident) *LogFinding {
	codes := []string{signature.OOMKill, signature.UnitOOMKilled}
	if in.count(codes...) == 0 {
		return nil
	}
	f := in.finding(hostTier, 0.35, "The kernel killed processes to free memory.", codes...)
	victim := in.essentialVictim()
	if victim == nil {
		return f.lower(0, "no part of the runtime or the kubelet is among the victims that are named")
	}
	f.Summary = "The kernel killed the runtime, a shim or the kubelet to free memory."
	f.late = in.lateStart([]*journal.Burst{victim})
	return f.raise(0.45, "a part of the runtime or the kubelet is among the victims")
}
