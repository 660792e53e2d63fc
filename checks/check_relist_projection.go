package checks

import (
	"fmt"
	"time"

	"github.com/kdiag/kdiag/checks/units"
)

func relistProjection() Check {
	return Check{
		ID:    "relist.projection",
		Title: "a relist of the kubelet stays far below its threshold",
		Text: "What one relist would take: both lists, then the changed pods one after the other, each hung call counted at the kubelet's own timeout of two minutes. " +
			"Worked out as things are, for a rollout that changes a tenth of the pods, and for a restart of the kubelet, against three minutes.",
		read: readRelistProjection,
	}
}

func readRelistProjection(f *Facts) Result {
	if r := f.unreached(); r != nil {
		return *r
	}
	s := f.Summary
	switch {
	case (s == nil || s.ProjectedSeconds == nil) && f.rpc(rpcSandboxes).Outcome.alive() && f.rpc(rpcContainers).Outcome.alive():
		return result(StatusUnknown, "the pods that a relist would inspect gave no status, so nothing can be worked out")
	case s == nil || s.ProjectedSeconds == nil:
		return result(StatusUnknown, "without both lists nothing can be worked out")
	}
	now, limit := optional(s.ProjectedSeconds), f.threshold()
	if len(f.hungLists()) > 0 {
		return result(StatusCritical, "fails after %s, since its lists are not answered; PLEG is unhealthy %s after the last that was", units.Duration(now), units.Duration(limit))
	}
	age := max(now, optional(s.ProjectedAgeSeconds))
	worst := max(now, optional(s.ChurnSeconds), optional(s.ColdSeconds)) // the work, without the pause that the age contains
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
	status := StatusOK
	switch {
	case age > limit:
		status = StatusCritical
	case f.Limits.RelistWarning > 0 && worst >= time.Duration(float64(limit)*f.Limits.RelistWarning):
		status = StatusWarning
	case s.ColdSeconds == nil:
		return result(StatusUnknown, "%s; the threshold is %s; what status calls cost is not known", line, units.Duration(limit))
	}
	return result(status, "%s; the threshold is %s", line, units.Duration(limit))
}
