package checks

import (
	"slices"
	"time"

	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/checks/units"
)

func kubeletCertificates() Check {
	return Check{
		ID:    "kubelet.certificates",
		Title: "the kubelet's certificates are valid",
		Text: "Reads from when to when the kubelet's client and serving certificates hold. One that is not valid now is critical for the client and a warning for the server; one that ends within seven days, or is in the last tenth of a shorter life, was not renewed when it should " +
			"have been, and is a warning. The one that the kubelet signed itself (kubelet.crt) verifies for nobody and is passed over. A kubelet that renews its certificate goes by the newest; an old one " +
			"that its kubeconfig still holds is a warning, since a start with --bootstrap-kubeconfig looks at that one: its client-certificate and client-key should name kubelet-client-current.pem.",
		read: readKubeletCertificates,
	}
}

func readKubeletCertificates(f *Facts) Result {
	return readLook(f, func(n *Node) Look[[]kubelet.Certificate] { return n.Certificates }, func(all []kubelet.Certificate) Result {
		switch c := recogniseCertificateExpired(f); {
		case c != nil && c.Severity == Critical:
			return result(StatusCritical, "%s", c.Summary)
		case c != nil:
			return result(StatusWarning, "%s", c.Summary)
		}
		var first kubelet.Certificate
		valid := 0
		old, all := f.replaced(all)
		for _, c := range all {
			if c.Err != "" {
				return result(StatusUnknown, "%s: %s", clean(c.Path), clean(c.Err))
			}
			if f.isSelfMade(c) {
				continue
			}
			valid++
			if first.NotAfter.IsZero() || c.NotAfter.Before(first.NotAfter) {
				first = c
			}
		}
		due := slices.IndexFunc(all, func(c kubelet.Certificate) bool { return !f.isSelfMade(c) && f.endsSoon(c) })
		switch {
		case valid == 0 && len(all) > 0:
			return result(StatusOK, "the kubelet has only the serving certificate that it signed itself")
		case first.NotAfter.IsZero():
			return result(StatusSkipped, "the kubelet has no certificates of its own")
		case due >= 0:
			c := all[due]
			return result(StatusWarning, "the kubelet's %s certificate ends in %s, at %s, and was not renewed", clean(c.Role), days(c.NotAfter.Sub(f.Now)), stamp(c.NotAfter))
		case old != nil:
			return result(StatusWarning, "%s holds a certificate until %s only: the kubelet goes by a newer one, but may not come up when it is started anew", clean(old.Path), stamp(old.NotAfter))
		default:
			return result(StatusOK, "%s valid, the first until %s", verb(valid, "1 certificate is", units.Number(valid)+" certificates are"), stamp(first.NotAfter))
		}
	})
}

// replaced takes from the certificates a client's that is over, or nearly so, while another is good.
func (f *Facts) replaced(all []kubelet.Certificate) (old *kubelet.Certificate, others []kubelet.Certificate) {
	outdated := func(c kubelet.Certificate) bool {
		return c.Role == clientCertificate && c.Err == "" && (isInvalid(c, f.Now) || f.endsSoon(c))
	}
	good := func(c kubelet.Certificate) bool { return c.Role == clientCertificate && c.Err == "" && !outdated(c) }
	i := slices.IndexFunc(all, outdated)
	if i < 0 || !slices.ContainsFunc(all, good) {
		return nil, all
	}
	return &all[i], slices.Delete(slices.Clone(all), i, i+1)
}

// endsSoon reports whether a certificate should have been renewed by now: the kubelet does so by nine tenths of its life.
func (f *Facts) endsSoon(c kubelet.Certificate) bool {
	return c.NotAfter.Sub(f.Now) < min(f.nodeLimits().CertificateSoon, c.NotAfter.Sub(c.NotBefore)/10)
}

// days writes a time that is long: 3 days, 5h.
func days(d time.Duration) string {
	if d < 48*time.Hour {
		return units.Duration(d.Truncate(time.Minute))
	}
	return units.Count(int(d/(24*time.Hour)), "day")
}
