package checks

import (
	"fmt"
	"strings"

	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

func memoryPressure() Definition {
	return Definition{
		Code:  codeMemoryPressure,
		Title: "memory is so short that everything waits for it",
		Means: "The node reclaims memory instead of working. Before the kernel kills anybody it drops file pages, swaps, and reads the dropped pages of running programs back from disk, over and over: every process is slow, " +
			"the runtime and the kubelet with the rest. Below memory.available<100Mi the kubelet evicts pods; it looks every ten seconds, and a fast leak is quicker. Its figure is the node's memory less the working set, the one here is MemAvailable: they differ " +
			"by the page cache that is in use. Without systemReserved and kubeReserved pods may use what " +
			"the daemons need (kubernetes/kubernetes#72533).\n\n" +
			"kdiag names who has most: pods and units by the working set of their control group, which the kubelet goes by too, and then processes by RSS. What is written to a tmpfs counts for the pod that wrote it, as an emptyDir of " +
			"medium Memory, and stays when the process has ended; no process shows it. Nor does any show what the kernel holds itself (SUnreclaim).\n\n" +
			"Pressure (PSI memory full) counts the time in which nobody could run for want of memory. A container that thrashes at its own limit counts as well: with plenty available on the node it takes much more " +
			"of it before kdiag calls this a cause, and it stays a warning; on cgroup v2 memory.pressure tells whose it is.",
		Confirm: []string{
			"grep . /proc/pressure/memory: full avg10 over 5 is much, over 20 is thrashing.",
			"free -m: available, not free. vmstat 1: si and so, and bi without anyone reading on purpose (the dropped pages of programs).",
			"grep . /sys/fs/cgroup/kubepods.slice/memory.pressure (cgroup v2): are they pods, or the system's own services?",
			"df -t tmpfs --output=used,target: files that are in memory. slabtop -o -s c: what the kernel holds.",
		},
		Fix: []string{
			"Find who holds the memory, and delete or limit that pod.",
			"Stop what can wait. Do not restart the runtime: it starts by reading everything from disk.",
			"Reserve memory for the daemons (systemReserved, kubeReserved), raise evictionHard memory.available above 100Mi on large nodes, give pods limits.",
			"A node with more memory, or fewer pods.",
		},
		Mistaken: "OOMKilled: there somebody was killed already, and it may be over. IOStall: reclaim reads and writes as well, so disks are busy; here memory is short beside it. One container at its own limit: plenty is available.",
		Sources: []string{
			"kernel: Documentation/accounting/psi.rst, Documentation/filesystems/proc.rst (MemAvailable)",
			"kubelet: pkg/kubelet/apis/config/v1beta1/defaults_linux.go (memory.available<100Mi)",
			"kubernetes/kubernetes#72533, #64975, #14452 (memory without reserve before the hang)",
		},
		RootOf: []string{
			codeOOMKilled, codeIOStall, codeCPUStarved, codeRuntimeHung, codeRuntimeSlow, codeRelistOverloaded, codePLEGUnhealthy, codeKubeletStalled,
		},
		recognise: recogniseMemoryPressure,
	}
}

// memoryPressureExplains reports whether the node itself is short of memory: a container at its own limit slows only itself. What
// hangs and is not only slow takes a node that thrashes.
func memoryPressureExplains(f *Facts, consequence string) bool {
	severity, _ := f.memoryRank()
	hangs := consequence == codeRuntimeHung || consequence == codeKubeletStalled
	return f.memoryLow() && (severity == Critical || !hangs)
}

// memoryLow reports whether little of the node's memory is available.
func (f *Facts) memoryLow() bool {
	l, m := f.nodeLimits(), f.seen().Memory.Value
	least, _ := f.evictionBelow("memory.available", m.Total)
	return m.Total > 0 && (share(m.Available, m.Total) < l.MemoryLow && m.Available < l.MemoryLowBytes || m.Available < least)
}

// memoryRank is how severe the shortage is; false when there is none.
func (f *Facts) memoryRank() (Severity, bool) {
	l, n := f.nodeLimits(), f.seen()
	m, full := n.Memory.Value, 0.0
	if p := n.Pressure.Value.Memory; p != nil {
		full = min(p.Full.Avg10, max(p.Full.Avg60, p.Full.Avg10/2)) // a spike of a second is none
	}
	least, _ := f.evictionBelow("memory.available", m.Total)
	evicting := m.Total > 0 && m.Available < least
	low := m.Total == 0 || f.memoryLow() // without meminfo pressure must do
	switch {
	case low && full >= l.MemoryFullCritical, evicting && full >= l.MemoryFull:
		return Critical, true
	case low && full >= l.MemoryFull, full >= l.MemoryFullCritical, evicting:
		return Warning, true
	}
	return "", false
}

func recogniseMemoryPressure(f *Facts) *Cause {
	severity, short := f.memoryRank()
	if !short {
		return nil
	}
	var e Evidence
	step := f.memoryEvidence(&e)
	holders := f.memoryHolders()
	f.addHolderLines(&e, holders, f.memoryLow(), "the memory")
	n := f.seen()
	n.Memory.missing(&e, "memory that is available (/proc/meminfo)")
	n.Holders.missing(&e, "who has the memory, or waits for it")
	if c := f.logged(signature.EvictionPressure); c != nil && says(c.Example, "memory") {
		f.heard(&e, signature.EvictionPressure)
	}
	f.heard(&e, signature.OOMInvoked)
	summary := "the node is short of memory: "
	if step == Fair {
		summary = "something thrashes for want of memory, most likely a container at its own limit: "
	}
	if step == Fair && len(holders) > 0 {
		step = Strong
	}
	c := newCause(codeMemoryPressure, severity, step, summary+f.memoryLine()+ofCulprit(holders), e)
	c.Subject = &Subject{Kind: "Node", Name: "memory"}
	c.blame(holders)
	c.NextSteps = f.stepsWhenMemoryShort(holders)
	return c
}

// memoryLine says how little there is, and how much waits for it.
func (f *Facts) memoryLine() string {
	var parts []string
	if m := f.seen().Memory.Value; m.Total > 0 {
		parts = append(parts, fmt.Sprintf("%s of %s are available", units.Size(m.Available), units.Size(m.Total)))
	}
	if p := f.seen().Pressure.Value.Memory; p != nil && p.Full.Avg10 >= f.nodeLimits().MemoryFull {
		parts = append(parts, fmt.Sprintf("for want of memory nothing ran in %.0f%% of the last 10 s", p.Full.Avg10))
	}
	return strings.Join(parts, ", and ")
}

// memoryEvidence adds how short memory is, and returns how sure that makes the cause.
func (f *Facts) memoryEvidence(e *Evidence) float64 {
	l, n := f.nodeLimits(), f.seen()
	m, p := n.Memory.Value, n.Pressure.Value.Memory
	step := Strong
	if m.Total > 0 {
		line := &e.For
		if !f.memoryLow() {
			line, step = &e.Against, Fair
		}
		addf(line, "%s of %s (%s) are available", units.Size(m.Available), units.Size(m.Total), units.Percent(share(m.Available, m.Total)))
		if least, written := f.evictionBelow("memory.available", m.Total); m.Available < least {
			addf(&e.For, "below the kubelet's memory.available<%s, at which it evicts pods", written)
		}
		if swapped := m.SwapTotal - min(m.SwapFree, m.SwapTotal); m.SwapTotal > 0 && swapped > 0 {
			addf(&e.For, "%s of %s of swap are used", units.Size(swapped), units.Size(m.SwapTotal))
		}
	}
	switch {
	case p == nil:
		n.Pressure.missing(e, "pressure of memory (/proc/pressure/memory)")
	case p.Full.Avg10 >= l.MemoryFull:
		addf(&e.For, "nothing ran for want of memory in %s (PSI memory full)", pressure(p.Full))
		if f.memoryLow() {
			step = Certain
		}
	case p.Some.Avg10 < 1:
		addf(&e.Against, "hardly anything waits for memory: %s (PSI memory some)", pressure(p.Some))
	}
	if f.isMuchMemory(m.SlabUnreclaimable) {
		addf(&e.For, "%s are held by the kernel itself (SUnreclaim)", units.Size(m.SlabUnreclaimable))
	}
	if f.isMuchMemory(m.Shmem) {
		addf(&e.For, "%s are tmpfs or shared memory (Shmem): an emptyDir of medium Memory, /dev/shm; files in it count though no process has them open", units.Size(m.Shmem))
	}
	return step
}

func (f *Facts) isMuchMemory(n uint64) bool { return share(n, f.seen().Memory.Value.Total) >= muchHeld }

// memoryHolders are who has most of the memory: pods, units, and then processes. Where there is plenty it is who waits for it at a
// limit of its own, since who has most does no harm.
func (f *Facts) memoryHolders() []holder {
	seen, total := f.seen().Holders.Value, f.seen().Memory.Value.Total
	if !f.memoryLow() {
		return f.stalledGroups()
	}
	var out []holder
	for _, g := range seen.Memory {
		h := f.groupHolder(g.Path, g.Owner)
		h.share, h.brief = share(g.Current, total), h.name+" has "+units.Size(g.Current)
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
			h.show = NextStep{
				Command: fmt.Sprintf("grep -E '^(anon|file|shmem|slab|total_rss|total_cache|total_shmem) ' '%s/memory.stat'", g.Dir),
				Why:     "What is it that " + h.name + " has? anon and rss are memory of its processes, shmem is tmpfs, file and cache are pages of files.",
			}
		}
		out = append(out, h)
	}
	for _, p := range seen.Resident {
		h := f.processHolder(p.PID, p.Name, p.Owner)
		h.share, h.brief = share(p.Bytes, total), h.name+" has "+units.Size(p.Bytes)
		h.line = fmt.Sprintf("%s, %s of all (RSS)", h.brief, units.Percent(h.share))
		h.show = NextStep{
			Command: fmt.Sprintf("grep -E '^(Name|VmRSS|RssAnon|RssShmem|VmSwap|Threads)' /proc/%d/status", p.PID),
			Why:     "Does " + h.name + " grow? Look twice.",
		}
		out = append(out, h)
	}
	return worthNaming(out)
}

// stalledGroups are the control groups that wait for memory as the whole node would when it is short.
func (f *Facts) stalledGroups() []holder {
	var out []holder
	for _, g := range f.seen().Holders.Value.Stalled {
		if g.Full.Avg10 < f.nodeLimits().MemoryFull {
			continue
		}
		h := f.groupHolder(g.Path, g.Owner)
		h.share, h.brief = 1, fmt.Sprintf("it is %s, where nothing ran in %.0f%%", h.name, g.Full.Avg10)
		h.line = fmt.Sprintf("for want of memory nothing ran in %s in %s (memory.pressure)", h.name, pressure(g.Full))
		if safeDir(g.Dir) {
			h.show = NextStep{
				Command: fmt.Sprintf("(cd '%s' && grep -s . memory.pressure memory.events memory.max */memory.max)", g.Dir),
				Why:     "At which limit does " + h.name + " wait, and how often was it reached (max)?",
			}
		}
		out = append(out, h)
	}
	return out
}

func (f *Facts) stepsWhenMemoryShort(holders []holder) []NextStep {
	var s steps
	s.add(TouchesNothing, "grep . /proc/pressure/memory; free -m", "Does it go on? Look at available, not at free.")
	replaced := "Ends it, and what it has is free again. Its replacement may take as much on another node: it needs a limit, or a larger one."
	if !f.memoryLow() {
		replaced = "Ends the thrashing until its replacement is as far: it needs a larger limit, or less to do."
	}
	f.addHolders(&s, holders, replaced)
	m := f.seen().Memory.Value
	if f.isMuchMemory(m.Shmem) {
		s.add(TouchesNothing, "df -t tmpfs --output=used,target | sort -rn | head -n 10", "Which tmpfs holds it? The folder of an emptyDir names the pod by its UID.")
	}
	if f.isMuchMemory(m.SlabUnreclaimable) {
		s.add(TouchesNothing, "slabtop -o -s c | head -n 20", "Of what does the kernel hold so much?")
	}
	if !shown(holders) {
		s.add(TouchesNothing, "ps -eo pid,rss,etime,comm --sort=-rss | head -n 15", "Who holds most of it?")
		s.add(TouchesNothing, f.crictlCommand("stats"), "Which containers hold it? On a node that thrashes it may take long.")
		s.add(TouchesNothing, "cat /sys/fs/cgroup/kubepods*/memory.pressure /sys/fs/cgroup/system.slice/memory.pressure", "Is it the pods, or the system's own services (cgroup v2)?")
	}
	if f.memoryLow() {
		s.add(TouchesScheduler, `kubectl cordon "$(hostname)"`, "No new pod should start here while memory is short.")
	}
	return s.done()
}
