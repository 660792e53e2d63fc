package checks

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks/kubelet"
)

// TestKubeletChecks wants the checks of the kubelet and its runtime's unit to say why they could not look, and what does not stay up.
func TestKubeletChecks(t *testing.T) {
	unasked := surfaces(health(func(h *kubelet.Health) {
		*h = kubelet.Health{Ping: h.Ping, Missing: "no kubelet runs here"}
	}))
	metricsHang := surfaces(health(func(h *kubelet.Health) {
		h.Metrics, h.Unread = nil, []string{"/pods: no answer in time", "/metrics: no answer in time"}
	}))
	restarted := func(since time.Duration) tweak {
		return surfaces(func(n *Node) {
			n.Systemd.Value.Runtime.Restarts, n.Systemd.Value.Runtime.Since = loopRestarts, now().Add(-since)
		})
	}
	for _, tt := range []struct {
		name   string
		tweaks []tweak
		id     string
		want   Status
		words  string
	}{
		{"the server is not asked", []tweak{unasked}, "kubelet.server", StatusUnknown, "no kubelet runs here"},
		{"there is no kubelet to ask", []tweak{unasked, func(f *Facts) { f.Kubelet, f.Processes = nil, f.Processes[:1] }}, "kubelet.server", StatusSkipped, "no kubelet runs here"},
		{"the metrics hang", []tweak{metricsHang}, "kubelet.metrics", StatusUnknown, "/metrics: no answer in time"},
		{"a runtime that was restarted", []tweak{restarted(loopFresh - time.Second)}, "runtime.unit", StatusWarning, "does not stay up"},
		{"a runtime that has stayed up since", []tweak{restarted(loopFresh)}, "runtime.unit", StatusOK, "restarted 3 times"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all := Results(node(tt.tweaks...))
			i := slices.IndexFunc(all, func(r Result) bool { return r.ID == tt.id })
			if i < 0 || all[i].Status != tt.want || !strings.Contains(all[i].Summary, tt.words) {
				t.Errorf("%+v, want %s is %s: %s", all, tt.id, tt.want, tt.words)
			}
		})
	}
}
