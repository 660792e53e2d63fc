package checks

import "github.com/kdiag/kdiag/checks/host"

func kubeletUnitCheck() Check {
	return Check{
		ID:    "kubelet.unit",
		Title: "the kubelet's unit runs",
		Text:  "Asks systemd for the state of the kubelet's unit, its last result and how often systemd restarted it. A host without such a unit is no node, or runs its kubelet in another way: then this is skipped.",
		read:  readKubeletUnit,
	}
}

func readKubeletUnit(f *Facts) Result {
	return readLook(f, func(n *Node) Look[host.Systemd] { return n.Systemd }, func(s host.Systemd) Result {
		if c := recogniseKubeletDown(f); c != nil {
			return result(StatusCritical, "%s", c.Summary)
		}
		return f.readUnit(s, s.Kubelet)
	})
}

// readUnit is the result for a unit that nobody has called down yet.
func (f *Facts) readUnit(s host.Systemd, u *host.Unit) Result {
	switch {
	case !s.Answered:
		return result(StatusUnknown, "systemd did not answer")
	case u == nil || u.Load == "not-found":
		return result(StatusSkipped, "systemd has no such unit")
	case u.Active == "activating" || u.Active == "deactivating":
		return result(StatusWarning, "%s", f.unitLine(u))
	case u.Restarts >= loopRestarts && !u.Since.IsZero() && f.Now.Sub(u.Since) < loopFresh:
		return result(StatusWarning, "%s: it does not stay up", f.unitLine(u))
	case unitDown(u):
		return result(StatusSkipped, "%s: it is not in use here", f.unitLine(u))
	}
	return result(StatusOK, "%s", f.unitLine(u))
}
