package checks

import (
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

func hostFreezer() Check {
	return Check{
		ID:    "host.freezer",
		Title: "no control group of a pod, the runtime or the kubelet is frozen",
		Text:  "Looks for frozen control groups with tasks. CRI cannot pause a container, so a frozen group of a pod is what a failed runc or a person left behind. Groups of users' sessions are not counted.",
		read:  readHostFreezer,
	}
}

func readHostFreezer(f *Facts) Result {
	return readLook(f, func(n *Node) Look[host.Cgroups] { return n.Cgroups }, func(c host.Cgroups) Result {
		switch cause := recogniseCgroupFrozen(f); {
		case cause != nil && cause.Severity == Critical:
			return result(StatusCritical, "%s", cause.Summary)
		case cause != nil:
			return result(StatusWarning, "%s", cause.Summary)
		case len(c.Frozen) > 0:
			return result(StatusOK, "%s frozen, none of a pod, the runtime or the kubelet", verb(len(c.Frozen), "1 group is", units.Number(len(c.Frozen))+" groups are"))
		}
		return result(StatusOK, "no control group is frozen")
	})
}
