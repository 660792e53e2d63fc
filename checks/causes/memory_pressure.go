package causes

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// MemoryPressure is the code of this cause.
const MemoryPressure = "MemoryPressure"

var memoryPressure = Definition{
	Code: MemoryPressure, Claims: []string{"host.memory"},
	Recognise: recogniseMemoryPressure,
}

func recogniseMemoryPressure(f *facts.Facts) *Finding {
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
					"(cd '%s' && grep -s . memory.pressure memory.events memory.max */memory.max)"))
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
