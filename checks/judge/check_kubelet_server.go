package judge

import (
	"cmp"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/checks/units"
)

func kubeletServer() Check {
	return Check{
		ID:    "kubelet.server",
		Title: "the kubelet's sync loop is at work",
		Text: "Asks /healthz/syncloop on the kubelet's server (10250), which fails when the loop was not entered for five minutes; systemd's watchdog, where the unit sets one, is fed by the same. It needs a credential, and a kubelet that " +
			"reaches the API server to ask whether that lets kdiag in: without either the answer is unknown.",
		read: readKubeletServer,
	}
}

// notRead is the result of what the kubelet's server did not tell, with the reason.
func notRead(f *facts.Facts, h kubelet.Health, path string) checks.Result {
	if h.Missing == "" {
		for _, line := range h.Unread {
			if strings.HasPrefix(line, path+":") {
				return result(checks.StatusUnknown, "%s", facts.Clean(line))
			}
		}
	}
	status := checks.StatusUnknown
	if !f.Agent.Runs {
		status = checks.StatusSkipped
	}
	return result(status, "%s", cmp.Or(facts.Clean(h.Missing), "no credential opens it"))
}

func readKubeletServer(f *facts.Facts) checks.Result {
	return readReading(f, func(n *facts.Node) facts.Reading[kubelet.Health] { return n.Health }, func(h kubelet.Health) checks.Result {
		switch a := h.SyncLoop; {
		case a == nil || a.Denied:
			return notRead(f, h, "/healthz/syncloop")
		case f.Agent.ServerWaits:
			return result(checks.StatusUnknown, "%s", causes.ServerWaitsLine(f))
		case a.Hung:
			return result(checks.StatusCritical, "%s did not answer in %s", facts.Clean(a.URL), units.Duration(a.Took))
		case a.Status >= 500:
			return result(checks.StatusCritical, "%s says %d: the sync loop stands still", facts.Clean(a.URL), a.Status)
		case a.Status != 200:
			return result(checks.StatusUnknown, "%s: %s", facts.Clean(a.URL), cmp.Or(facts.Clean(a.Err), "an answer that says nothing"))
		}
		return result(checks.StatusOK, "the sync loop was entered in the last five minutes")
	})
}
