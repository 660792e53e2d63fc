package checks

import "github.com/kdiag/kdiag/checks/units"

func runtimeStatus() Check {
	return Check{
		ID:    "runtime.status",
		Title: "Status is answered, and RuntimeReady",
		Text: "The kubelet asks every five seconds; after 30 s without a good answer it calls the runtime down. In containerd Status waits for the CNI lock, so it may " +
			"hang alone. containerd and CRI-O always say RuntimeReady=true.",
		read: readRuntimeStatus,
	}
}

func readRuntimeStatus(f *Facts) Result {
	return f.readRPC(rpcStatus, func() Result {
		if f.Measurement.Status == nil {
			return result(StatusUnknown, "Status was answered without content")
		}
		c, ok := f.Measurement.Status.Condition(conditionRuntimeReady)
		switch {
		case !ok:
			return result(StatusCritical, "RuntimeReady is not reported")
		case !c.Status:
			return result(StatusCritical, "%s", conditionLine(c))
		}
		status, took := StatusOK, f.rpc(rpcStatus).last().Elapsed
		if f.Limits.SlowList > 0 && took >= f.Limits.SlowList {
			status = StatusWarning
		}
		return result(status, "RuntimeReady, answered in %s", units.Duration(took))
	})
}
