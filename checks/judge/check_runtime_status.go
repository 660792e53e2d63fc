package judge

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
)

func runtimeStatus() Check {
	return Check{
		ID:    "runtime.status",
		Title: "Status is answered, and RuntimeReady",
		Text: "The kubelet asks every five seconds; after 30 s without a good answer it calls the runtime down. In containerd Status waits for the CNI lock, so it may " +
			"hang alone. containerd and CRI-O always say RuntimeReady=true.",
		read: readRuntimeStatus,
	}
}

func readRuntimeStatus(f *facts.Facts) checks.Result {
	return readRPC(f, facts.RPCStatus, func() checks.Result {
		if f.Measurement.Status == nil {
			return result(checks.StatusUnknown, "Status was answered without content")
		}
		c, ok := f.Measurement.Status.Condition(facts.ConditionRuntimeReady)
		switch {
		case !ok:
			return result(checks.StatusCritical, "RuntimeReady is not reported")
		case !c.Status:
			return result(checks.StatusCritical, "%s", causes.ConditionLine(c))
		}
		status, took := checks.StatusOK, f.RPC[facts.RPCStatus].Last().Elapsed
		if f.Limits.SlowList > 0 && took >= f.Limits.SlowList {
			status = checks.StatusWarning
		}
		return result(status, "RuntimeReady, answered in %s", units.Duration(took))
	})
}
