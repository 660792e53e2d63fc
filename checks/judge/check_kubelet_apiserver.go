package judge

import (
	"cmp"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/checks/units"
)

func kubeletAPIServer() Check {
	return Check{
		ID:    "kubelet.apiserver",
		Title: "the API server is reached, and has a fresh lease",
		Text: "Asks the API server that the kubelet's kubeconfig names whether it is ready, and for the lease of this node. 401 and 403 are answers: the way is free. A lease older than 40 s (50 s since Kubernetes 1.32) makes the node Unknown. A clock that differs by more than a " +
			"minute is a warning.",
		read: readKubeletAPIServer,
	}
}

func readKubeletAPIServer(f *facts.Facts) checks.Result {
	return readReading(f, func(n *facts.Node) facts.Reading[kubelet.Server] { return n.Server }, func(s kubelet.Server) checks.Result {
		switch {
		case !s.Reachable && f.Agent.APIQuiet:
			return result(checks.StatusWarning, "kdiag does not reach %s: %s; the kubelet's log tells of no failing call", facts.Clean(s.URL), cmp.Or(facts.Clean(s.TLSError+s.Err), "no answer"))
		case s.TLSError != "":
			return result(checks.StatusCritical, "%s: %s", facts.Clean(s.URL), facts.Clean(s.TLSError))
		case !s.Reachable:
			return result(checks.StatusCritical, "%s is not reached: %s", facts.Clean(s.URL), cmp.Or(facts.Clean(s.Err), "no answer"))
		case f.Agent.LeaseStale:
			return result(checks.StatusCritical, "the node's lease was renewed %s ago; after %s the node is Unknown", units.Duration(s.LeaseAge), units.Duration(facts.LeaseGrace))
		case s.Status >= 500:
			return result(checks.StatusWarning, "%s answers %d: it is not ready", facts.Clean(s.URL), s.Status)
		case s.SkewKnown && s.Skew.Abs() > time.Minute:
			return result(checks.StatusWarning, "the API server's clock differs by %s from this one", units.Duration(s.Skew.Abs()))
		case !s.LeaseRead:
			return result(checks.StatusOK, "%s answers in %s (HTTP %d); the lease was not read: %s", facts.Clean(s.URL), units.Duration(s.Took), s.Status, cmp.Or(facts.Clean(s.LeaseErr), "nobody said why"))
		}
		return result(checks.StatusOK, "%s answers in %s; the lease was renewed %s ago", facts.Clean(s.URL), units.Duration(s.Took), units.Duration(s.LeaseAge))
	})
}
