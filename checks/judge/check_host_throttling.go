package judge

import (
	"fmt"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

func hostThrottling() Check {
	return Check{
		ID:    "host.throttling",
		Title: "runtime and kubelet are not throttled",
		Text:  "Reads cpu.stat of the control groups of the runtime and the kubelet, and of those above them, twice. A quota there (CPUQuota in a unit, or a limit on system.slice) makes every answer wait; a quarter of the periods is a warning.",
		read:  readHostThrottling,
	}
}

func readHostThrottling(f *facts.Facts) checks.Result {
	return readReading(f, func(n *facts.Node) facts.Reading[host.Cgroups] { return n.Cgroups }, func(c host.Cgroups) checks.Result {
		l := f.Limits.Node
		status, worst, line := checks.StatusOK, 0.0, ""
		for _, t := range c.Throttled {
			s := facts.Share(t.Throttled, t.Periods)
			if t.Periods < l.ThrottledPeriods || s < l.Throttled || s <= worst {
				continue
			}
			worst, status = s, checks.StatusWarning
			if s >= l.ThrottledCritical {
				status = checks.StatusCritical
			}
			line = fmt.Sprintf("%s may use %.1f cores and was throttled in %s of its periods", facts.Clean(t.Path), t.Quota, units.Percent(s))
		}
		switch {
		case line != "":
			return result(status, "%s", line)
		case len(c.Throttled) == 0:
			return result(checks.StatusOK, "no quota on the CPU of the runtime or the kubelet")
		}
		return result(checks.StatusOK, "%s with a quota, none throttled to speak of", units.Count(len(c.Throttled), "group"))
	})
}
