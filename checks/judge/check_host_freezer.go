package judge

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
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

func readHostFreezer(f *facts.Facts) checks.Result {
	return readReading(f, func(n *facts.Node) facts.Reading[host.Cgroups] { return n.Cgroups }, func(c host.Cgroups) checks.Result {
		switch cause := causes.RecogniseCgroupFrozen(f); {
		case cause != nil && cause.Severity == checks.Critical:
			return result(checks.StatusCritical, "%s", cause.Summary)
		case cause != nil:
			return result(checks.StatusWarning, "%s", cause.Summary)
		case len(c.Frozen) > 0:
			return result(checks.StatusOK, "%s frozen, none of a pod, the runtime or the kubelet", units.Plural(len(c.Frozen), "1 group is", units.Number(len(c.Frozen))+" groups are"))
		}
		return result(checks.StatusOK, "no control group is frozen")
	})
}
