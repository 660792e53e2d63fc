package judge

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
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

func readKubeletHealthz(f *facts.Facts) checks.Result {
	return readReading(f, func(n *facts.Node) facts.Reading[kubelet.Health] { return n.Health }, func(h kubelet.Health) checks.Result {
		switch p := h.Ping; {
		case p == nil:
			return result(checks.StatusSkipped, "the kubelet has no health port")
		case p.Hung:
			return result(checks.StatusCritical, "%s accepted and did not answer in %s", facts.Clean(p.URL), units.Duration(p.Took))
		case p.Status == 200:
			return result(checks.StatusOK, "%s answers; it is a ping, and sees neither PLEG nor the runtime", facts.Clean(p.URL))
		case p.Status == 0 && f.Agent.NeverCameUp != nil:
			return result(checks.StatusCritical, "%s: %s", facts.Clean(p.URL), facts.Clean(p.Err))
		case p.Status == 0:
			return result(checks.StatusWarning, "%s: %s", facts.Clean(p.URL), facts.Clean(p.Err))
		default:
			return result(checks.StatusCritical, "%s says %d", facts.Clean(p.URL), p.Status)
		}
	})
}
