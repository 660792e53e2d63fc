package causes

import (
	"cmp"
	"fmt"
	"path"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/kubelet"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// CertificateExpired is the code of this cause.
const CertificateExpired = "CertificateExpired"

var certificateExpired = Definition{
	Code:   CertificateExpired,
	Claims: []string{"kubelet.certificates"},
	Roots: []Root{
		{Code: ClockJumped, When: validByServerClock},
	},
	Recognise: recogniseCertificateExpired,
	FromLog: fromRecords(SymptomTier, 0.2,
		"A certificate has expired, or a clock is wrong; PLEG does not talk to the API server.",
		signature.CertificateExpired),
}

// IsInvalid reports whether a certificate is not valid at a moment.
func IsInvalid(c kubelet.Certificate, at time.Time) bool {
	return c.Err == "" && (!c.NotAfter.IsZero() && at.After(c.NotAfter) || !c.NotBefore.IsZero() &&
		at.Before(c.NotBefore))
}

// invalidCertificate returns a certificate of a role that is not valid now. Of several for the same purpose one that
// is valid will do: then there is none.
func invalidCertificate(f *facts.Facts, role string) (kubelet.Certificate, bool) {
	var bad kubelet.Certificate
	found := false
	for _, c := range f.Seen.Certificates.Value {
		switch {
		case c.Role != role || c.Err != "" || c.NotAfter.IsZero():
		case IsInvalid(c, f.Now):
			bad, found = c, true
		default:
			return kubelet.Certificate{}, false
		}
	}
	return bad, found
}

// IsSelfMade reports whether a certificate is the one that the kubelet signs for itself when it is given none
// (kubelet.crt in its folder of certificates). It makes it once, for a year, and nobody can verify it before or
// after.
func IsSelfMade(f *facts.Facts, c kubelet.Certificate) bool {
	return c.Role == facts.ServingCertificate && path.Base(c.Path) == "kubelet.crt" &&
		f.Seen.Settings.Value.TLSCertFile == ""
}

// clockSkew returns by how much the API server's clock is ahead of this one.
func clockSkew(f *facts.Facts) time.Duration {
	if s := f.Seen.Server.Value; s.SkewKnown {
		return s.Skew
	}
	return 0
}

// byWrongClock reports whether a certificate is valid by the API server's clock and not by this one.
func byWrongClock(f *facts.Facts, c kubelet.Certificate) bool {
	return clockSkew(f).Abs() > time.Minute && !IsInvalid(c, f.Now.Add(clockSkew(f)))
}

func recogniseCertificateExpired(f *facts.Facts) *Finding {
	c, found := invalidCertificate(f, facts.ClientCertificate)
	severity := checks.Critical
	effect := "the API server refuses it"
	if f.Agent.LeaseFresh {
		effect = "the API server will refuse it when the connection is made anew"
	}
	if !found {
		c, found = invalidCertificate(f, facts.ServingCertificate)
		severity, effect = checks.Warning, "kubectl logs, exec and metrics fail where it is verified"
	}
	if !found || IsSelfMade(f, c) {
		return nil
	}
	var e checks.Evidence
	summary := fmt.Sprintf("the kubelet's %s certificate expired at %s: %s", c.Role, Stamp(c.NotAfter), effect)
	if f.Now.Before(c.NotBefore) {
		summary = fmt.Sprintf("the kubelet's %s certificate is not valid before %s: %s", c.Role, Stamp(c.NotBefore),
			effect)
	}
	Addf(&e.For, "%s (%s) is valid from %s to %s; it is %s", facts.Clean(c.Path),
		cmp.Or(facts.Clean(c.Subject), "without a name"), Stamp(c.NotBefore), Stamp(c.NotAfter), Stamp(f.Now))
	if byWrongClock(f, c) {
		summary += "; by the API server's clock it is valid"
		Addf(&e.For, "the API server's clock differs by %s, and by it the certificate is valid: this node's clock "+
			"is wrong", units.Duration(clockSkew(f).Abs()))
	}
	step := certificateEvidence(f, &e, c)
	cause := newFinding(severity, step, summary, e)
	cause.Subject = &checks.Subject{Kind: "Certificate", ID: facts.Clean(c.Path), Name: facts.Clean(c.Subject)}
	if other, also := invalidCertificate(f, facts.ServingCertificate); also && !IsSelfMade(f, other) &&
		c.Role == facts.ClientCertificate {
		cause.Related = []checks.Subject{{
			Kind: "Certificate", ID: facts.Clean(other.Path),
			Name: facts.Clean(other.Subject),
		}}
	}
	cause.Advise = func(string) []checks.NextStep { return stepsWhenExpired(f, c) }
	return cause
}

// certificateEvidence adds who else tells of a certificate that is not valid, and returns the step that this makes.
func certificateEvidence(f *facts.Facts, e *checks.Evidence, c kubelet.Certificate) float64 {
	n := f.Seen
	if n.Settings.OK && c.Role == facts.ClientCertificate && !n.Settings.Value.RotateClient {
		Addf(&e.For, "the kubelet does not renew it by itself: rotateCertificates is off")
	}
	if k := facts.Logged(f, signature.CertificateExpired); k != nil {
		Addf(&e.For, "its log: %s", facts.Quote(f, k.Example))
	}
	if c.Role != facts.ClientCertificate {
		return checks.Certain
	}
	switch s := n.Server.Value; {
	case !n.Server.OK:
		missing(n.Server, e, "whether the API server refuses it")
	case s.Status == 401:
		Addf(&e.For, "the API server answers 401 Unauthorized")
	case f.Agent.LeaseFresh:
		Addf(&e.Against, "the node's lease was renewed %s ago: the kubelet still has a connection, or another "+
			"certificate", units.Duration(s.LeaseAge))
		return checks.Strong
	}
	return checks.Certain
}

// Stamp writes a day and time, which a certificate needs.
func Stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

func stepsWhenExpired(f *facts.Facts, c kubelet.Certificate) []checks.NextStep {
	var s Steps
	if facts.SafePath.MatchString(c.Path) {
		s.Add(checks.TouchesNothing, "openssl x509 -noout -subject -issuer -dates -in "+c.Path+"; date -u",
			"Is now between the two dates?")
	}
	s.Add(checks.TouchesNothing, "timedatectl; chronyc tracking",
		"Is the clock right? A wrong clock makes a good certificate invalid.")
	s.Add(checks.TouchesNothing, "kubectl get csr --sort-by=.metadata.creationTimestamp | tail",
		"From a machine that reaches the API server: does a request of this node wait for approval?")
	s.Add(checks.TouchesNothing, facts.KubeletLog(f)+" | grep -iE 'certificate|x509|csr' | tail -n 20",
		"What did the kubelet say when it tried to renew it?")
	if byWrongClock(f, c) {
		s.Add(checks.TouchesNode, "chronyc makestep",
			"Sets the clock at once. Whatever measures by it (tokens, timers, databases) sees the jump.")
		return s.Done()
	}
	if c.Role == facts.ClientCertificate {
		s.Add(checks.TouchesKubelet, "systemctl restart "+f.Target.KubeletUnit,
			"Only after a new certificate or a valid bootstrap kubeconfig is in place: without one the kubelet "+
				"does not come up again.")
		return s.Done()
	}
	s.Add(checks.TouchesKubelet, "systemctl restart "+f.Target.KubeletUnit,
		"After its request was approved, or its old files were moved away. Containers go on running.")
	return s.Done()
}
