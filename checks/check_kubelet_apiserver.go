package checks

import (
	"time"

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

func readKubeletAPIServer(f *Facts) Result {
	return readLook(f, func(n *Node) Look[kubelet.Server] { return n.Server }, func(s kubelet.Server) Result {
		switch {
		case !s.Reachable && f.apiQuiet():
			return result(StatusWarning, "kdiag does not reach %s: %s; the kubelet's log tells of no failing call", clean(s.URL), or(clean(s.TLSError+s.Err), "no answer"))
		case s.TLSError != "":
			return result(StatusCritical, "%s: %s", clean(s.URL), clean(s.TLSError))
		case !s.Reachable:
			return result(StatusCritical, "%s is not reached: %s", clean(s.URL), or(clean(s.Err), "no answer"))
		case f.leaseStale():
			return result(StatusCritical, "the node's lease was renewed %s ago; after %s the node is Unknown", units.Duration(s.LeaseAge), units.Duration(leaseGrace))
		case s.Status >= 500:
			return result(StatusWarning, "%s answers %d: it is not ready", clean(s.URL), s.Status)
		case s.SkewKnown && s.Skew.Abs() > time.Minute:
			return result(StatusWarning, "the API server's clock differs by %s from this one", units.Duration(s.Skew.Abs()))
		case !s.LeaseRead:
			return result(StatusOK, "%s answers in %s (HTTP %d); the lease was not read: %s", clean(s.URL), units.Duration(s.Took), s.Status, or(clean(s.LeaseErr), "nobody said why"))
		}
		return result(StatusOK, "%s answers in %s; the lease was renewed %s ago", clean(s.URL), units.Duration(s.Took), units.Duration(s.LeaseAge))
	})
}
