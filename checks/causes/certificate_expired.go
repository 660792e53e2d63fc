package causes

import (
	"cmp"
	"path"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/journal/signature"
)

// CertificateExpired is the code of this cause.
const CertificateExpired = "CertificateExpired"

func loggedCertificateExpired(in *Incident) *Finding {
	return in.harmless("A certificate has expired, or a clock is wrong; PLEG does not talk to the API server.",
		signature.CertificateExpired)
}

// IsInvalid reports whether a certificate is not valid at a moment.
func IsInvalid(c kubelet.Certificate, at time.Time) bool {
	return c.Err == "" && (!c.NotAfter.IsZero() && at.After(c.NotAfter) || !c.NotBefore.IsZero() &&
		at.Before(c.NotBefore))
}

// invalidCertificate returns a certificate of a role that is not valid now, nil for none. Of several for the same
// purpose one that is valid will do.
func invalidCertificate(f *facts.Facts, role string) *kubelet.Certificate {
	var bad *kubelet.Certificate
	for _, c := range f.Seen.Certificates.Value {
		switch {
		case c.Role != role || c.Err != "" || c.NotAfter.IsZero() || IsSelfMade(f, c):
		case IsInvalid(c, f.Now):
			bad = &c
		default:
			return nil
		}
	}
	return bad
}

// IsSelfMade reports whether a certificate is the one that the kubelet signs for itself when it is given none
// (kubelet.crt in its folder of certificates). It makes it once, for a year, and nobody can verify it before or
// after.
func IsSelfMade(f *facts.Facts, c kubelet.Certificate) bool {
	return c.Role == facts.ServingCertificate && path.Base(c.Path) == "kubelet.crt" &&
		f.Seen.Settings.Value.TLSCertFile == ""
}

// byWrongClock reports whether a certificate is valid by the API server's clock and not by this one.
func byWrongClock(f *facts.Facts, c kubelet.Certificate) bool {
	s := f.Seen.Server.Value
	return s.SkewKnown && s.Skew.Abs() > time.Minute && !IsInvalid(c, f.Now.Add(s.Skew))
}

func recogniseCertificateExpired(f *facts.Facts) *Finding {
	client, serving := invalidCertificate(f, facts.ClientCertificate), invalidCertificate(f, facts.ServingCertificate)
	var subjects []checks.Subject
	for _, c := range []*kubelet.Certificate{client, serving} {
		if c != nil {
			subjects = append(subjects, checks.Subject{Kind: "Certificate", ID: c.Path, Name: c.Subject})
		}
	}
	c := cmp.Or(client, serving)
	if c == nil {
		return nil
	}
	effect := "the API server rejects it"
	if c == serving {
		effect = "kubectl logs, exec and metrics fail where it is verified"
	} else if f.KubeletState.LeaseFresh {
		effect = "the API server will reject it on the next connection"
	}
	var e checks.Evidence
	when := ifElse(f.Now.Before(c.NotBefore), "is valid from "+Stamp(c.NotBefore), "expired at "+Stamp(c.NotAfter))
	summary := textf("the kubelet's %s certificate %s: %s", c.Role, when, effect)
	Addf(&e.For, "%s (%s) is valid from %s to %s; it is %s", facts.Clean(c.Path), facts.Clean(c.Subject),
		Stamp(c.NotBefore), Stamp(c.NotAfter), Stamp(f.Now))
	n := f.Seen
	if byWrongClock(f, *c) {
		summary += "; by the API server's clock it is valid"
		Addf(&e.For, "the API server's clock differs by %s: this node's clock is wrong", n.Server.Value.Skew.Abs())
	}
	logEvidence(f, &e, signature.CertificateExpired)
	step := checks.Certain
	switch {
	case c == serving:
	case !n.Server.OK:
		missing(n.Server, &e, "whether the API server rejects it")
	case n.Server.Value.Status == 401:
		Addf(&e.For, "the API server answers 401 Unauthorized")
	case f.KubeletState.LeaseFresh:
		step = checks.Strong
		Addf(&e.Against, "the node's lease was renewed %s ago: an open connection still works", n.Server.Value.LeaseAge)
	}
	return newFinding(criticalIf(c == client && !f.KubeletState.LeaseFresh), step, summary, e, subjects...).
		advise(func(s *Steps, _ string) { adviseExpired(f, s, *c) })
}

// Stamp writes a day and time, which a certificate needs.
func Stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

func adviseExpired(f *facts.Facts, s *Steps, c kubelet.Certificate) {
	s.lookIf(facts.SafePath.MatchString(c.Path), "openssl x509 -noout -subject -issuer -dates -in "+c.Path+"; date -u",
		"Compare its dates with now.")
	s.Look("timedatectl; chronyc tracking", "Check the clock: a wrong one makes a valid certificate invalid.")
	s.Look("kubectl get csr --sort-by=.metadata.creationTimestamp | tail", "Find a request that waits for approval.")
	s.Look(KubeletLog(f)+" | grep -iE 'certificate|x509|csr' | tail -n 20", "Read why it was not renewed.")
	if byWrongClock(f, c) {
		s.Add(checks.TouchesNode, "chronyc makestep", "Sets the clock at once; timers and databases see the jump.")
		return
	}
	s.restartKubelet(f, "Only with a new certificate or a valid bootstrap kubeconfig: else it cannot start.")
}
