package checks

import (
	"time"

	"github.com/kdiag/kdiag/checks/kubelet"
)

func kubeletCertificates() Check {
	return Check{
		ID:    "kubelet.certificates",
		Title: "the kubelet's certificates are valid",
		Text: "Reads from when to when the kubelet's client and serving certificates hold. One that is not valid now is critical for the client and a warning for the server; one that ends within seven days was not renewed when it should " +
			"have been, and is a warning.",
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
		for _, c := range all {
			if c.Err != "" {
				return result(StatusUnknown, "%s: %s", clean(c.Path), clean(c.Err))
			}
			if first.NotAfter.IsZero() || c.NotAfter.Before(first.NotAfter) {
				first = c
			}
		}
		switch left := first.NotAfter.Sub(f.Now); {
		case first.NotAfter.IsZero():
			return result(StatusSkipped, "the kubelet has no certificates of its own")
		case left < f.nodeLimits().CertificateSoon:
			return result(StatusWarning, "the kubelet's %s certificate ends in %s, at %s, and was not renewed", clean(first.Role), days(left), stamp(first.NotAfter))
		default:
			return result(StatusOK, "%s valid, the first until %s", verb(len(all), "1 certificate is", number(len(all))+" certificates are"), stamp(first.NotAfter))
		}
	})
}

// days writes a time that is long: 3 days, 5h.
func days(d time.Duration) string {
	if d < 48*time.Hour {
		return minutes(d.Truncate(time.Minute))
	}
	return count(int(d/(24*time.Hour)), "day")
}
