package judge

import (
	"fmt"
	"slices"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
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

func readHostProcesses(f *facts.Facts) checks.Result {
	if f.Target.Simulated {
		return result(checks.StatusSkipped, "the runtime is simulated and has no processes")
	}
	if f.HostMissing != "" {
		return result(checks.StatusUnknown, "processes were not read: %s", facts.Clean(f.HostMissing))
	}
	if len(f.Processes) == 0 {
		return result(checks.StatusSkipped, "no process of a runtime was seen on this host")
	}
	status, worst := checks.StatusOK, ""
	note := func(s checks.Status, p host.Process, what string) {
		if worst == "" || s == checks.StatusCritical && status != checks.StatusCritical {
			status, worst = s, fmt.Sprintf("%s (%s) %s", facts.ProcessLabel(p), p.Role, what)
		}
	}
	all := slices.DeleteFunc(slices.Clone(f.Processes), func(p host.Process) bool { return facts.IsStopped(&p) && facts.IsForeignShim(f, p) })
	for _, p := range all {
		switch {
		case p.Role == host.RoleRuntime && !isOther(f, p) && (facts.IsStopped(&p) || facts.IsUninterruptible(&p) && p.Lasting):
			note(checks.StatusCritical, p, "is "+facts.StateOf(p))
		case facts.IsStopped(&p):
			note(checks.StatusWarning, p, "is "+facts.StateOf(p))
		case facts.IsUninterruptible(&p):
			note(checks.StatusWarning, p, "is in "+facts.StateOf(p))
		case p.Role == host.RoleOCI && facts.AgeOf(f, p) >= facts.LongOCI, p.Role == host.RoleCNI && facts.AgeOf(f, p) >= f.Limits.CNIPluginTooLong:
			note(checks.StatusWarning, p, "has been at work for "+units.Duration(facts.AgeOf(f, p)))
		}
	}
	if worst != "" {
		return result(status, "%s", worst)
	}
	return result(checks.StatusOK, "%s of the runtime, none stopped or stuck", units.Plural(len(all), "1 process", units.Number(len(all))+" processes"))
}

// isOther reports whether a runtime is not the one that was asked and answered: a node may have docker's besides.
func isOther(f *facts.Facts, p host.Process) bool {
	m := f.Measurement
	return m != nil && m.Status != nil && m.Connect.PeerPID > 1 && m.Connect.PeerPID != p.PID
}
