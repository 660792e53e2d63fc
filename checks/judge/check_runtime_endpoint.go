package judge

import (
	"cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
)

func runtimeEndpoint() Check {
	return Check{
		ID:    "runtime.endpoint",
		Title: "which socket is asked, and why",
		Text: "The socket comes from --runtime-endpoint, $CONTAINER_RUNTIME_ENDPOINT, the running kubelet, /etc/crictl.yaml or the well-known paths, in this order; where neither a kubelet nor a socket is there, " +
			"from what the kubelet's files or the command lines of running shims name. " +
			"A verdict on a socket that the kubelet does not use says nothing about the node, so a difference is a warning.",
		read: readRuntimeEndpoint,
	}
}

func readRuntimeEndpoint(f *facts.Facts) checks.Result {
	e := facts.Clean(f.Runtime.Endpoint)
	switch {
	case e == "":
		return result(checks.StatusUnknown, "no endpoint was found")
	case f.Target.OtherEndpoint:
		return result(checks.StatusWarning, "%s, but the kubelet %s", e, facts.UsesOther(f))
	case f.Runtime.EndpointReason != "":
		return result(checks.StatusOK, "%s: %s", e, facts.Clean(f.Runtime.EndpointReason))
	}
	return result(checks.StatusOK, "%s (%s)", e, cmp.Or(facts.Clean(f.Runtime.EndpointSource), "given"))
}
