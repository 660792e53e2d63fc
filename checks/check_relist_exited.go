package checks

import "github.com/kdiag/kdiag/checks/units"

func relistExited() Check {
	return Check{
		ID:    "relist.exited",
		Title: "dead containers and sandboxes do not pile up",
		Text: "The kubelet keeps the newest dead container of each name in each pod, and the newest sandbox of each pod. Thousands make each list larger and each cold " +
			"relist longer, until the lists do not fit any more.",
		read: readRelistExited,
	}
}

func readRelistExited(f *Facts) Result {
	if r := f.unreached(); r != nil {
		return *r
	}
	if f.Measurement.Containers == nil && f.Measurement.Sandboxes == nil {
		return result(StatusUnknown, "no list arrived")
	}
	c, l := f.takeCensus(), f.Limits
	status := StatusOK
	switch worst := max(c.Exited, c.DeadSandboxes); {
	case l.ExitedCritical > 0 && worst >= l.ExitedCritical:
		status = StatusCritical
	case l.ExitedWarning > 0 && c.Exited >= l.ExitedWarning, l.DeadSandboxes > 0 && c.DeadSandboxes >= l.DeadSandboxes:
		status = StatusWarning
	}
	return result(status, "%s (%s beyond the newest), %s", units.Count(c.Exited, "exited container"), units.Number(c.BeyondNewest),
		verb(c.DeadSandboxes, "1 dead sandbox", units.Number(c.DeadSandboxes)+" dead sandboxes"))
}
