package checks

import (
	"fmt"
	"path"
	"time"

	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

const (
	clientCertificate  = "client"
	servingCertificate = "serving"
)

func certificateExpired() Definition {
	return Definition{
		Code:  codeCertificateExpired,
		Title: "a certificate of the kubelet is not valid now",
		Means: "The kubelet shows its client certificate to the API server, and its serving certificate to whoever calls port 10250. When the client certificate has expired, or is not yet valid, the API server refuses it: no lease, no " +
			"status, so the node is Unknown after 40 s (50 s since Kubernetes 1.32), no new pods, no Secrets. Connections that were made before go on for a while, so that it may begin hours after the end. A kubelet that is restarted then asks for a " +
			"bootstrap kubeconfig and ends when there is none.\n\n" +
			"When the serving certificate has expired, those who verify it are refused: kubectl logs and exec where the API server has --kubelet-certificate-authority, the metrics server unless it has --kubelet-insecure-tls. The node stays Ready. " +
			"A certificate that the kubelet signed itself (kubelet.crt) verifies for nobody, so that its end is no cause. The kubelet renews both by itself when it may (rotateCertificates, serverTLSBootstrap): requests for serving certificates " +
			"must be approved by somebody, and a node that was switched off for long wakes up too late.",
		Confirm: []string{
			"openssl x509 -noout -subject -dates -in /var/lib/kubelet/pki/kubelet-client-current.pem; date: is now between the two?",
			"kubectl get csr, from elsewhere: does a request of this node wait for approval?",
			"timedatectl: is the clock right? A wrong clock makes a good certificate invalid.",
		},
		Fix: []string{
			"A wrong clock: set it right (chronyc makestep); nothing else is needed.",
			"A request that waits: kubectl certificate approve NAME, after looking at who asks.",
			"Client, expired, of a worker: give it a new kubelet.conf, which kubeadm kubeconfig user --org system:nodes --client-name system:node:NAME makes on a control plane node, or a bootstrap kubeconfig with a fresh token. To join anew takes kubeadm reset before kubeadm join, whose preflight checks refuse otherwise, and that ends its pods.",
			"Client, expired, of a control plane node: kubeadm init phase kubeconfig kubelet; kubeadm certs renew leaves kubelet.conf as it is. Then restart the kubelet.",
			"Serving, expired: approve its request; a file of yours (tlsCertFile) is replaced by you. Restart the kubelet for a file.",
		},
		Mistaken: "APIServerUnreachable with another cause: refused, timeouts and names that do not resolve have nothing to do with certificates. The certificate of the API server may have expired instead; all nodes tell the same then.",
		Sources: []string{
			"kubelet: pkg/kubelet/certificate (rotation, kubelet-client-current.pem), pkg/kubelet/certificate/bootstrap (no bootstrap kubeconfig)",
			"crypto/x509 (certificate has expired or is not yet valid), kubernetes.io/docs: kubelet TLS bootstrapping",
		},
		RootOf:    []string{codeAPIServerUnreachable, codeKubeletCrashLooping, codeKubeletDown},
		recognise: recogniseCertificateExpired,
	}
}

// isInvalid reports whether a certificate is not valid at a moment.
func isInvalid(c kubelet.Certificate, at time.Time) bool {
	return c.Err == "" && (!c.NotAfter.IsZero() && at.After(c.NotAfter) || !c.NotBefore.IsZero() && at.Before(c.NotBefore))
}

// invalidCertificate returns a certificate of a role that is not valid now. Of several for the same purpose one that is valid will
// do: then there is none.
func (f *Facts) invalidCertificate(role string) (kubelet.Certificate, bool) {
	var bad kubelet.Certificate
	found := false
	for _, c := range f.seen().Certificates.Value {
		switch {
		case c.Role != role || c.Err != "" || c.NotAfter.IsZero():
		case isInvalid(c, f.Now):
			bad, found = c, true
		default:
			return kubelet.Certificate{}, false
		}
	}
	return bad, found
}

// isSelfMade reports whether a certificate is the one that the kubelet signs for itself when it is given none (kubelet.crt in its folder
// of certificates). It makes it once, for a year, and nobody can verify it before or after.
func (f *Facts) isSelfMade(c kubelet.Certificate) bool {
	return c.Role == servingCertificate && path.Base(c.Path) == "kubelet.crt" && f.seen().Settings.Value.TLSCertFile == ""
}

// leaseFresh reports whether the kubelet has renewed the node's lease a moment ago.
func (f *Facts) leaseFresh() bool {
	s := f.seen().Server
	return s.OK && s.Value.LeaseRead && s.Value.LeaseAge >= 0 && s.Value.LeaseAge < leaseGrace
}

// clockSkew returns by how much the API server's clock is ahead of this one.
func (f *Facts) clockSkew() time.Duration {
	if s := f.seen().Server.Value; s.SkewKnown {
		return s.Skew
	}
	return 0
}

// byWrongClock reports whether a certificate is valid by the API server's clock and not by this one.
func (f *Facts) byWrongClock(c kubelet.Certificate) bool {
	return f.clockSkew().Abs() > time.Minute && !isInvalid(c, f.Now.Add(f.clockSkew()))
}

func recogniseCertificateExpired(f *Facts) *Cause {
	c, found := f.invalidCertificate(clientCertificate)
	severity := Critical
	effect := "the API server refuses it"
	if f.leaseFresh() {
		effect = "the API server will refuse it when the connection is made anew"
	}
	if !found {
		c, found = f.invalidCertificate(servingCertificate)
		severity, effect = Warning, "kubectl logs, exec and metrics fail where it is verified"
	}
	if !found || f.isSelfMade(c) {
		return nil
	}
	var e Evidence
	summary := fmt.Sprintf("the kubelet's %s certificate expired at %s: %s", c.Role, stamp(c.NotAfter), effect)
	if f.Now.Before(c.NotBefore) {
		summary = fmt.Sprintf("the kubelet's %s certificate is not valid before %s: %s", c.Role, stamp(c.NotBefore), effect)
	}
	addf(&e.For, "%s (%s) is valid from %s to %s; it is %s", clean(c.Path), or(clean(c.Subject), "without a name"), stamp(c.NotBefore), stamp(c.NotAfter), stamp(f.Now))
	if f.byWrongClock(c) {
		summary += "; by the API server's clock it is valid"
		addf(&e.For, "the API server's clock differs by %s, and by it the certificate is valid: this node's clock is wrong", units.Duration(f.clockSkew().Abs()))
	}
	step := f.certificateEvidence(&e, c)
	cause := newCause(codeCertificateExpired, severity, step, summary, e)
	cause.Subject = &Subject{Kind: "Certificate", ID: clean(c.Path), Name: clean(c.Subject)}
	if other, also := f.invalidCertificate(servingCertificate); also && !f.isSelfMade(other) && c.Role == clientCertificate {
		cause.Related = []Subject{{Kind: "Certificate", ID: clean(other.Path), Name: clean(other.Subject)}}
	}
	cause.NextSteps = f.stepsWhenExpired(c)
	return cause
}

// certificateEvidence adds who else tells of a certificate that is not valid, and returns the step that this makes.
func (f *Facts) certificateEvidence(e *Evidence, c kubelet.Certificate) float64 {
	n := f.seen()
	if n.Settings.OK && c.Role == clientCertificate && !n.Settings.Value.RotateClient {
		addf(&e.For, "the kubelet does not renew it by itself: rotateCertificates is off")
	}
	if k := f.logged(signature.CertificateExpired); k != nil {
		addf(&e.For, "its log: %s", f.quote(k.Example))
	}
	if c.Role != clientCertificate {
		return Certain
	}
	switch s := n.Server.Value; {
	case !n.Server.OK:
		n.Server.missing(e, "whether the API server refuses it")
	case s.Status == 401:
		addf(&e.For, "the API server answers 401 Unauthorized")
	case f.leaseFresh():
		addf(&e.Against, "the node's lease was renewed %s ago: the kubelet still has a connection, or another certificate", units.Duration(s.LeaseAge))
		return Strong
	}
	return Certain
}

// stamp writes a day and time, which a certificate needs.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

func (f *Facts) stepsWhenExpired(c kubelet.Certificate) []NextStep {
	var s steps
	if safePath.MatchString(c.Path) {
		s.add(TouchesNothing, "openssl x509 -noout -subject -issuer -dates -in "+c.Path+"; date -u", "Is now between the two dates?")
	}
	s.add(TouchesNothing, "timedatectl; chronyc tracking", "Is the clock right? A wrong clock makes a good certificate invalid.")
	s.add(TouchesNothing, "kubectl get csr --sort-by=.metadata.creationTimestamp | tail", "From a machine that reaches the API server: does a request of this node wait for approval?")
	s.add(TouchesNothing, f.kubeletLog()+" | grep -iE 'certificate|x509|csr' | tail -n 20", "What did the kubelet say when it tried to renew it?")
	if f.byWrongClock(c) {
		s.add(TouchesNode, "chronyc makestep", "Sets the clock at once. Whatever measures by it (tokens, timers, databases) sees the jump.")
		return s.done()
	}
	if c.Role == clientCertificate {
		s.add(TouchesKubelet, "systemctl restart "+f.kubeletUnit(),
			"Only after a new certificate or a valid bootstrap kubeconfig is in place: without one the kubelet does not come up again.")
		return s.done()
	}
	s.add(TouchesKubelet, "systemctl restart "+f.kubeletUnit(), "After its request was approved, or its old files were moved away. Containers go on running.")
	return s.done()
}

// certificateExpiredExplains reports whether a client certificate that is not valid is why something else is so: the API server is there and
// refuses, or the kubelet's last words are about credentials.
func certificateExpiredExplains(f *Facts, consequence string) bool {
	if _, bad := f.invalidCertificate(clientCertificate); !bad {
		return false
	}
	switch consequence {
	case codeAPIServerUnreachable:
		s := f.seen().Server
		return !s.OK || s.Value.Reachable
	case codeKubeletCrashLooping, codeKubeletDown:
		c := f.logged(signature.KubeletFatal)
		return c != nil && containsAny(c.Example, []string{"bootstrap", "certificate", "x509"})
	}
	return false
}
