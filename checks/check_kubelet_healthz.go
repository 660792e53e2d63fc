package checks

import (
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/checks/units"
)

func kubeletHealthz() Check {
	return Check{
		ID:    "kubelet.healthz",
		Title: "the kubelet's process answers its ping",
		Text:  "Asks the kubelet's health port (10248). It is a ping, which answers as long as the process runs: it sees neither PLEG nor the sync loop nor the runtime, and stays green through an outage of them. kubelet.server looks at those.",
		read:  readKubeletHealthz,
	}
}

func readKubeletHealthz(f *Facts) Result {
	return readLook(f, func(n *Node) Look[kubelet.Health] { return n.Health }, func(h kubelet.Health) Result {
		switch p := h.Ping; {
		case p == nil:
			return result(StatusSkipped, "the kubelet has no health port")
		case p.Hung:
			return result(StatusCritical, "%s accepted and did not answer in %s", clean(p.URL), units.Duration(p.Took))
		case p.Status == 200:
			return result(StatusOK, "%s answers; it is a ping, and sees neither PLEG nor the runtime", clean(p.URL))
		case p.Status == 0 && f.neverCameUp() != nil:
			return result(StatusCritical, "%s: %s", clean(p.URL), clean(p.Err))
		case p.Status == 0:
			return result(StatusWarning, "%s: %s", clean(p.URL), clean(p.Err))
		default:
			return result(StatusCritical, "%s says %d", clean(p.URL), p.Status)
		}
	})
}
