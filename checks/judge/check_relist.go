package judge

import (
	"fmt"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
)

// relistChecks are the checks of what a relist costs.
func relistChecks() []Check {
	return []Check{
		{
			ID:    "relist.size",
			Title: "the lists stay below gRPC's message limit",
			Text: "The kubelet receives at most 16 MiB in one message, and containerd sends at most as much. Over it every relist fails at once, and so does the kubelet's " +
				"garbage collection.",
			read: readRelistSize,
		},
		{
			ID:    "relist.exited",
			Title: "dead containers and sandboxes do not pile up",
			Text: "The kubelet keeps the newest dead container of each name in each pod, and the newest sandbox of each pod. Thousands make each list larger and each cold " +
				"relist longer, until the lists do not fit any more.",
			read: readRelistExited,
		},
		{
			ID:    "relist.projection",
			Title: "a relist of the kubelet stays far below its threshold",
			Text: "What one relist would take: both lists, then the changed pods one after the other, each hung call counted at the kubelet's own timeout of two minutes. " +
				"Worked out as things are, for a rollout that changes a tenth of the pods, and for a restart of the kubelet, against three minutes.",
			read: readRelistProjection,
		},
	}
}

func readRelistSize(f *facts.Facts) checks.Result {
	if r := unreached(f); r != nil {
		return *r
	}
	s, known := f.Lists.Size, f.Lists.SizeKnown
	if !known {
		return result(checks.StatusUnknown, "no list arrived")
	}
	least := ""
	if s.AtLeast {
		least = "at least "
	}
	return result(checks.StatusOK, "%s is %s%s, %s of %s", s.RPC, least, units.Size(s.Bytes), units.Percent(s.Share()), units.Size(s.Limit))
}

func readRelistExited(f *facts.Facts) checks.Result {
	if r := unreached(f); r != nil {
		return *r
	}
	if f.Measurement.Containers == nil && f.Measurement.Sandboxes == nil {
		return result(checks.StatusUnknown, "no list arrived")
	}
	c := f.Lists.Census
	return result(checks.StatusOK, "%s (%s beyond the newest), %s", units.Count(c.Exited, "exited container"), units.Number(c.BeyondNewest),
		units.Plural(c.DeadSandboxes, "1 dead sandbox", units.Number(c.DeadSandboxes)+" dead sandboxes"))
}

func readRelistProjection(f *facts.Facts) checks.Result {
	if r := unreached(f); r != nil {
		return *r
	}
	s := f.Summary
	switch {
	case (s == nil || s.ProjectedSeconds == nil) && f.RPC[facts.RPCSandboxes].Outcome.Alive() && f.RPC[facts.RPCContainers].Outcome.Alive():
		return result(checks.StatusUnknown, "the pods that a relist would inspect gave no status, so nothing can be worked out")
	case s == nil || s.ProjectedSeconds == nil:
		return result(checks.StatusUnknown, "without both lists nothing can be worked out")
	}
	now, limit := causes.Optional(s.ProjectedSeconds), f.Calls.Threshold
	if len(f.Calls.HungLists) > 0 {
		return result(checks.StatusCritical, "fails after %s, since its lists are not answered; PLEG is unhealthy %s after the last that was", units.Duration(now), units.Duration(limit))
	}
	age := max(now, causes.Optional(s.ProjectedAgeSeconds))
	worst := max(now, causes.Optional(s.ChurnSeconds), causes.Optional(s.ColdSeconds)) // the work, without the pause that the age contains
	line := fmt.Sprintf("%s now", units.Duration(now))
	if s.ChurnSeconds != nil {
		line += fmt.Sprintf(", %s in a rollout", units.Seconds(*s.ChurnSeconds))
	}
	if s.ColdSeconds != nil {
		line += fmt.Sprintf(", %s cold", units.Seconds(*s.ColdSeconds))
	}
	if age > limit && now <= limit {
		line += fmt.Sprintf(", last seen active up to %s ago", units.Duration(age))
	}
	status := checks.StatusOK
	switch {
	case age > limit:
		status = checks.StatusCritical
	case f.Limits.RelistWarning > 0 && worst >= time.Duration(float64(limit)*f.Limits.RelistWarning):
		status = checks.StatusWarning
	case s.ColdSeconds == nil:
		return result(checks.StatusUnknown, "%s; the threshold is %s; what status calls cost is not known", line, units.Duration(limit))
	}
	return result(status, "%s; the threshold is %s", line, units.Duration(limit))
}
