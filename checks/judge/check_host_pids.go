package judge

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
)

func hostPIDs() Check {
	return Check{
		ID:    "host.pids",
		Title: "processes and threads are far from their limits",
		Text: "Counts all threads against kernel.pid_max and threads-max, and those of the units of runtime and kubelet, of all pods and of single pods against the limits of their control groups. " +
			"Nine tenths of a limit of the node or its daemons is critical; a pod at its own is a warning.",
		read: func(f *facts.Facts) checks.Result {
			return readReading(f, func(n *facts.Node) facts.Reading[host.PIDs] { return n.PIDs }, func(v0 host.PIDs) checks.Result { return judgePIDs(f, v0) })
		},
	}
}

func judgePIDs(f *facts.Facts, p host.PIDs) checks.Result {
	if limits := f.Usage.PIDs; len(limits) > 0 {
		status := facts.StatusOf(f.Limits.Node, limits[0].Share)
		if limits[0].Pod {
			status = checks.StatusWarning
		}
		return result(status, "%s", limits[0].Line+causes.OfCulprit(causes.PIDHolders(f, limits[0])))
	}
	if p.Tasks <= 0 || p.PIDMax == 0 {
		return result(checks.StatusUnknown, "the number of threads or their limit is not known")
	}
	return result(checks.StatusOK, "%s threads, kernel.pid_max", facts.UsageText(host.Usage{Current: uint64(p.Tasks), Max: p.PIDMax}))
}
