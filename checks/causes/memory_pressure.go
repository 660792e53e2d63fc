package causes

import (
	"fmt"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// MemoryPressure is the code of this cause.
const MemoryPressure = "MemoryPressure"

var memoryPressure = Definition{
	Code:      MemoryPressure,
	Claims:    []string{"host.memory"},
	Recognise: recogniseMemoryPressure,
}

func recogniseMemoryPressure(f *facts.Facts) *Finding {
	severity, short := f.Pressure.MemorySeverity, f.Pressure.MemoryShort
	if !short {
		return nil
	}
	var e checks.Evidence
	step := memoryEvidence(f, &e)
	holders := MemoryHolders(f)
	addHolderLines(f, &e, holders, f.Pressure.MemoryLow, "the memory")
	n := f.Seen
	missing(n.Memory, &e, "memory that is available (/proc/meminfo)")
	missing(n.Holders, &e, "who has the memory, or waits for it")
	if c := facts.Logged(f, signature.EvictionPressure); c != nil && facts.Says(c.Example, "memory") {
		logEvidence(f, &e, signature.EvictionPressure)
	}
	logEvidence(f, &e, signature.OOMInvoked)
	summary := "the node is short of memory: "
	if step == checks.Fair {
		summary = "something thrashes for want of memory, most likely a container at its own limit: "
	}
	if step == checks.Fair && len(holders) > 0 {
		step = checks.Strong
	}
	c := newFinding(severity, step, summary+memoryLine(f)+OfCulprit(holders), e)
	c.Subject = &checks.Subject{Kind: "Node", Name: "memory"}
	c.blame(holders)
	c.Advise = func(string) []checks.NextStep { return stepsWhenMemoryShort(f, holders) }
	return c
}

// memoryLine says how little there is, and how much waits for it.
func memoryLine(f *facts.Facts) string {
	var parts []string
	if m := f.Seen.Memory.Value; m.Total > 0 {
		parts = append(parts, fmt.Sprintf("%s of %s are available", units.Size(m.Available), units.Size(m.Total)))
	}
	if p := f.Seen.Pressure.Value.Memory; p != nil && p.Full.Avg10 >= f.Limits.Node.MemoryFull {
		parts = append(parts, fmt.Sprintf("for want of memory nothing ran in %.0f%% of the last 10 s", p.Full.Avg10))
	}
	return strings.Join(parts, ", and ")
}

// memoryEvidence adds how short memory is, and returns how sure that makes the cause.
func memoryEvidence(f *facts.Facts, e *checks.Evidence) float64 {
	l, n := f.Limits.Node, f.Seen
	m, p := n.Memory.Value, n.Pressure.Value.Memory
	step := checks.Strong
	if m.Total > 0 {
		line := &e.For
		if !f.Pressure.MemoryLow {
			line, step = &e.Against, checks.Fair
		}
		Addf(line, "%s of %s (%s) are available", units.Size(m.Available), units.Size(m.Total), units.Percent(facts.Share(m.Available, m.Total)))
		if least, written := facts.EvictionBelow(f, "memory.available", m.Total); m.Available < least {
			Addf(&e.For, "below the kubelet's memory.available<%s, at which it evicts pods", written)
		}
		if swapped := m.SwapTotal - min(m.SwapFree, m.SwapTotal); m.SwapTotal > 0 && swapped > 0 {
			Addf(&e.For, "%s of %s of swap are used", units.Size(swapped), units.Size(m.SwapTotal))
		}
	}
	switch {
	case p == nil:
		missing(n.Pressure, e, "pressure of memory (/proc/pressure/memory)")
	case p.Full.Avg10 >= l.MemoryFull:
		Addf(&e.For, "nothing ran for want of memory in %s (PSI memory full)", facts.PressureText(p.Full))
		if f.Pressure.MemoryLow {
			step = checks.Certain
		}
	case p.Some.Avg10 < 1:
		Addf(&e.Against, "hardly anything waits for memory: %s (PSI memory some)", facts.PressureText(p.Some))
	}
	if isMuchMemory(f, m.SlabUnreclaimable) {
		Addf(&e.For, "%s are held by the kernel itself (SUnreclaim)", units.Size(m.SlabUnreclaimable))
	}
	if isMuchMemory(f, m.Shmem) {
		Addf(&e.For, "%s are tmpfs or shared memory (Shmem): an emptyDir of medium Memory, /dev/shm; files in it count though no process has them open", units.Size(m.Shmem))
	}
	return step
}

func isMuchMemory(f *facts.Facts, n uint64) bool {
	return facts.Share(n, f.Seen.Memory.Value.Total) >= facts.MuchHeld
}

// MemoryHolders are who has most of the memory: pods, units, and then processes. Where there is plenty it is who waits for it at a
// limit of its own, since who has most does no harm.
func MemoryHolders(f *facts.Facts) []consumer {
	seen, total := f.Seen.Holders.Value, f.Seen.Memory.Value.Total
	if !f.Pressure.MemoryLow {
		return stalledGroups(f)
	}
	var out []consumer
	for _, g := range seen.Memory {
		h := groupHolder(f, g.Path, g.Owner)
		h.share, h.brief = facts.Share(g.Current, total), h.name+" has "+units.Size(g.Current)
		h.line = fmt.Sprintf("%s, %s of all (working set)", h.brief, units.Percent(h.share))
		switch {
		case g.Max > 0:
			h.line += ", of a limit of " + units.Size(g.Max)
		case g.PodUID != "":
			h.line += ", and no limit for the whole pod"
		}
		switch most := g.Current/2 + 1; {
		case g.Shmem >= most:
			h.line += "; " + units.Size(g.Shmem) + " are tmpfs or shared memory"
		case g.Files >= most:
			h.line += "; " + units.Size(g.Files) + " are pages of files, which the kernel can drop and the kubelet counts (kubernetes/kubernetes#43916)"
		}
		if safeDir(g.Dir) {
			h.show = checks.NextStep{
				Command: fmt.Sprintf("grep -E '^(anon|file|shmem|slab|total_rss|total_cache|total_shmem) ' '%s/memory.stat'", g.Dir),
				Why:     "What is it that " + h.name + " has? anon and rss are memory of its processes, shmem is tmpfs, file and cache are pages of files.",
			}
		}
		out = append(out, h)
	}
	for _, p := range seen.Resident {
		h := processHolder(f, p.PID, p.Name, p.Owner)
		h.share, h.brief = facts.Share(p.Bytes, total), h.name+" has "+units.Size(p.Bytes)
		h.line = fmt.Sprintf("%s, %s of all (RSS)", h.brief, units.Percent(h.share))
		h.show = checks.NextStep{
			Command: fmt.Sprintf("grep -E '^(Name|VmRSS|RssAnon|RssShmem|VmSwap|Threads)' /proc/%d/status", p.PID),
			Why:     "Does " + h.name + " grow? Look twice.",
		}
		out = append(out, h)
	}
	return worthNaming(out)
}

// stalledGroups are the control groups that wait for memory as the whole node would when it is short.
func stalledGroups(f *facts.Facts) []consumer {
	var out []consumer
	for _, g := range f.Seen.Holders.Value.Stalled {
		if g.Full.Avg10 < f.Limits.Node.MemoryFull {
			continue
		}
		h := groupHolder(f, g.Path, g.Owner)
		h.share, h.brief = 1, fmt.Sprintf("it is %s, where nothing ran in %.0f%%", h.name, g.Full.Avg10)
		h.line = fmt.Sprintf("for want of memory nothing ran in %s in %s (memory.pressure)", h.name, facts.PressureText(g.Full))
		if safeDir(g.Dir) {
			h.show = checks.NextStep{
				Command: fmt.Sprintf("(cd '%s' && grep -s . memory.pressure memory.events memory.max */memory.max)", g.Dir),
				Why:     "At which limit does " + h.name + " wait, and how often was it reached (max)?",
			}
		}
		out = append(out, h)
	}
	return out
}

func stepsWhenMemoryShort(f *facts.Facts, holders []consumer) []checks.NextStep {
	var s Steps
	s.Add(checks.TouchesNothing, "grep . /proc/pressure/memory; free -m", "Does it go on? Look at available, not at free.")
	replaced := "Ends it, and what it has is free again. Its replacement may take as much on another node: it needs a limit, or a larger one."
	if !f.Pressure.MemoryLow {
		replaced = "Ends the thrashing until its replacement is as far: it needs a larger limit, or less to do."
	}
	addHolders(f, &s, holders, replaced)
	m := f.Seen.Memory.Value
	if isMuchMemory(f, m.Shmem) {
		s.Add(checks.TouchesNothing, "df -t tmpfs --output=used,target | sort -rn | head -n 10", "Which tmpfs holds it? The folder of an emptyDir names the pod by its UID.")
	}
	if isMuchMemory(f, m.SlabUnreclaimable) {
		s.Add(checks.TouchesNothing, "slabtop -o -s c | head -n 20", "Of what does the kernel hold so much?")
	}
	if !shown(holders) {
		s.Add(checks.TouchesNothing, "ps -eo pid,rss,etime,comm --sort=-rss | head -n 15", "Who holds most of it?")
		s.Add(checks.TouchesNothing, facts.CrictlCommand(f, "stats"), "Which containers hold it? On a node that thrashes it may take long.")
		s.Add(checks.TouchesNothing, "cat /sys/fs/cgroup/kubepods*/memory.pressure /sys/fs/cgroup/system.slice/memory.pressure", "Is it the pods, or the system's own services (cgroup v2)?")
	}
	if f.Pressure.MemoryLow {
		s.Add(checks.TouchesScheduler, `kubectl cordon "$(hostname)"`, "No new pod should start here while memory is short.")
	}
	return s.Done()
}
