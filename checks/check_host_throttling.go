package checks

import (
	"fmt"

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

func readHostThrottling(f *Facts) Result {
	return readLook(f, func(n *Node) Look[host.Cgroups] { return n.Cgroups }, func(c host.Cgroups) Result {
		l := f.nodeLimits()
		status, worst, line := StatusOK, 0.0, ""
		for _, t := range c.Throttled {
			s := share(t.Throttled, t.Periods)
			if t.Periods < l.ThrottledPeriods || s < l.Throttled || s <= worst {
				continue
			}
			worst, status = s, StatusWarning
			if s >= l.ThrottledCritical {
				status = StatusCritical
			}
			line = fmt.Sprintf("%s may use %.1f cores and was throttled in %s of its periods", clean(t.Path), t.Quota, units.Percent(s))
		}
		switch {
		case line != "":
			return result(status, "%s", line)
		case len(c.Throttled) == 0:
			return result(StatusOK, "no quota on the CPU of the runtime or the kubelet")
		}
		return result(StatusOK, "%s with a quota, none throttled to speak of", units.Count(len(c.Throttled), "group"))
	})
}
