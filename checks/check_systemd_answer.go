package checks

import (
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

func systemdAnswer() Check {
	return Check{
		ID:    "systemd.answer",
		Title: "systemd answers",
		Text: "Asks systemd over its own socket and over the system bus. With the systemd cgroup driver each container is a unit, and each start and stop waits for this answer. A state of degraded says that some unit has failed, " +
			"which is no trouble of systemd's own.",
		read: readSystemdAnswer,
	}
}

func readSystemdAnswer(f *Facts) Result {
	if f.systemdSilent() {
		return result(StatusCritical, "systemd did not answer in %s", units.Duration(f.seen().Systemd.Took))
	}
	return readLook(f, func(n *Node) Look[host.Systemd] { return n.Systemd }, func(s host.Systemd) Result {
		switch {
		case f.busSilent():
			return result(StatusCritical, "systemd answers on its own socket; over the system bus nothing comes")
		case f.systemdSlow():
			return result(StatusWarning, "systemd answered after %s", units.Duration(s.Took))
		case !s.Answered:
			return result(StatusUnknown, "systemd was not asked")
		}
		return result(StatusOK, "systemd %s answers in %s; it is %s", clean(s.Version), units.Duration(s.Took), or(clean(s.State), "in no state that it says"))
	})
}
