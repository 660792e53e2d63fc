package judge

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/kubelet"
)

// TestKubeletChecks wants the checks of the kubelet and its runtime's unit to say why they could not look, and what
// does not stay up.
func TestKubeletChecks(t *testing.T) {
	unasked := surfaces(health(func(h *kubelet.Health) {
		*h = kubelet.Health{Ping: h.Ping, Missing: "no kubelet runs here"}
	}))
	metricsHang := surfaces(health(func(h *kubelet.Health) {
		h.Metrics, h.Unread = nil, []string{"/pods: no answer in time", "/metrics: no answer in time"}
	}))
	loopHangs := health(func(h *kubelet.Health) {
		h.SyncLoop = &kubelet.Answer{
			URL: "https://127.0.0.1:10250/healthz/syncloop", Hung: true,
			Took: 4 * time.Second, Err: "no answer in time",
		}
		h.Metrics, h.Credential = nil, ""
	})
	away := surfaces(func(n *facts.Node) {
		n.Server.Value = kubelet.Server{URL: "https://api:6443", Err: "no answer in time"}
	})
	restarted := func(since time.Duration) tweak {
		return surfaces(func(n *facts.Node) {
			n.Systemd.Value.Runtime.Restarts, n.Systemd.Value.Runtime.Since = facts.LoopRestarts, now().Add(-since)
		})
	}
	broken := surfaces(func(n *facts.Node) {
		n.CNI.Value = kubelet.CNI{
			ConfDir: "/etc/cni/net.d", File: "05-broken.conf",
			Others: []string{"10-calico.conflist"}, Problem: "05-broken.conf: names no plugin",
		}
	})
	crio := func(f *facts.Input) { f.Runtime.Endpoint = "unix:///run/crio/crio.sock" }
	for _, tt := range []struct {
		name   string
		tweaks []tweak
		id     string
		want   checks.Status
		words  string
	}{
		{"the server is not asked", []tweak{unasked}, "kubelet.server", checks.StatusUnknown, "no kubelet runs here"},
		{"there is no kubelet to ask", []tweak{unasked, func(f *facts.Input) {
			f.Kubelet, f.Processes = nil,
				f.Processes[:1]
		}}, "kubelet.server", checks.StatusSkipped, "no kubelet runs here"},
		{
			"the kubelet cannot ask who we are",
			[]tweak{surfaces(cannotAsk)},
			"kubelet.server", checks.StatusUnknown,
			"could not ask the API server whether the node certificate lets us in",
		},
		{
			"the server hangs, and the ping answers",
			[]tweak{surfaces(loopHangs)},
			"kubelet.server",
			checks.StatusUnknown, "did not answer in 4s, and the ping did: the API server may be slow",
		},
		{"both hang", []tweak{surfaces(loopHangs,
			health(func(h *kubelet.Health) { *h.Ping = kubelet.Answer{Hung: true} }))}, "kubelet.server", checks.StatusCritical, "does not answer the ping"},
		{
			"nobody tells whether the API server is away",
			[]tweak{away},
			"kubelet.apiserver", checks.StatusCritical,
			"cannot be reached",
		},
		{
			"the API server is away for kdiag alone",
			[]tweak{away, quiet},
			"kubelet.apiserver", checks.StatusWarning,
			"cannot be reached",
		},
		{
			"the metrics hang",
			[]tweak{metricsHang},
			"kubelet.metrics", checks.StatusUnknown,
			"/metrics: no answer in time",
		},
		{"K3s, as it comes", []tweak{surfaces(func(n *facts.Node) {
			n.Settings.Value.Problems, n.Settings.Value.Own = []string{"K3s hands settings to its kubelet inside " +
				"its process"}, "evictionHard names two"
		})}, "kubelet.settings", checks.StatusUnknown, "inside its process; evictionHard names two"},
		{"RKE2, as it comes", []tweak{surfaces(func(n *facts.Node) { n.Settings.Value.Own = "evictionHard names two" })}, "kubelet.settings", checks.StatusOK, "nothing in them that harms; evictionHard names two"},
		{"a plugin is not there", []tweak{surfaces(func(n *facts.Node) { n.CNI.Value.Missing = []string{"portmap"} })}, "kubelet.cni", checks.StatusWarning, "needs portmap"},
		{
			"where plugins are is not known",
			[]tweak{surfaces(func(n *facts.Node) { n.CNI.Value.BinDirs = nil })},
			"kubelet.cni", checks.StatusUnknown, "none of the usual folders of plugins is there",
		},
		{"a broken file comes first", []tweak{broken}, "kubelet.cni", checks.StatusWarning, "names no plugin"},
		{
			"a broken file comes first, which CRI-O passes over",
			[]tweak{broken, crio},
			"kubelet.cni",
			checks.StatusSkipped, "CRI-O passes over 05-broken.conf",
		},
		{
			"a runtime that was restarted",
			[]tweak{restarted(facts.LoopFresh - time.Second)},
			"runtime.unit",
			checks.StatusWarning, "does not stay up",
		},
		{
			"a runtime that has stayed up since",
			[]tweak{restarted(facts.LoopFresh)},
			"runtime.unit", checks.StatusOK,
			"restarted 3 times",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all := Results(node(tt.tweaks...))
			i := slices.IndexFunc(all, func(r checks.Result) bool { return r.ID == tt.id })
			if i < 0 || all[i].Status != tt.want || !strings.Contains(all[i].Summary, tt.words) {
				t.Errorf("%+v, want %s is %s: %s", all, tt.id, tt.want, tt.words)
			}
		})
	}
}
