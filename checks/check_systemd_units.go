package checks

import (
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

func systemdUnits() Check {
	return Check{
		ID:    "systemd.units",
		Title: "systemd does not leak units",
		Text: "Counts the units that systemd has loaded, those that are over and not forgotten, and the jobs that wait. A full node of 110 pods has about 500 scopes and slices; thousands of inactive ones are a leak, and each step of " +
			"systemd's goes through them.",
		read: readSystemdUnits,
	}
}

func readSystemdUnits(f *Facts) Result {
	return readLook(f, func(n *Node) Look[host.Systemd] { return n.Systemd }, func(s host.Systemd) Result {
		switch {
		case !s.Answered:
			return result(StatusUnknown, "systemd did not answer")
		case f.unitsLeak():
			return result(StatusWarning, "%s of %s are over and not forgotten", units.Number(s.Inactive), units.Count(s.Units, "unit"))
		case f.jobsWait():
			return result(StatusWarning, "%s wait", units.Count(s.Jobs, "job"))
		case !s.Counted:
			return result(StatusUnknown, "%s; their states were not counted", units.Count(s.Units, "unit"))
		}
		return result(StatusOK, "%s, %s, %s inactive, %s", units.Count(s.Units, "unit"), units.Count(s.Scopes, "scope"), units.Number(s.Inactive), units.Count(s.Jobs, "job"))
	})
}
