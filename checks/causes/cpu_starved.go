package causes

import (
	"slices"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

// CPUStarved is the code of this cause.
const CPUStarved = "CPUStarved"

func recogniseCPUStarved(f *facts.Facts) *Finding {
	throttled, starved := f.Pressure.Throttled, runtimeStarves(f)
	slow := f.Pattern.Crawls || f.Pattern.Slow || f.Pattern.Hang != facts.HangNone
	if len(throttled) == 0 && !(slow && (f.Pressure.Crowded && f.Pattern.Hang == facts.HangNone || starved)) {
		return nil
	}
	var e checks.Evidence
	critical, step := starved && slow, checks.Fair
	summary := "more tasks want to run than there are CPUs, and the runtime is slow"
	subject, unit := ofNode("CPUs"), ""
	if starved {
		step = checks.Certain
		summary = f.Target.Daemon.Label + " is starved of CPU: other processes keep it from running"
		subject = *facts.DaemonSubject(f)
	}
	for _, d := range f.Pressure.Starved {
		Addf(&e.For, "%s (pid %d) waited %s for a CPU and ran %s, all threads together in %s", facts.Clean(d.Name),
			d.PID, facts.LostTime(d), d.Ran, d.Over)
	}
	if len(throttled) > 0 {
		t := throttled[0]
		step = ifElse(slow, checks.Certain, checks.Strong)
		summary = facts.Clean(t.Path) + " is throttled by its CPU limit: " + units.Percent(facts.ThrottledShare(t)) +
			" of the time"
		unit = unitOfGroup(t.Path)
		if facts.HoldsAllPods(t.Path) {
			summary = "all pods together: " + summary
		}
		subject = ifElse(facts.Safe(unit), checks.Subject{Kind: "Unit", Name: unit},
			checks.Subject{Kind: "Cgroup", Name: t.Path})
	}
	for _, t := range throttled {
		// A cap of all pods may be wanted, and daemons do not wait for it.
		critical = critical || facts.ThrottledShare(t) >= f.Limits.Node.ThrottledCritical && !facts.HoldsAllPods(t.Path)
		Addf(&e.For, "%s: throttled in %s of %s periods within %s; it may use %.2g CPUs", facts.Clean(t.Path),
			units.Number(t.Throttled), units.Number(t.Periods), t.Over, t.Quota)
	}
	if p := f.Seen.Pressure.Value.CPU; p == nil {
		missing(f.Seen.Pressure, &e, "pressure of the CPUs (/proc/pressure/cpu)")
	} else if f.Pressure.Crowded {
		Addf(&e.For, "tasks waited for a CPU in %s (PSI cpu some)", pressureText(p.Some))
	}
	if r := f.RPC[facts.RPCContainers]; slow {
		Addf(&e.For, "the runtime answers slowly, or not at all")
	} else if !starved && !podsThrottled(f) && r.Outcome == facts.Answered {
		Addf(&e.Against, "%v", r.Last())
	}
	missing(f.Seen.Cgroups, &e, "throttling of the runtime and the kubelet")
	return newFinding(criticalIf(critical), step, summary, e, subject).advise(func(s *Steps, _ string) {
		s.Look("grep . /proc/pressure/cpu; vmstat 1 5",
			"Check if the pressure continues; st is CPU time that the hypervisor took.")
		s.Look("ps -eo pid,ni,cls,pcpu,etime,comm --sort=-pcpu | head -n 15",
			"List who uses the CPUs, with priorities.")
		if pid := f.Target.Daemon.PID; starved && len(throttled) == 0 && pid > 1 {
			s.Look(textf("ps -o pid,ni,cls,psr,comm -p %d; taskset -pc %[1]d", pid),
				"Check its priority (NI above 0, class IDL) and the CPUs that it may use.")
			s.Add(checks.TouchesProcess, textf("chrt -a -o -p 0 %d; renice -n 0 $(ls /proc/%[1]d/task)", pid),
				"Sets its usual priority again, without a restart.")
		}
		if facts.Safe(unit) {
			s.Look("systemctl show "+unit+" -p CPUQuotaPerSecUSec -p Slice",
				"Check if the limit is the unit's or its slice's.")
			s.Add(checks.TouchesLimit, "systemctl set-property --runtime "+unit+" CPUQuota=", untilBoot)
		}
		for _, t := range throttled {
			if file := quotaFile(f, t.Path); facts.HoldsAllPods(t.Path) && unit == "" && facts.SafePath.MatchString(file) {
				s.Add(checks.TouchesLimit, textf("echo %s >%s", ifElse(f.Seen.Cgroups.Value.Version == 2, "max", "-1"), file),
					"Lifts it: the kubelet gives all pods together a weight, and no quota.")
			}
		}
		s.cordon()
	})
}

// podsThrottled reports whether a quota throttles all pods together.
func podsThrottled(f *facts.Facts) bool {
	return slices.ContainsFunc(f.Pressure.Throttled, func(t host.Throttling) bool { return facts.HoldsAllPods(t.Path) })
}

// quotaFile is the file that has the quota of a control group.
func quotaFile(f *facts.Facts, group string) string {
	if f.Seen.Cgroups.Value.Version == 2 {
		return "/sys/fs/cgroup" + group + "/cpu.max"
	}
	return "/sys/fs/cgroup/cpu" + group + "/cpu.cfs_quota_us"
}

// runtimeStarves reports whether the runtime that was asked waits for a CPU.
func runtimeStarves(f *facts.Facts) bool {
	return slices.ContainsFunc(f.Pressure.Starved, func(d host.Delay) bool { return d.PID == f.Target.Daemon.PID })
}
