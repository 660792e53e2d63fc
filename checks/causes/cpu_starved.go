package causes

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
)

// CPUStarved is the code of this cause.
const CPUStarved = "CPUStarved"

var cpuStarved = cause(CPUStarved, recogniseCPUStarved, nil, "host.throttling")

func recogniseCPUStarved(f *facts.Facts) *Finding {
	throttled, slow := f.Pressure.Throttled, f.Pattern.Crawls || f.Pattern.Slow
	if len(throttled) == 0 && !(f.Pressure.Crowded && slow) {
		return nil
	}
	var e checks.Evidence
	critical, step := false, checks.Fair
	summary := "more tasks want to run than there are CPUs, and the runtime is slow"
	subject, unit := ofNode("CPUs"), ""
	if len(throttled) > 0 {
		t := throttled[0]
		step = choose(slow, checks.Certain, checks.Strong)
		summary = facts.Clean(t.Path) + " is stopped by its CPU limit: " + units.Percent(facts.ThrottledShare(t))
		unit = t.Unit
		subject = choose(facts.Safe(unit), checks.Subject{Kind: "Unit", Name: unit},
			checks.Subject{Kind: "Cgroup", Name: t.Path})
	}
	for _, t := range throttled {
		critical = critical || facts.ThrottledShare(t) >= f.Limits.Node.ThrottledCritical
		Addf(&e.For, "%s: throttled in %s of %s periods within %s; it may use %.2g CPUs", facts.Clean(t.Path),
			units.Number(t.Throttled), units.Number(t.Periods), t.Over, t.Quota)
	}
	if p := f.Seen.Pressure.Value.CPU; p == nil {
		missing(f.Seen.Pressure, &e, "pressure of the CPUs (/proc/pressure/cpu)")
	} else if f.Pressure.Crowded {
		Addf(&e.For, "tasks waited for a CPU in %s (PSI cpu some)", facts.PressureText(p.Some))
	}
	if r := f.RPC[facts.RPCContainers]; slow {
		Addf(&e.For, "the runtime answers slowly")
	} else if r.Outcome == facts.Answered {
		Addf(&e.Against, "%v", r.Last())
	}
	missing(f.Seen.Cgroups, &e, "throttling of the runtime and the kubelet")
	return newFinding(criticalIf(critical), step, summary, e, subject).advise(func(s *Steps, _ string) {
		s.Look("grep . /proc/pressure/cpu; vmstat 1 5", "Does it go on? st is what the machine beneath takes.")
		s.Look("ps -eo pid,pcpu,etime,comm --sort=-pcpu | head -n 15", "Who uses the CPUs?")
		if facts.Safe(unit) {
			s.Look("systemctl show "+unit+" -p CPUQuotaPerSecUSec -p Slice", "Is it the unit's limit, or its slice's?")
			s.Add(checks.TouchesLimit, "systemctl set-property --runtime "+unit+" CPUQuota=", untilBoot)
		}
		s.cordon()
	})
}
