package checks

import (
	"fmt"
	"slices"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

func hostProcesses() Check {
	return Check{
		ID:    "host.processes",
		Title: "no process of the runtime is stopped or stuck",
		Text: "Reads the state of the runtime daemon, shims, OCI runtimes, CNI plugins and the kubelet from /proc. Stopped ones do not serve, ones in uninterruptible sleep wait for " +
			"a disk or a mount, and a runc at work for more than ten seconds is stuck.",
		read: readHostProcesses,
	}
}

func readHostProcesses(f *Facts) Result {
	if f.simulated() {
		return result(StatusSkipped, "the runtime is simulated and has no processes")
	}
	if f.HostMissing != "" {
		return result(StatusUnknown, "processes were not read: %s", clean(f.HostMissing))
	}
	if len(f.Processes) == 0 {
		return result(StatusSkipped, "no process of a runtime was seen on this host")
	}
	status, worst := StatusOK, ""
	note := func(s Status, p host.Process, what string) {
		if worst == "" || s == StatusCritical && status != StatusCritical {
			status, worst = s, fmt.Sprintf("%s (%s) %s", processLabel(p), p.Role, what)
		}
	}
	all := slices.DeleteFunc(slices.Clone(f.Processes), func(p host.Process) bool { return isStopped(&p) && f.isForeignShim(p) })
	for _, p := range all {
		switch {
		case p.Role == host.RoleRuntime && !f.isOther(p) && (isStopped(&p) || isUninterruptible(&p) && p.Lasting):
			note(StatusCritical, p, "is "+stateOf(p))
		case isStopped(&p):
			note(StatusWarning, p, "is "+stateOf(p))
		case isUninterruptible(&p):
			note(StatusWarning, p, "is in "+stateOf(p))
		case p.Role == host.RoleOCI && f.age(p) >= longOCI, p.Role == host.RoleCNI && f.age(p) >= f.cniTooLong():
			note(StatusWarning, p, "has been at work for "+units.Duration(f.age(p)))
		}
	}
	if worst != "" {
		return result(status, "%s", worst)
	}
	return result(StatusOK, "%s of the runtime, none stopped or stuck", verb(len(all), "1 process", units.Number(len(all))+" processes"))
}

// isOther reports whether a runtime is not the one that was asked and answered: a node may have docker's besides.
func (f *Facts) isOther(p host.Process) bool {
	m := f.Measurement
	return m != nil && m.Status != nil && m.Connect.PeerPID > 1 && m.Connect.PeerPID != p.PID
}
