package checks

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// leaseGrace is how long the control plane waits for a sign of the kubelet before it calls the node Unknown: 40 s up to
// Kubernetes 1.31 and 50 s since (node-monitor-grace-period). Shorter trouble is a blip that nobody else sees.
const leaseGrace = 40 * time.Second

// leastTries is how many failures make an outage: lease and status are each tried every ten seconds.
const leastTries = 3

// serverInRecord finds the API server in a record of its client.
var serverInRecord = regexp.MustCompile(`https://([A-Za-z0-9.-]{1,253}|\[[0-9a-fA-F:]{2,39}\]):(\d{1,5})\b`)

func apiServerUnreachable() Definition {
	return Definition{
		Code:  codeAPIServerUnreachable,
		Title: "the kubelet cannot post its status",
		Means: "The kubelet renews its lease every ten seconds and posts its status when it changes. Neither reaches the API server, or both are refused: the network or a load balancer between " +
			"them is broken, the name does not resolve, the API server is down, or it does not accept the kubelet's certificate any more.\n\n" +
			"After 40 s (50 s since Kubernetes 1.32) without a lease the control plane sets all conditions of the node to Unknown, with reason NodeStatusUnknown and \"Kubelet stopped posting node " +
			"status\", and five minutes later begins to evict its pods. On the node everything may be well: pods run, PLEG is healthy, and the kubelet goes on with the pods that it knows.",
		Confirm: []string{
			"kubectl get node, from elsewhere: Ready is Unknown, not False.",
			"kubectl get lease -n kube-node-lease NODE -o yaml: renewTime stands still.",
			"journalctl -u kubelet --since -15min | grep -E 'node status|lease': refused, timeout, no such host, x509 or Unauthorized?",
			"curl -sk https://SERVER:PORT/healthz on the node; ok, 401 or 403 means that the way is free.",
		},
		Fix: []string{
			"Refused or timeout: look at the load balancer, routes, firewall and the API server itself. All nodes, or only this one?",
			"No such host: repair name resolution on the node.",
			"x509 expired or Unauthorized: renew the kubelet's certificate: approve its request; once it has expired, give the node a new kubelet.conf, which keeps its pods, and restart the kubelet (see CertificateExpired). " +
				"To join anew ends its pods.",
			"The way is free and the kubelet still times out: it holds a dead connection; restart the kubelet.",
		},
		Mistaken: "PLEG troubles by themselves give Ready=False, not Unknown: the lease does not depend on the runtime. KubeletCrashLooping gives Unknown as well; there the kubelet is not up long enough.",
		Sources: []string{
			"kubelet: pkg/kubelet/kubelet_node_status.go (tries, texts), k8s.io/component-helpers/apimachinery/lease (10 s, 5 tries)",
			"kube-controller-manager: node-monitor-grace-period (40 s; 50 s since kubernetes/kubernetes#126287)",
			"kubernetes/kubernetes#87615 (kubelet keeps a dead HTTP/2 connection)",
		},
		recognise: recogniseAPIServerUnreachable,
	}
}

// apiOutage returns the time for which the kubelet has not reached the API server, if it does not now and a blip cannot
// explain it. Where the lease is fresh, it is not the API server that fails but what it does not allow, such as to list a Secret.
func (f *Facts) apiOutage() (spell, bool) {
	s, now := f.ongoing(apiFresh, signature.APIServerFailed, signature.Unauthorized)
	if !now || f.leaseFresh() || s.To.Sub(s.From) < leaseGrace || s.Records < leastTries {
		return spell{}, false
	}
	if ready := f.lastOf(signature.NodeReady); ready != nil && ready.After(s.To) {
		return spell{}, false // a status that says Ready was posted after the last failure
	}
	return s, true
}

func recogniseAPIServerUnreachable(f *Facts) *Cause {
	if f.simulated() {
		return nil
	}
	s, ok := f.apiOutage()
	if !ok {
		return f.apiServerSeen()
	}
	var e Evidence
	example := f.firstExample(signature.APIServerFailed, signature.Unauthorized)
	why := ""
	for _, code := range []string{signature.Unauthorized, signature.APIServerFailed} {
		if c := f.logged(code); c != nil {
			why = apiWhy(c.Example)
		}
	}
	addf(&e.For, "%s of the kubelet towards the API server %s, the last at %s", units.Count(int(s.Records), "failing call"), f.since(s.From), f.clock(s.To))
	if example != "" {
		addf(&e.For, "in its words: %s", example)
	}
	step := Strong
	if containsAny(example, []string{"node status", "lease"}) {
		step = Certain
		addf(&e.For, "lease or node status are among them: after %s the control plane calls the node Unknown (NodeStatusUnknown)", units.Duration(leaseGrace))
	} else {
		addf(&e.Missing, "whether lease and node status are among the calls that fail: the first record is of another")
	}
	if c := f.logged(signature.CertificateExpired); c != nil {
		why = "a certificate has expired"
		addf(&e.For, "certificates: %s", f.quote(c.Example))
	} else if c := f.logged(signature.Unauthorized); c != nil && f.fresh(c.Last, apiFresh) {
		why = "it does not accept the kubelet's credentials"
		addf(&e.For, "the API server answers Unauthorized, last at %s%s: it is reached, and refuses", f.clock(timeOr(c.Last, s.To)), often(c.Count))
	}
	if f.connected() && f.bothLists() {
		addf(&e.For, "the runtime answers: this is not PLEG")
	}
	why = or(why, f.serverEvidence(&e))
	c := newCause(codeAPIServerUnreachable, Critical, step, fmt.Sprintf("the kubelet has not reached the API server %s: %s", f.since(s.From), or(why, "its calls fail")), e)
	c.Subject = f.kubeletSubject()
	c.NextSteps = f.stepsWhenUnreachable(f.apiServer())
	return c
}

// leaseStale reports whether the node's lease is older than the control plane waits for it.
func (f *Facts) leaseStale() bool {
	s := f.seen().Server
	return s.OK && s.Value.LeaseRead && s.Value.LeaseAge > leaseGrace
}

// serverEvidence adds what kdiag itself saw of the API server, and returns in a few words what is wrong with the way to it.
func (f *Facts) serverEvidence(e *Evidence) string {
	look := f.seen().Server
	s := look.Value
	if !look.OK {
		line := "the API server itself was not asked"
		if look.Missing != "" {
			line += ": " + clean(look.Missing)
		}
		e.Missing = append(e.Missing, line)
		return ""
	}
	if s.LeaseRead {
		addf(&e.For, "the node's lease was renewed %s ago; the kubelet renews it every 10 s", units.Duration(s.LeaseAge))
	}
	if d := s.Skew.Abs(); s.SkewKnown && d > time.Minute {
		addf(&e.For, "the API server's clock differs by %s: certificates and tokens may be invalid for one of the two", units.Duration(d))
	}
	switch {
	case s.TLSError != "":
		addf(&e.For, "%s: %s", clean(s.URL), clean(s.TLSError))
		return "its certificate does not hold"
	case !s.Reachable:
		addf(&e.For, "kdiag does not reach %s: %s", clean(s.URL), clean(s.Err))
		return or(apiWhy(s.Err), "kdiag does not reach it")
	case s.Status >= 500:
		addf(&e.For, "kdiag reaches %s, which answers %d: it is not ready", clean(s.URL), s.Status)
		return "it is not ready"
	}
	addf(&e.For, "kdiag reaches %s in %s (HTTP %d): the way is free", clean(s.URL), units.Duration(s.Took), s.Status)
	return "the way is free, and the kubelet does not use it"
}

// apiServerSeen is the cause as kdiag sees it itself, where the log tells of no outage: the API server cannot be reached, or is reached
// and has no fresh lease of this node.
func (f *Facts) apiServerSeen() *Cause {
	look := f.seen().Server
	s := look.Value
	away := look.OK && !s.Reachable && (s.Err != "" || s.TLSError != "")
	if !away && !f.leaseStale() {
		return nil
	}
	var e Evidence
	severity, step := Critical, Strong
	why := f.serverEvidence(&e)
	summary := "the API server of this node cannot be reached: " + why
	if !away {
		step = Certain
		summary = fmt.Sprintf("the kubelet has not renewed the node's lease for %s: %s", units.Duration(s.LeaseAge), why)
	} else if f.apiQuiet() {
		severity, step = Warning, Fair
		addf(&e.Against, "the kubelet's log tells of no failing call towards the API server, and it logs each lease and status that fails: it may go through a proxy that only its own environment names (HTTPS_PROXY)")
	}
	f.missingJournal(&e)
	c := newCause(codeAPIServerUnreachable, severity, step, summary, e)
	c.Subject = f.kubeletSubject()
	c.NextSteps = f.stepsWhenUnreachable(f.apiServer())
	return c
}

// apiQuiet reports whether the kubelet's log would tell of an API server that the kubelet does not reach, and does not. Leases and status that
// fail are logged as errors, whatever its verbosity. One that does not run logs nothing, and one that has just started has had no time to fail.
func (f *Facts) apiQuiet() bool {
	if f.unheard() != nil || f.kubeletElsewhere() != "" || f.noKubeletSeen() || f.stoppedKubelet() != nil {
		return false
	}
	young := func(p host.Process) bool { return !p.Started.IsZero() && f.age(p) < apiFresh }
	return !slices.ContainsFunc(f.processes(host.RoleKubelet), young) && !f.fresh(f.lastOf(signature.APIServerFailed, signature.Unauthorized), apiFresh)
}

// timeOr is a time that may be missing.
func timeOr(t *time.Time, otherwise time.Time) time.Time {
	if t == nil {
		return otherwise
	}
	return *t
}

// apiWhy says in a few words how a call to the API server failed.
func apiWhy(record string) string {
	for _, known := range []struct{ phrase, why string }{
		{"certificate has expired", "a certificate has expired"},
		{"x509", "certificates do not match"},
		{"unauthorized", "it does not accept the kubelet's credentials"},
		{"forbidden", "the kubelet may not do it"},
		{"no such host", "its name does not resolve"},
		{"connection refused", "connection refused"},
		{"no route to host", "no route to host"},
		{"network is unreachable", "the network is unreachable"},
		{"tls handshake timeout", "the TLS handshake does not end"},
		{"i/o timeout", "no answer in time"},
		{"client.timeout", "no answer in time"},
		{"deadline exceeded", "no answer in time"},
		{"eof", "the connection breaks off"},
		{"connection reset", "the connection breaks off"},
	} {
		if strings.Contains(strings.ToLower(record), known.phrase) {
			return known.why
		}
	}
	return ""
}

// apiServer returns host and port of the API server, safe to paste, as the kubeconfig names it now, else as the log does, which may tell of
// an earlier one; empty when neither does.
func (f *Facts) apiServer() string {
	names := []string{f.seen().Server.Value.URL}
	for _, code := range []string{signature.APIServerFailed, signature.Unauthorized} {
		if c := f.logged(code); c != nil {
			names = append(names, c.Example)
		}
	}
	for _, name := range names {
		if m := serverInRecord.FindStringSubmatch(name); m != nil && !strings.HasPrefix(m[1], "-") {
			return m[1] + ":" + m[2]
		}
	}
	return ""
}

func (f *Facts) stepsWhenUnreachable(server string) []NextStep {
	var s steps
	if server != "" {
		s.add(TouchesNothing, "curl -sk --max-time 5 -w '%{http_code}\\n' https://"+server+"/healthz", "Is the way free? ok, or 401 or 403, says yes.")
		switch name, _, _ := strings.Cut(server, ":"); {
		case !safe(name):
		case net.ParseIP(name) != nil:
			s.add(TouchesNothing, "ip route get "+name, "Over which interface does the way go?")
		default:
			s.add(TouchesNothing, "getent hosts "+name, "Does its name resolve?")
		}
	}
	s.add(TouchesNothing, f.kubeletLog()+" | grep -E 'node status|lease|x509|Unauthorized' | tail -n 20", "How exactly do the calls fail, and since when?")
	s.add(TouchesNothing, "openssl x509 -noout -subject -enddate -in /var/lib/kubelet/pki/kubelet-client-current.pem", "Has the kubelet's client certificate expired?")
	s.add(TouchesNothing, `kubectl get lease -n kube-node-lease "$(hostname)" -o yaml`, "From a machine that reaches the API server: when was the lease renewed last? Are other nodes Unknown too?")
	s.add(TouchesKubelet, "systemctl restart "+f.kubeletUnit(), "Only if the way is free and the calls still fail: it drops a dead connection and reads its credentials anew.")
	return s.done()
}
