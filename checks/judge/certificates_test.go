package judge

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/kubelet"
)

// TestCertificatesEnd reads the check of certificates that are valid still.
func TestCertificatesEnd(t *testing.T) {
	const day = 24 * time.Hour
	own := func(n *facts.Node) { n.Certificates.Value[1].Path = "/var/lib/kubelet/pki/kubelet.crt" }
	inKubeconfig := func(until time.Duration) func(*facts.Node) {
		return func(n *facts.Node) {
			old := kubelet.Certificate{
				Role: "client", Path: "/etc/kubernetes/kubelet.conf",
				Subject: "system:node:node-7", NotBefore: now().Add(-300 * day), NotAfter: now().Add(until),
			}
			n.Certificates.Value = append([]kubelet.Certificate{old}, n.Certificates.Value...)
		}
	}
	for _, tt := range []struct {
		name    string
		changes []func(*facts.Node)
		want    checks.Result
	}{
		{
			"a week is left of a year",
			[]func(*facts.Node){expires(0, -358*day, 7*day)},
			checks.Result{
				Status:  checks.StatusOK,
				Summary: "2 certificates, valid until 2026-03-21 03:09:26 UTC at least",
			},
		},
		{
			"less is left",
			[]func(*facts.Node){expires(0, -359*day, 6*day)},
			checks.Result{
				Status: checks.StatusWarning,
				Summary: "the kubelet's client certificate ends at 2026-03-20 03:09:26 UTC, and was " +
					"not renewed",
			},
		},
		{
			"one for a day, new",
			[]func(*facts.Node){expires(0, -2*time.Hour, 22*time.Hour)},
			checks.Result{
				Status:  checks.StatusOK,
				Summary: "2 certificates, valid until 2026-03-15 01:09:26 UTC at least",
			},
		},
		{
			"one for a day, old",
			[]func(*facts.Node){expires(0, -22*time.Hour, 2*time.Hour)},
			checks.Result{
				Status:  checks.StatusWarning,
				Summary: "the kubelet's client certificate ends at 2026-03-14 05:09:26 UTC, and was not renewed",
			},
		},
		{
			"the other of two",
			[]func(*facts.Node){expires(0, -2*time.Hour, 22*time.Hour), expires(1, -360*day, 5*day)},
			checks.Result{
				Status: checks.StatusWarning,
				Summary: "the kubelet's serving certificate ends at 2026-03-19 03:09:26 UTC, and was not " +
					"renewed",
			},
		},
		{
			"the kubeconfig's is over, and the kubelet goes by the newest",
			[]func(*facts.Node){inKubeconfig(-day)},
			checks.Result{
				Status: checks.StatusWarning,
				Summary: "/etc/kubernetes/kubelet.conf holds a certificate until 2026-03-13 03:09:26 UTC only: the " +
					"kubelet goes by a newer one, but may not come up when it is started anew",
			},
		},
		{
			"the kubeconfig's is over soon",
			[]func(*facts.Node){inKubeconfig(6 * day)},
			checks.Result{
				Status: checks.StatusWarning,
				Summary: "/etc/kubernetes/kubelet.conf holds a certificate until 2026-03-20 03:09:26 UTC only: the " +
					"kubelet goes by a newer one, but may not come up when it is started anew",
			},
		},
		{
			"the kubeconfig's is good",
			[]func(*facts.Node){inKubeconfig(90 * day)},
			checks.Result{
				Status:  checks.StatusOK,
				Summary: "3 certificates, valid until 2026-06-12 03:09:26 UTC at least",
			},
		},
		{
			"a serving certificate that was given to it, over, and called as its own",
			[]func(*facts.Node){own, expires(1, -400*day, -day), func(n *facts.Node) {
				n.Settings.Value.TLSCertFile = "/var/lib/kubelet/pki/kubelet.crt"
			}},
			checks.Result{Status: checks.StatusWarning, Summary: "the kubelet's serving certificate expired at " +
				"2026-03-13 03:09:26 UTC: kubectl logs, exec and metrics fail where it is verified"},
		},
		{
			"its own serving certificate is over",
			[]func(*facts.Node){own, expires(1, -400*day, -day)},
			checks.Result{
				Status:  checks.StatusOK,
				Summary: "1 certificate, valid until 2026-12-14 03:09:26 UTC at least",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := lineOf(node(surfaces(tt.changes...)), "kubelet.certificates")
			if diff := cmp.Diff(tt.want, checks.Result{Status: got.Status, Summary: got.Summary}); diff != "" {
				t.Error(diff)
			}
		})
	}
}
