package causes

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// MemoryPressure is the code of this cause.
const MemoryPressure = "MemoryPressure"

var memoryPressure = cause(MemoryPressure, recogniseMemoryPressure, nil, "host.memory")

func recogniseMemoryPressure(f *facts.Facts) *Finding {
	if !f.Pressure.MemoryShort {
		return nil
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
	if step == checks.Fair {
		summary = "something thrashes for want of memory, most likely a container at its own limit"
		step = choose(len(consumers) > 0, checks.Strong, checks.Fair)
	}
	c := newFinding(f.Pressure.MemorySeverity, step, summary+ofCulprit(consumers), e, ofNode("memory"))
	return c.blame(consumers).advise(func(s *Steps, _ string) {
		s.Look("grep . /proc/pressure/memory; free -m", "Does it go on? Look at available, not at free.")
		addConsumers(f, s, consumers, "Frees its memory. Its replacement may take as much without another limit.")
		m := f.Seen.Memory.Value
		if isMuchMemory(f, m.Shmem) {
			s.Look("df -t tmpfs --output=used,target | sort -rn | head -n 10", "Which tmpfs? Its path has the UID.")
		}
		s.lookIf(isMuchMemory(f, m.SlabUnreclaimable), "slabtop -o -s c | head -n 20", "What does the kernel hold?")
		if !shown(consumers) {
			s.Look("ps -eo pid,rss,etime,comm --sort=-rss | head -n 15", "Who holds most of it?")
			s.Look(facts.CrictlCommand(f, "stats"), "Which containers hold it? It may take long.")
		}
		if f.Pressure.MemoryLow {
			s.cordon()
		}
	})
}

// memoryEvidence adds how short memory is, and returns how sure that makes the cause.
func memoryEvidence(f *facts.Facts, e *checks.Evidence) float64 {
	m, p := f.Seen.Memory.Value, f.Seen.Pressure.Value.Memory
	step := checks.Strong
	if m.Total > 0 {
		line := &e.For
		if !f.Pressure.MemoryLow {
			line, step = &e.Against, checks.Fair
		}
		Addf(line, "%s are available", units.Percent(facts.Share(m.Available, m.Total)))
		if least, written := facts.EvictionBelow(f, "memory.available", m.Total); m.Available < least {
			Addf(&e.For, "below the kubelet's memory.available<%s, at which it evicts pods", written)
		}
	}
	switch {
	case p == nil:
		missing(f.Seen.Pressure, e, "pressure of memory (/proc/pressure/memory)")
	case p.Full.Avg10 >= f.Limits.Node.MemoryFull:
		Addf(&e.For, "nothing ran for want of memory in %s (PSI memory full)", facts.PressureText(p.Full))
		step = choose(f.Pressure.MemoryLow, checks.Certain, step)
	case p.Some.Avg10 < 1:
		Addf(&e.Against, "hardly anything waits for memory: %s (PSI memory some)", facts.PressureText(p.Some))
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
				has := "waits for memory: nothing ran in it in " + facts.PressureText(g.Full)
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
