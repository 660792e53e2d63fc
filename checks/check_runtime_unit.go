package checks

import "github.com/kdiag/kdiag/checks/host"

func runtimeUnit() Check {
	return Check{
		ID:    "runtime.unit",
		Title: "the runtime's unit runs",
		Text:  "Asks systemd for the state of the runtime's unit, its last result and how often systemd restarted it. A unit that is down while the runtime answers belongs to another runtime.",
		read:  readRuntimeUnit,
	}
}

func readRuntimeUnit(f *Facts) Result {
	return readLook(f, func(n *Node) Look[host.Systemd] { return n.Systemd }, func(s host.Systemd) Result {
		u := f.runtimeUnitSeen()
		switch {
		case unitDown(u) && f.connected():
			return result(StatusSkipped, "%s, and the runtime answers: it runs in another way", f.unitLine(u))
		case unitDown(u):
			return result(StatusCritical, "%s", f.unitLine(u))
		}
		return f.readUnit(s, u)
	})
}
