package causes

import (
	"fmt"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
)

// CPUStarved is the code of this cause.
const CPUStarved = "CPUStarved"

var cpuStarved = Definition{
	Code:   CPUStarved,
	Claims: []string{"host.throttling"},
	Roots: []Root{
		{Code: MemoryPressure, When: memoryIsLow},
		{Code: MountsExploded},
		{Code: CgroupsLeaked, When: livingCgroups},
	},
	Recognise: recogniseCPUStarved,
}

func recogniseCPUStarved(f *facts.Facts) *Finding {
	throttled, slow := f.Pressure.Throttled, f.Pattern.Crawls || f.Pattern.Slow
	if len(throttled) == 0 && !(f.Pressure.Crowded && slow) {
		return nil
	}
	l := f.Limits.Node
	var e checks.Evidence
	severity, step, summary := checks.Warning, checks.Fair, "more tasks want to run than there are CPUs, and the runtime is slow"
	if len(throttled) > 0 {
		step = checks.Strong
		if slow {
			step = checks.Certain
		}
		summary = fmt.Sprintf("the CPU limit of %s stops it in %s of the time slices", facts.Clean(throttled[0].Path), units.Percent(facts.ThrottledShare(throttled[0])))
	}
	for _, t := range throttled {
		if facts.ThrottledShare(t) >= l.ThrottledCritical {
			severity = checks.Critical
		}
		Addf(&e.For, "%s: throttled in %s of %s periods within %s, its tasks waited %s; it may use %.2g CPUs",
			facts.Clean(t.Path), units.Number(t.Throttled), units.Number(t.Periods), units.Duration(t.Over), units.Duration(t.Lost), t.Quota)
	}
	if p := f.Seen.Pressure.Value.CPU; p != nil {
		line := &e.For
		if !f.Pressure.Crowded {
			line = &e.Missing
		}
		if f.Pressure.Crowded || len(throttled) == 0 {
			Addf(line, "tasks waited for a CPU in %s (PSI cpu some)", facts.PressureText(p.Some))
		}
	} else {
		missing(f.Seen.Pressure, &e, "pressure of the CPUs (/proc/pressure/cpu)")
	}
	if slow {
		Addf(&e.For, "the runtime answers slowly")
	} else if r := f.RPC[facts.RPCContainers]; r.Outcome == facts.Answered {
		Addf(&e.Against, "%s", facts.CallLine(r.Last()))
	}
	missing(f.Seen.Cgroups, &e, "throttling of the runtime and the kubelet")
	c := newFinding(severity, step, summary, e)
	c.Subject = &checks.Subject{Kind: "Node", Name: "CPUs"}
	unit := ""
	if len(throttled) > 0 {
		c.Subject = &checks.Subject{Kind: "Cgroup", Name: facts.Clean(throttled[0].Path)}
		if unit = throttled[0].Unit; facts.Safe(unit) {
			c.Subject = &checks.Subject{Kind: "Unit", Name: unit}
		}
	}
	c.Advise = func(string) []checks.NextStep {
		var s Steps
		s.Add(checks.TouchesNothing, "grep . /proc/pressure/cpu; vmstat 1 5", "Does it go on? r is who wants to run, st is what the machine beneath takes.")
		s.Add(checks.TouchesNothing, "ps -eo pid,pcpu,etime,comm --sort=-pcpu | head -n 15", "Who uses the CPUs?")
		if facts.Safe(unit) {
			s.Add(checks.TouchesNothing, "systemctl show "+unit+" -p CPUQuotaPerSecUSec -p Slice -p CPUWeight", "Where does the limit come from: this unit, or the slice above it?")
			s.Add(checks.TouchesScheduler, "systemctl set-property --runtime "+unit+" CPUQuota=", "Takes the limit off the unit until the next boot, without a restart.")
		}
		s.Add(checks.TouchesScheduler, `kubectl cordon "$(hostname)"`, "No new pod should start here while the daemons wait for CPU.")
		return s.Done()
	}
	return c
}
