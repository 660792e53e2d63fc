package judge

import (
	"cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
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

func readSystemdAnswer(f *facts.Facts) checks.Result {
	if f.Systemd.Silent {
		return result(checks.StatusCritical, "systemd did not answer in %s", units.Duration(f.Seen.Systemd.Took))
	}
	return readReading(f, func(n *facts.Node) facts.Reading[host.Systemd] { return n.Systemd }, func(s host.Systemd) checks.Result {
		switch {
		case f.Systemd.BusSilent:
			return result(checks.StatusCritical, "systemd answers on its own socket; over the system bus nothing comes")
		case f.Systemd.Slow:
			return result(checks.StatusWarning, "systemd answered after %s", units.Duration(s.Took))
		case !s.Answered:
			return result(checks.StatusUnknown, "systemd was not asked")
		}
		return result(checks.StatusOK, "systemd %s answers in %s; it is %s", facts.Clean(s.Version), units.Duration(s.Took), cmp.Or(facts.Clean(s.State), "in no state that it says"))
	})
}
