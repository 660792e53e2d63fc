package judge

import (
	"cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

// systemdChecks are the checks of systemd and the unit of the runtime.
func systemdChecks() []Check {
	return []Check{
		{
			ID:    "systemd.answer",
			Title: "systemd answers",
			Text: "Asks systemd over its own socket and over the system bus. With the systemd cgroup driver each container is a unit, and each start and stop waits for this answer. A state of degraded says that some unit has failed, " +
				"which is no trouble of systemd's own.",
			read: reading(func(n *facts.Node) facts.Reading[host.Systemd] { return n.Systemd }, judgeSystemdAnswer),
		},
		{
			ID:    "systemd.units",
			Title: "systemd does not leak units",
			Text: "Counts the units that systemd has loaded, those that are over and not forgotten, and the jobs that wait. A full node of 110 pods has about 500 scopes and slices; thousands of inactive ones are a leak, and each step of " +
				"systemd's goes through them.",
			read: reading(func(n *facts.Node) facts.Reading[host.Systemd] { return n.Systemd }, judgeSystemdUnits),
		},
		{
			ID:    "runtime.unit",
			Title: "the runtime's unit runs",
			Text:  "Asks systemd for the state of the runtime's unit, its last result and how often systemd restarted it. A unit that is down while the runtime answers belongs to another runtime.",
			read:  reading(func(n *facts.Node) facts.Reading[host.Systemd] { return n.Systemd }, judgeRuntimeUnit),
		},
	}
}

func judgeSystemdAnswer(f *facts.Facts, s host.Systemd) checks.Result {
	if !s.Answered {
		return result(checks.StatusUnknown, "systemd was not asked")
	}
	return result(checks.StatusOK, "systemd %s answers in %s; it is %s", facts.Clean(s.Version), units.Duration(s.Took), cmp.Or(facts.Clean(s.State), "in no state that it says"))
}

func judgeSystemdUnits(f *facts.Facts, s host.Systemd) checks.Result {
	switch {
	case !s.Answered:
		return result(checks.StatusUnknown, "systemd did not answer")
	case !s.Counted:
		return result(checks.StatusUnknown, "%s; their states were not counted", units.Count(s.Units, "unit"))
	}
	return result(checks.StatusOK, "%s, %s, %s inactive, %s", units.Count(s.Units, "unit"), units.Count(s.Scopes, "scope"), units.Number(s.Inactive), units.Count(s.Jobs, "job"))
}

func judgeRuntimeUnit(f *facts.Facts, s host.Systemd) checks.Result {
	u := f.Target.RuntimeUnit
	switch {
	case causes.UnitDown(u) && f.Calls.Connected:
		return result(checks.StatusSkipped, "%s, and the runtime answers: it runs in another way", causes.UnitLine(f, u))
	case causes.UnitDown(u):
		return result(checks.StatusCritical, "%s", causes.UnitLine(f, u))
	}
	return readUnit(f, s, u)
}
