package judge

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
)

func runtimeUnit() Check {
	return Check{
		ID:    "runtime.unit",
		Title: "the runtime's unit runs",
		Text:  "Asks systemd for the state of the runtime's unit, its last result and how often systemd restarted it. A unit that is down while the runtime answers belongs to another runtime.",
		read:  readRuntimeUnit,
	}
}

func readRuntimeUnit(f *facts.Facts) checks.Result {
	return readReading(f, func(n *facts.Node) facts.Reading[host.Systemd] { return n.Systemd }, func(s host.Systemd) checks.Result {
		u := f.Target.RuntimeUnit
		switch {
		case causes.UnitDown(u) && f.Calls.Connected:
			return result(checks.StatusSkipped, "%s, and the runtime answers: it runs in another way", causes.UnitLine(f, u))
		case causes.UnitDown(u):
			return result(checks.StatusCritical, "%s", causes.UnitLine(f, u))
		}
		return readUnit(f, s, u)
	})
}
