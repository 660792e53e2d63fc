package checks

import (
	"fmt"
	"strings"

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
			"Pressure (PSI memory full) counts the time in which nobody could run for want of memory. A container that thrashes at its own limit counts as well: with plenty available on the node it takes much more " +
			"of it before kdiag calls this a cause, and it stays a warning.",
		Confirm: []string{
			"grep . /proc/pressure/memory: full avg10 over 5 is much, over 20 is thrashing.",
			"free -m: available, not free. vmstat 1: si and so, and bi without anyone reading on purpose (the dropped pages of programs).",
			"grep . /sys/fs/cgroup/kubepods.slice/memory.pressure (cgroup v2): are they pods, or the system's own services?",
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
	m := f.seen().Memory.Value
	least, _ := f.evictionBelow("memory.available", m.Total)
	return m.Total > 0 && (share(m.Available, m.Total) < f.nodeLimits().MemoryLow || m.Available < least)
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
	l, n := f.nodeLimits(), f.seen()
	m, p := n.Memory.Value, n.Pressure.Value.Memory
	var e Evidence
	var parts []string
	step := Strong
	if m.Total > 0 {
		parts = append(parts, fmt.Sprintf("%s of %s are available", capacity(m.Available), capacity(m.Total)))
		line := &e.For
		if !f.memoryLow() {
			line, step = &e.Against, Fair
		}
		addf(line, "%s of %s (%s) are available", capacity(m.Available), capacity(m.Total), percent(share(m.Available, m.Total)))
		if least, written := f.evictionBelow("memory.available", m.Total); m.Available < least {
			addf(&e.For, "below the kubelet's memory.available<%s, at which it evicts pods", written)
		}
		if swapped := m.SwapTotal - min(m.SwapFree, m.SwapTotal); m.SwapTotal > 0 && swapped > 0 {
			addf(&e.For, "%s of %s of swap are used", capacity(swapped), capacity(m.SwapTotal))
		}
		if m.SlabUnreclaimable > m.Total/4 {
			addf(&e.For, "%s are held by the kernel itself (SUnreclaim)", capacity(m.SlabUnreclaimable))
		}
	}
	switch {
	case p == nil:
		n.Pressure.missing(&e, "pressure of memory (/proc/pressure/memory)")
	case p.Full.Avg10 >= l.MemoryFull:
		parts = append(parts, fmt.Sprintf("for want of memory nothing ran in %.0f %% of the last 10 s", p.Full.Avg10))
		addf(&e.For, "nothing ran for want of memory in %s (PSI memory full)", pressure(p.Full))
		if f.memoryLow() {
			step = Certain
		}
	case p.Some.Avg10 < 1:
		addf(&e.Against, "hardly anything waits for memory: %s (PSI memory some)", pressure(p.Some))
	}
	n.Memory.missing(&e, "memory that is available (/proc/meminfo)")
	if c := f.logged(signature.EvictionPressure); c != nil && says(c.Example, "memory") {
		f.heard(&e, signature.EvictionPressure)
	}
	f.heard(&e, signature.OOMInvoked)
	summary := "the node is short of memory: " + strings.Join(parts, ", and ")
	if step == Fair {
		summary = "something thrashes for want of memory, most likely a container at its own limit: " + strings.Join(parts, ", and ")
	}
	c := newCause(codeMemoryPressure, severity, step, summary, e)
	c.Subject = &Subject{Kind: "Node", Name: "memory"}
	var s steps
	s.add(TouchesNothing, "grep . /proc/pressure/memory; free -m", "Does it go on? Look at available, not at free.")
	s.add(TouchesNothing, "ps -eo pid,rss,etime,comm --sort=-rss | head -n 15", "Who holds most of it?")
	s.add(TouchesNothing, f.crictlCommand("stats"), "Which containers hold it? On a node that thrashes it may take long.")
	s.add(TouchesNothing, "cat /sys/fs/cgroup/kubepods*/memory.pressure /sys/fs/cgroup/system.slice/memory.pressure", "Is it the pods, or the system's own services (cgroup v2)?")
	s.add(TouchesScheduler, `kubectl cordon "$(hostname)"`, "No new pod should start here while memory is short.")
	c.NextSteps = s.done()
	return c
}
