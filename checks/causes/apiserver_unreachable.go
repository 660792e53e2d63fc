package causes

import (
	"cmp"
	"fmt"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// serverInRecord finds the API server in a record of its client.
var serverInRecord = regexp.MustCompile(`https://([A-Za-z0-9.-]{1,253}|\[[0-9a-fA-F:]{2,39}\]):(\d{1,5})\b`)

// APIServerUnreachable is the code of this cause.
const APIServerUnreachable = "APIServerUnreachable"

var apiserverUnreachable = Definition{
	Code:   APIServerUnreachable,
	Claims: []string{"kubelet.apiserver"},
	Roots: []Root{
		{Code: KubeletDown, When: serverNotAway},
		{Code: KubeletCrashLooping, When: reachedBetweenLives},
		{Code: KubeletStalled, When: nobodyRenewsLease},
		{Code: CertificateExpired, When: clientRefused},
		{Code: FilesExhausted, When: kubeletOutOfFiles},
		{Code: ClockJumped, When: serverCertificateRefused},
	},
	Recognise: recogniseAPIServerUnreachable,
}

func recogniseAPIServerUnreachable(f *facts.Facts) *Finding {
	if f.Target.Simulated {
		return nil
	}
	s, ok := f.Log.APIOutage, f.Log.APIOut
	if !ok {
		return apiServerSeen(f)
	}
	var e checks.Evidence
	example := facts.FirstExample(f, signature.APIServerFailed, signature.Unauthorized)
	why := ""
	for _, code := range []string{signature.Unauthorized, signature.APIServerFailed} {
		if c := facts.Logged(f, code); c != nil {
			why = apiWhy(c.Example)
		}
	}
	Addf(&e.For, "%s of the kubelet towards the API server %s, the last at %s", units.Count(int(s.Records), "failing call"), facts.SinceText(f, s.From), facts.ClockText(f, s.To))
	if example != "" {
		Addf(&e.For, "in its words: %s", example)
	}
	step := checks.Strong
	if facts.ContainsAny(example, []string{"node status", "lease"}) {
		step = checks.Certain
		Addf(&e.For, "lease or node status are among them: after %s the control plane calls the node Unknown (NodeStatusUnknown)", units.Duration(facts.LeaseGrace))
	} else {
		Addf(&e.Missing, "whether lease and node status are among the calls that fail: the first record is of another")
	}
	if c := facts.Logged(f, signature.CertificateExpired); c != nil {
		why = "a certificate has expired"
		Addf(&e.For, "certificates: %s", facts.Quote(f, c.Example))
	} else if c := facts.Logged(f, signature.Unauthorized); c != nil && facts.Fresh(f, c.Last, facts.APIFresh) {
		why = "it does not accept the kubelet's credentials"
		Addf(&e.For, "the API server answers Unauthorized, last at %s%s: it is reached, and refuses", facts.ClockText(f, facts.TimeOr(c.Last, s.To)), Often(c.Count))
	}
	if f.Calls.Connected && f.Calls.BothLists {
		Addf(&e.For, "the runtime answers: this is not PLEG")
	}
	why = cmp.Or(why, serverEvidence(f, &e))
	c := newFinding(checks.Critical, step, fmt.Sprintf("the kubelet has not reached the API server %s: %s", facts.SinceText(f, s.From), cmp.Or(why, "its calls fail")), e)
	c.Subject = facts.KubeletSubject(f)
	c.Advise = func(string) []checks.NextStep { return stepsWhenUnreachable(f, apiServer(f)) }
	return c
}

// serverEvidence adds what kdiag itself saw of the API server, and returns in a few words what is wrong with the way to it.
func serverEvidence(f *facts.Facts, e *checks.Evidence) string {
	look := f.Seen.Server
	s := look.Value
	if !look.OK {
		line := "the API server itself was not asked"
		if look.Missing != "" {
			line += ": " + facts.Clean(look.Missing)
		}
		e.Missing = append(e.Missing, line)
		return ""
	}
	if s.LeaseRead {
		Addf(&e.For, "the node's lease was renewed %s ago; the kubelet renews it every 10 s", units.Duration(s.LeaseAge))
	}
	if d := s.Skew.Abs(); s.SkewKnown && d > time.Minute {
		Addf(&e.For, "the API server's clock differs by %s: certificates and tokens may be invalid for one of the two", units.Duration(d))
	}
	switch {
	case s.TLSError != "":
		Addf(&e.For, "%s: %s", facts.Clean(s.URL), facts.Clean(s.TLSError))
		return "its certificate does not hold"
	case !s.Reachable:
		Addf(&e.For, "kdiag does not reach %s: %s", facts.Clean(s.URL), facts.Clean(s.Err))
		return cmp.Or(apiWhy(s.Err), "kdiag does not reach it")
	case s.Status >= 500:
		Addf(&e.For, "kdiag reaches %s, which answers %d: it is not ready", facts.Clean(s.URL), s.Status)
		return "it is not ready"
	}
	Addf(&e.For, "kdiag reaches %s in %s (HTTP %d): the way is free", facts.Clean(s.URL), units.Duration(s.Took), s.Status)
	return "the way is free, and the kubelet does not use it"
}

// apiServerSeen is the cause as kdiag sees it itself, where the log tells of no outage: the API server cannot be reached, or is reached
// and has no fresh lease of this node.
func apiServerSeen(f *facts.Facts) *Finding {
	look := f.Seen.Server
	s := look.Value
	away := look.OK && !s.Reachable && (s.Err != "" || s.TLSError != "")
	if !away && !f.Agent.LeaseStale {
		return nil
	}
	var e checks.Evidence
	severity, step := checks.Critical, checks.Strong
	why := serverEvidence(f, &e)
	summary := "the API server of this node cannot be reached: " + why
	if !away {
		step = checks.Certain
		summary = fmt.Sprintf("the kubelet has not renewed the node's lease for %s: %s", units.Duration(s.LeaseAge), why)
	} else if f.Agent.APIQuiet {
		severity, step = checks.Warning, checks.Fair
		Addf(&e.Against, "the kubelet's log tells of no failing call towards the API server, and it logs each lease and status that fails: it may go through a proxy that only its own environment names (HTTPS_PROXY)")
	}
	missingJournal(f, &e)
	c := newFinding(severity, step, summary, e)
	c.Subject = facts.KubeletSubject(f)
	c.Advise = func(string) []checks.NextStep { return stepsWhenUnreachable(f, apiServer(f)) }
	return c
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
func apiServer(f *facts.Facts) string {
	names := []string{f.Seen.Server.Value.URL}
	for _, code := range []string{signature.APIServerFailed, signature.Unauthorized} {
		if c := facts.Logged(f, code); c != nil {
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

func stepsWhenUnreachable(f *facts.Facts, server string) []checks.NextStep {
	var s Steps
	if server != "" {
		s.Add(checks.TouchesNothing, "curl -sk --max-time 5 -w '%{http_code}\\n' https://"+server+"/healthz", "Is the way free? ok, or 401 or 403, says yes.")
		switch name, _, _ := strings.Cut(server, ":"); {
		case !facts.Safe(name):
		case net.ParseIP(name) != nil:
			s.Add(checks.TouchesNothing, "ip route get "+name, "Over which interface does the way go?")
		default:
			s.Add(checks.TouchesNothing, "getent hosts "+name, "Does its name resolve?")
		}
	}
	s.Add(checks.TouchesNothing, facts.KubeletLog(f)+" | grep -E 'node status|lease|x509|Unauthorized' | tail -n 20", "How exactly do the calls fail, and since when?")
	s.Add(checks.TouchesNothing, "openssl x509 -noout -subject -enddate -in /var/lib/kubelet/pki/kubelet-client-current.pem", "Has the kubelet's client certificate expired?")
	s.Add(checks.TouchesNothing, `kubectl get lease -n kube-node-lease "$(hostname)" -o yaml`, "From a machine that reaches the API server: when was the lease renewed last? Are other nodes Unknown too?")
	s.Add(checks.TouchesKubelet, "systemctl restart "+f.Target.KubeletUnit, "Only if the way is free and the calls still fail: it drops a dead connection and reads its credentials anew.")
	return s.Done()
}
