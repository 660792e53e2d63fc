package checks

import "github.com/kdiag/kdiag/checks/host"

func hostPIDs() Check {
	return Check{
		ID:    "host.pids",
		Title: "processes and threads are far from their limits",
		Text: "Counts all threads against kernel.pid_max and threads-max, and those of the units of runtime and kubelet, of all pods and of single pods against the limits of their control groups. " +
			"Nine tenths of a limit of the node or its daemons is critical; a pod at its own is a warning.",
		read: func(f *Facts) Result {
			return readLook(f, func(n *Node) Look[host.PIDs] { return n.PIDs }, f.judgePIDs)
		},
	}
}

func (f *Facts) judgePIDs(p host.PIDs) Result {
	if limits := f.pidLimits(); len(limits) > 0 {
		status := f.nodeLimits().statusOf(limits[0].share)
		if limits[0].pod {
			status = StatusWarning
		}
		return result(status, "%s", limits[0].line+ofCulprit(f.pidHolders(limits[0])))
	}
	if p.Tasks <= 0 || p.PIDMax == 0 {
		return result(StatusUnknown, "the number of threads or their limit is not known")
	}
	return result(StatusOK, "%s threads, kernel.pid_max", usage(host.Usage{Current: uint64(p.Tasks), Max: p.PIDMax}))
}
