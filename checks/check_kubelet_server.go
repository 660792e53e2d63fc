package checks

import (
	"strings"

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
func (f *Facts) notRead(h kubelet.Health, path string) Result {
	if h.Missing == "" {
		for _, line := range h.Unread {
			if strings.HasPrefix(line, path+":") {
				return result(StatusUnknown, "%s", clean(line))
			}
		}
	}
	status := StatusUnknown
	if !f.kubeletRuns() {
		status = StatusSkipped
	}
	return result(status, "%s", or(clean(h.Missing), "no credential opens it"))
}

func readKubeletServer(f *Facts) Result {
	return readLook(f, func(n *Node) Look[kubelet.Health] { return n.Health }, func(h kubelet.Health) Result {
		switch a := h.SyncLoop; {
		case a == nil || a.Denied:
			return f.notRead(h, "/healthz/syncloop")
		case f.serverWaits():
			return result(StatusUnknown, "%s", f.serverWaitsLine())
		case a.Hung:
			return result(StatusCritical, "%s did not answer in %s", clean(a.URL), units.Duration(a.Took))
		case a.Status >= 500:
			return result(StatusCritical, "%s says %d: the sync loop stands still", clean(a.URL), a.Status)
		case a.Status != 200:
			return result(StatusUnknown, "%s: %s", clean(a.URL), or(clean(a.Err), "an answer that says nothing"))
		}
		return result(StatusOK, "the sync loop was entered in the last five minutes")
	})
}
