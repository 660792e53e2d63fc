package causes

import (
	"path"
	"slices"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// MemoryPressure is the code of this cause.
const MemoryPressure = "MemoryPressure"

func recogniseMemoryPressure(f *facts.Facts) *Finding {
	if len(f.Pressure.Squeezed) > 0 && !f.Pressure.MemoryLow {
		return squeezed(f)
	}
	if f.Pressure.MemorySeverity == "" {
		return pressed(f, "MemoryPressure")
	}
	var e checks.Evidence
	step := memoryEvidence(f, &e)
	consumers := memoryConsumers(f)
	addConsumed(&e, consumers)
	missing(f.Seen.Memory, &e, "memory that is available (/proc/meminfo)")
	missing(f.Seen.Consumers, &e, "who has the memory, or waits for it")
	logEvidence(f, &e, signature.OOMInvoked)
	m := f.Seen.Memory.Value
	summary := "the node is short of memory: " + units.Size(m.Available) + " of " + units.Size(m.Total) + " available"
	if least, written := facts.EvictionBelow(f, "memory.available", m.Total); m.Available < least {
		summary += ", less than the kubelet's eviction threshold of " + written
	}
	summary += evictions(f)
	if step == checks.Fair {
		summary = "tasks stall on memory, most likely of a container at its limit"
		step = ifElse(len(consumers) > 0, checks.Strong, checks.Fair)
	}
	c := newFinding(f.Pressure.MemorySeverity, step, summary+ofCulprit(consumers), e, ofNode("memory"))
	return c.blame(consumers).advise(func(s *Steps, _ string) {
		s.Look("grep . /proc/pressure/memory; free -m", "Check whether it lasts. Read available, not free.")
		addConsumers(f, s, consumers, "Frees its memory. Its replacement may use as much without a lower limit.")
		m := f.Seen.Memory.Value
		if isMuchMemory(f, m.Shmem) {
			s.Look("df -t tmpfs --output=used,target | sort -rn | head -n 10", "Find the tmpfs: its path has the UID.")
		}
		s.lookIf(isMuchMemory(f, m.SlabUnreclaimable), "slabtop -o -s c | head -n 20", "Find what the kernel holds.")
		if !shown(consumers) {
			s.Look("ps -eo pid,rss,etime,comm --sort=-rss | head -n 15", "Find the largest processes.")
			s.Look(facts.CrictlCommand(f, "stats"), "Find the largest containers. May take long.")
		}
		if f.Pressure.MemoryLow {
			s.cordon()
		}
	})
}

// squeezed is the finding for a control group of the runtime or the kubelet that waits for memory at its own limit.
func squeezed(f *facts.Facts) *Finding {
	var e checks.Evidence
	var subjects []checks.Subject
	severity := checks.Warning
	line := func(m host.MemoryLimit) string {
		limit, file := facts.MemoryLimit(m)
		return textf("%s waits for memory at its own limit: all its tasks stalled in %s; it has %s, %s is %s",
			facts.Clean(path.Base(m.Path)), pressureText(m.Full), units.Size(m.Current), file, units.Size(limit))
	}
	for _, m := range f.Pressure.Squeezed {
		e.For = append(e.For, line(m))
		addIf(m.Kills > 0, &e.For, "the kernel has OOM-killed %s in it since it was made (memory.events)",
			units.Count(int(m.Kills), "process"))
		subjects = append(subjects, groupSubject(f, m.Path, host.Owner{Unit: unitOfGroup(m.Path)}))
		severity = facts.Worse(severity, criticalIf(m.Full.Avg10 >= f.Limits.Node.MemoryFullCritical))
	}
	addTasks(f, &e, func(t host.BlockedTask) bool {
		return facts.IsSqueezed(f, t.PID) && facts.WaitOf(t) == facts.WaitMemory
	})
	if m := f.Seen.Memory.Value; m.Total > 0 {
		Addf(&e.For, "the node has enough memory: %s of %s available", units.Size(m.Available), units.Size(m.Total))
	}
	return newFinding(severity, checks.Certain, e.For[0], e, subjects...).advise(func(s *Steps, _ string) {
		for _, m := range f.Pressure.Squeezed {
			s.lookIf(safeDir(m.Dir), textf("(cd '%s' && grep -s . memory.pressure memory.events memory.current "+
				"memory.high memory.max)", m.Dir), "Show its limits, and how often it met them: high, max, oom_kill.")
			if unit := unitOfGroup(m.Path); facts.Safe(unit) {
				s.Add(checks.TouchesLimit, "systemctl set-property --runtime "+unit+" MemoryHigh=infinity"+
					ifElse(m.Max > 0, " MemoryMax=infinity", ""), untilBoot)
			}
		}
	})
}

// unitOfGroup is the unit of the node's systemd of a control group's name, slices included; empty where it is no unit.
func unitOfGroup(group string) string {
	base := path.Base(group)
	return ifElse(slices.Contains([]string{".service", ".scope", ".slice"}, path.Ext(base)), base, "")
}

// evictions is the end of a sentence: how many pods the kubelet has evicted in the window, for any shortage; empty
// where its log has no eviction.
func evictions(f *facts.Facts) string {
	c := facts.Logged(f, signature.EvictionPressure)
	if c == nil || c.Last == nil {
		return ""
	}
	pods := 0
	for _, s := range c.Subjects {
		pods += ifElse(s.Kind == "Pod", 1, 0)
	}
	if pods == 0 {
		return "; the kubelet evicts pods, last at " + facts.ClockText(f, *c.Last)
	}
	return textf("; %s evicted, last at %s", units.Count(pods, "pod"), facts.ClockText(f, *c.Last))
}

// pressed is the finding for a pressure that the kubelet posts and kdiag does not measure: the kubelet keeps it for
// some minutes after the shortage (evictionPressureTransitionPeriod, 5m by default).
func pressed(f *facts.Facts, kind string) *Finding {
	line := PressureLine(f, kind)
	if line == "" {
		return nil
	}
	var e checks.Evidence
	Addf(&e.For, "the Node object: %s", line)
	Addf(&e.Against, "kdiag measures no shortage now: the kubelet keeps the condition for 5m after one")
	summary := textf("%s is True since %s: the kubelet evicts pods, and none is scheduled here", kind,
		facts.MomentText(f, f.Seen.Server.Value.Node.Condition(kind).LastTransitionTime))
	return newFinding(checks.Warning, checks.Certain, summary, e, ofNode(kind)).advise(func(s *Steps, _ string) {
		s.Look(`kubectl describe node "$(hostname)"`, "Read the conditions, the taints and the last events.")
		s.Look(KubeletLog(f)+" | grep -i 'eviction manager'", "Read which signal crossed its threshold.")
	})
}

// memoryEvidence adds the shortage of memory, and returns the step of the confidence scale that follows from it.
func memoryEvidence(f *facts.Facts, e *checks.Evidence) float64 {
	m, p := f.Seen.Memory.Value, f.Seen.Pressure.Value.Memory
	step := checks.Strong
	if m.Total > 0 {
		line := &e.For
		if !f.Pressure.MemoryLow {
			line, step = &e.Against, checks.Fair
		}
		Addf(line, "%s available", units.Percent(facts.Share(m.Available, m.Total)))
		if least, written := facts.EvictionBelow(f, "memory.available", m.Total); m.Available < least {
			Addf(&e.For, "below the kubelet's memory.available<%s, at which it evicts pods", written)
		}
	}
	switch {
	case p == nil:
		missing(f.Seen.Pressure, e, "pressure of memory (/proc/pressure/memory)")
	case p.Full.Avg10 >= f.Limits.Node.MemoryFull:
		Addf(&e.For, "all tasks stalled on memory in %s (PSI memory full)", pressureText(p.Full))
		step = ifElse(f.Pressure.MemoryLow, checks.Certain, step)
	case p.Some.Avg10 < 1:
		Addf(&e.Against, "few tasks wait for memory: %s (PSI memory some)", pressureText(p.Some))
	}
	addIf(isMuchMemory(f, m.SlabUnreclaimable), &e.For, "the kernel itself holds %s", units.Size(m.SlabUnreclaimable))
	addIf(isMuchMemory(f, m.Shmem), &e.For, "%s are tmpfs or shared memory (Shmem)", units.Size(m.Shmem))
	return step
}

func isMuchMemory(f *facts.Facts, n uint64) bool {
	return facts.Share(n, f.Seen.Memory.Value.Total) >= facts.MuchHeld
}

// memoryConsumers are who has most of the memory: pods, units, and then processes. Where there is plenty it is who
// waits for it at its own limit, since who has most does no harm.
func memoryConsumers(f *facts.Facts) []consumer {
	seen, total := f.Seen.Consumers.Value, f.Seen.Memory.Value.Total
	var out []consumer
	if !f.Pressure.MemoryLow {
		for _, g := range seen.Stalled {
			if g.Full.Avg10 >= f.Limits.Node.MemoryFull {
				has := "waits for memory: all its tasks stalled in " + pressureText(g.Full)
				out = append(out, groupConsumer(f, g.Path, g.Dir, g.Owner, 1, has,
					"(cd '%s' && grep -s . memory.pressure memory.events memory.high memory.max */memory.max)"))
			}
		}
		return out
	}
	has := func(n uint64) string {
		return textf("has %s, %s of all", units.Size(n), units.Percent(facts.Share(n, total)))
	}
	for _, g := range seen.Memory {
		what := has(g.Current)
		if g.Shmem > g.Current/2 {
			what += "; " + units.Size(g.Shmem) + " are tmpfs or shared memory"
		}
		out = append(out, groupConsumer(f, g.Path, g.Dir, g.Owner, facts.Share(g.Current, total), what,
			"grep -E '^(anon|file|shmem|slab|total_rss|total_cache|total_shmem) ' '%s/memory.stat'"))
	}
	for _, p := range seen.Resident {
		out = append(out, processConsumer(f, p.PID, p.Name, p.Owner, facts.Share(p.Bytes, total), has(p.Bytes),
			"grep -E '^(Name|VmRSS|RssAnon|RssShmem|VmSwap|Threads)' /proc/%d/status"))
	}
	return worthNaming(out)
}

// PressureLine is a sentence on a condition of the node object such as DiskPressure; empty where that is not True.
func PressureLine(f *facts.Facts, kind string) string {
	c := f.Seen.Server.Value.Node.Condition(kind)
	if c == nil || c.Status != "True" {
		return ""
	}
	return textf("%s since %s: %s", kind, facts.MomentText(f, c.LastTransitionTime), facts.Clean(c.Message))
}
