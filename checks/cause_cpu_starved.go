package checks

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

func cpuStarved() Definition {
	return Definition{
		Code:  codeCPUStarved,
		Title: "the runtime or the kubelet does not get the CPU that it needs",
		Means: "Either a limit on the daemon's own control group stops it for most of each period (CPUQuota in the unit, or a limit on the slice that holds it), or there are so many tasks that want to run that it waits its turn. " +
			"All calls are slow by about the same factor, the slowest by far more; nothing is stuck.\n\n" +
			"A node with all CPUs at work is no sick node: batch pods do that on purpose, and weights keep the daemons running. So full CPUs (PSI cpu some) count only when the runtime is slow as well; " +
			"throttling of the runtime or the kubelet counts by itself.",
		Confirm: []string{
			"cat /sys/fs/cgroup/system.slice/containerd.service/cpu.stat, twice: does nr_throttled grow nearly as fast as nr_periods?",
			"systemctl show containerd kubelet -p CPUQuotaPerSecUSec -p CPUWeight -p Slice: a quota where none should be?",
			"grep . /proc/pressure/cpu; vmstat 1: r far above the number of CPUs; st over 10 says that the machine beneath takes the time.",
		},
		Fix: []string{
			"Find who uses the CPUs; give its pods limits or requests, or move them.",
			"Take the quota off the unit: systemctl set-property --runtime containerd.service CPUQuota= (empty). It takes effect at once and ends with the next boot.",
			"Reserve CPU for the system (systemReserved, kubeReserved), so that pods share what is left.",
			"Steal time: another machine or a larger kind. Burstable instances without credits look like this.",
		},
		Mistaken: "RelistOverloaded: there each call is quick and there are many. IOStall, MemoryPressure: the same slowness with pressure elsewhere. A deadlocked runtime uses no CPU and never answers.",
		Sources: []string{
			"kernel: Documentation/scheduler/sched-bwc.rst, Documentation/accounting/psi.rst",
			"awslabs/amazon-eks-ami#195 (reserving CPU for the kubelet helped)",
		},
		RootOf:    []string{codeRuntimeHung, codeRuntimeSlow, codeRelistOverloaded, codePLEGUnhealthy, codeKubeletStalled},
		recognise: recogniseCPUStarved,
	}
}

// cpuStarvedExplains reports whether want of CPU is why: all are slow where CPUs are crowded, else who is throttled, by a limit of its own
// or on a slice above. A hang takes one that is throttled almost for good.
func cpuStarvedExplains(f *Facts, consequence string) bool {
	other := host.RoleKubelet
	if consequence == codeKubeletStalled {
		other = host.RoleRuntime
	}
	least := 0.0
	if consequence == codeRuntimeHung {
		least = f.nodeLimits().ThrottledCritical
	}
	return f.crowded() && least == 0 || slices.ContainsFunc(f.throttled(), func(t host.Throttling) bool {
		return t.Role != other && throttledShare(t) >= least
	})
}

func throttledShare(t host.Throttling) float64 { return share(min(t.Throttled, t.Periods), t.Periods) }

// throttled returns the control groups of runtime and kubelet, and those above them, that were kept from running for much of the time, the worst first.
func (f *Facts) throttled() []host.Throttling {
	l := f.nodeLimits()
	var out []host.Throttling
	for _, t := range f.seen().Cgroups.Value.Throttled {
		if t.PodUID == "" && t.Periods >= l.ThrottledPeriods && throttledShare(t) >= l.Throttled {
			out = append(out, t)
		}
	}
	slices.SortStableFunc(out, func(a, b host.Throttling) int { return cmp.Compare(throttledShare(b), throttledShare(a)) })
	return out
}

// crowded reports whether tasks wait for a CPU most of the time, for a minute at least.
func (f *Facts) crowded() bool {
	p, l := f.seen().Pressure.Value.CPU, f.nodeLimits()
	return p != nil && p.Some.Avg10 >= l.CPUSome && p.Some.Avg60 >= l.CPUSome
}

func recogniseCPUStarved(f *Facts) *Cause {
	throttled, slow := f.throttled(), f.crawls() || recogniseRuntimeSlow(f) != nil
	if len(throttled) == 0 && !(f.crowded() && slow) {
		return nil
	}
	l := f.nodeLimits()
	var e Evidence
	severity, step, summary := Warning, Fair, "more tasks want to run than there are CPUs, and the runtime is slow"
	if len(throttled) > 0 {
		step = Strong
		if slow {
			step = Certain
		}
		summary = fmt.Sprintf("the CPU limit of %s stops it in %s of the time slices", clean(throttled[0].Path), units.Percent(throttledShare(throttled[0])))
	}
	for _, t := range throttled {
		if throttledShare(t) >= l.ThrottledCritical {
			severity = Critical
		}
		addf(&e.For, "%s: throttled in %s of %s periods within %s, its tasks waited %s; it may use %.2g CPUs",
			clean(t.Path), units.Number(t.Throttled), units.Number(t.Periods), units.Duration(t.Over), units.Duration(t.Lost), t.Quota)
	}
	if p := f.seen().Pressure.Value.CPU; p != nil {
		line := &e.For
		if !f.crowded() {
			line = &e.Missing
		}
		if f.crowded() || len(throttled) == 0 {
			addf(line, "tasks waited for a CPU in %s (PSI cpu some)", pressure(p.Some))
		}
	} else {
		f.seen().Pressure.missing(&e, "pressure of the CPUs (/proc/pressure/cpu)")
	}
	if slow {
		addf(&e.For, "the runtime answers slowly")
	} else if r := f.rpc(rpcContainers); r.Outcome == answered {
		addf(&e.Against, "%s", callLine(r.last()))
	}
	f.seen().Cgroups.missing(&e, "throttling of the runtime and the kubelet")
	c := newCause(codeCPUStarved, severity, step, summary, e)
	c.Subject = &Subject{Kind: "Node", Name: "CPUs"}
	var s steps
	s.add(TouchesNothing, "grep . /proc/pressure/cpu; vmstat 1 5", "Does it go on? r is who wants to run, st is what the machine beneath takes.")
	s.add(TouchesNothing, "ps -eo pid,pcpu,etime,comm --sort=-pcpu | head -n 15", "Who uses the CPUs?")
	if len(throttled) > 0 {
		c.Subject = &Subject{Kind: "Cgroup", Name: clean(throttled[0].Path)}
		if unit := throttled[0].Unit; safe(unit) {
			c.Subject = &Subject{Kind: "Unit", Name: unit}
			s.add(TouchesNothing, "systemctl show "+unit+" -p CPUQuotaPerSecUSec -p Slice -p CPUWeight", "Where does the limit come from: this unit, or the slice above it?")
			s.add(TouchesScheduler, "systemctl set-property --runtime "+unit+" CPUQuota=", "Takes the limit off the unit until the next boot, without a restart.")
		}
	}
	s.add(TouchesScheduler, `kubectl cordon "$(hostname)"`, "No new pod should start here while the daemons wait for CPU.")
	c.NextSteps = s.done()
	return c
}
