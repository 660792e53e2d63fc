package checks

import (
	"fmt"

	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/checks/units"
)

func kubeletMetrics() Check {
	return Check{
		ID:    "kubelet.metrics",
		Title: "the kubelet's own PLEG is recent",
		Text:  "Reads kubelet_pleg_last_seen_seconds, the time at which the last good relist began. The histogram of relists stays flat while one hangs, since it counts those that ended; this one does not. It needs a credential.",
		read:  readKubeletMetrics,
	}
}

func readKubeletMetrics(f *Facts) Result {
	return readLook(f, func(n *Node) Look[kubelet.Health] { return n.Health }, func(h kubelet.Health) Result {
		if h.Metrics == nil {
			return f.notRead(h, "/metrics")
		}
		m := h.Metrics
		history := ""
		if m.Relists > 0 {
			history = fmt.Sprintf("; %s relists so far, %s in the mean", units.Number(int(min(m.Relists, 1<<62))), units.Seconds(m.RelistSeconds/float64(m.Relists)))
		}
		what := "the last good relist began"
		if f.Kubelet != nil && f.Kubelet.EventedPLEG {
			what = "the sync loop last looked at PLEG" // pkg/kubelet/pleg/evented.go writes the time of each look (Healthy)
		}
		switch age, known := f.plegAge(); {
		case !known:
			return result(StatusUnknown, "no time of a last relist among the metrics%s", history)
		case age > f.threshold():
			return result(StatusCritical, "%s %s ago; the threshold is %s", what, units.Duration(age), units.Duration(f.threshold()))
		case age > f.threshold()/3:
			return result(StatusWarning, "%s %s ago; the threshold is %s", what, units.Duration(age), units.Duration(f.threshold()))
		default:
			return result(StatusOK, "%s %s ago%s", what, units.Duration(age), history)
		}
	})
}
