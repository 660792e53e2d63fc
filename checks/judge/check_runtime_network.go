package judge

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
)

func runtimeNetwork() Check {
	return Check{
		ID:    "runtime.network",
		Title: "the runtime's network is ready",
		Text: "NetworkReady is false while there is no usable CNI configuration. The node is NotReady then, but PLEG is not involved, and pods on the host's " +
			"network still start.",
		read: readRuntimeNetwork,
	}
}

func readRuntimeNetwork(f *facts.Facts) checks.Result {
	if r := unreached(f); r != nil {
		return *r
	}
	if f.Measurement.Status == nil {
		return result(checks.StatusUnknown, "Status was not answered")
	}
	c, ok := f.Measurement.Status.Condition(facts.ConditionNetworkReady)
	switch {
	case !ok:
		return result(checks.StatusCritical, "NetworkReady is not reported")
	case !c.Status:
		return result(checks.StatusCritical, "%s", causes.ConditionLine(c))
	}
	return result(checks.StatusOK, "NetworkReady")
}
