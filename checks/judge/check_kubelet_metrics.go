package judge

import (
	"fmt"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
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

func readKubeletMetrics(f *facts.Facts) checks.Result {
	return readReading(f, func(n *facts.Node) facts.Reading[kubelet.Health] { return n.Health }, func(h kubelet.Health) checks.Result {
		if h.Metrics == nil {
			return notRead(f, h, "/metrics")
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
		switch age, known := f.Agent.PLEGAge, f.Agent.PLEGKnown; {
		case !known:
			return result(checks.StatusUnknown, "no time of a last relist among the metrics%s", history)
		case age > f.Calls.Threshold:
			return result(checks.StatusCritical, "%s %s ago; the threshold is %s", what, units.Duration(age), units.Duration(f.Calls.Threshold))
		case age > f.Calls.Threshold/3:
			return result(checks.StatusWarning, "%s %s ago; the threshold is %s", what, units.Duration(age), units.Duration(f.Calls.Threshold))
		default:
			return result(checks.StatusOK, "%s %s ago%s", what, units.Duration(age), history)
		}
	})
}
