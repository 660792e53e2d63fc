package judge

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
)

func kubeletUnitCheck() Check {
	return Check{
		ID:    "kubelet.unit",
		Title: "the kubelet's unit runs",
		Text:  "Asks systemd for the state of the kubelet's unit, its last result and how often systemd restarted it. A host without such a unit is no node, or runs its kubelet in another way: then this is skipped.",
		read:  readKubeletUnit,
	}
}

func readKubeletUnit(f *facts.Facts) checks.Result {
	return readReading(f, func(n *facts.Node) facts.Reading[host.Systemd] { return n.Systemd }, func(s host.Systemd) checks.Result {
		if c := causes.RecogniseKubeletDown(f); c != nil {
			return result(checks.StatusCritical, "%s", c.Summary)
		}
		return readUnit(f, s, s.Kubelet)
	})
}

// readUnit is the result for a unit that nobody has called down yet.
func readUnit(f *facts.Facts, s host.Systemd, u *host.Unit) checks.Result {
	switch {
	case !s.Answered:
		return result(checks.StatusUnknown, "systemd did not answer")
	case u == nil || u.Load == "not-found":
		return result(checks.StatusSkipped, "systemd has no such unit")
	case u.Active == "activating" || u.Active == "deactivating":
		return result(checks.StatusWarning, "%s", causes.UnitLine(f, u))
	case u.Restarts >= facts.LoopRestarts && !u.Since.IsZero() && f.Now.Sub(u.Since) < facts.LoopFresh:
		return result(checks.StatusWarning, "%s: it does not stay up", causes.UnitLine(f, u))
	case causes.UnitDown(u):
		return result(checks.StatusSkipped, "%s: it is not in use here", causes.UnitLine(f, u))
	}
	return result(checks.StatusOK, "%s", causes.UnitLine(f, u))
}
