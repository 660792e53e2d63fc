package causes

import (
	"cmp"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/internal/lazyregexp"
	"github.com/kdiag/kdiag/journal/signature"
)

// serverInRecord finds the API server in a record of its client, with its port unless that is 443.
var serverInRecord = lazyregexp.New(`https://([A-Za-z0-9.-]{1,253}|\[[0-9a-fA-F:]{2,39}\])(?::(\d{1,5}))?\b`)

// APIServerUnreachable is the code of this cause.
const APIServerUnreachable = "APIServerUnreachable"

func recogniseAPIServerUnreachable(f *facts.Facts) *Finding {
	look := f.Seen.Server
	away := look.OK && !look.Value.Reachable && (look.Value.Err != "" || look.Value.TLSError != "")
	ready := look.Value.Node.Condition("Ready")
	unknown := ready != nil && ready.Status == "Unknown"
	gone := noNodeObject(f)
	if f.Target.Simulated || f.Log.APIOutage == nil && !away && !f.KubeletState.LeaseStale && !gone && !unknown {
		return nil
	}
	var e checks.Evidence
	severity, step, summary := checks.Critical, checks.Certain, ""
	why, seen := "", serverEvidence(f, &e)
	since := ""
	if f.Log.APIOutage != nil {
		since, why = " "+facts.SinceText(f, f.Log.APIOutage.From), outageEvidence(f, &e)
	} else {
		addGaps(f, &e, gapJournal)
	}
	failure, subject := f.Log.APIFailure, *facts.KubeletSubject(f)
	switch {
	case gone:
		subject = checks.Subject{Kind: "Node", Name: facts.NodeName(f)}
		summary = "the API server has no Node object for this node: " +
			"the kubelet cannot post its status until it restarts"
	case away && f.KubeletState.APIQuiet:
		severity, step, summary = checks.Warning, checks.Fair, "kdiag cannot reach the API server: "+seen
		Addf(&e.Against, "the kubelet logs no failing call: it may go through a proxy (HTTPS_PROXY)")
	case away:
		step = ifElse(f.Log.APIOutage != nil, checks.Certain, checks.Strong)
		summary = textf("the kubelet cannot reach the API server%s: %s", since, seen)
	case f.Log.APIOutage != nil && failure.Webhook != "":
		subject = checks.Subject{Kind: "Webhook", Name: failure.Webhook}
		summary = textf("the admission webhook %s fails and blocks the kubelet's lease or node status%s: %s",
			failure.Webhook, since, why)
	case f.Log.APIOutage != nil && failure.Answered:
		summary = textf("the API server rejects the kubelet's lease or node status%s: %s", since, why)
	case f.Log.APIOutage != nil && look.OK: // which kdiag reaches
		summary = textf("the kubelet's calls to the API server fail%s (%s): %s", since, why, seen)
	case f.Log.APIOutage != nil:
		summary = textf("the kubelet cannot reach the API server%s: %s", since, cmp.Or(why, "its calls fail"))
		if !facts.Says(failure.Record, "node status", "lease") {
			step = checks.Strong
			Addf(&e.Missing, "whether lease and node status fail too: the last record is of another call")
		}
	case f.KubeletState.LeaseStale:
		summary = textf("the kubelet has not renewed the node's lease for %s; the API server: %s",
			look.Value.LeaseAge, seen)
	default:
		step = checks.Strong
		summary = textf("the node is Unknown to the control plane since %s: the kubelet has not posted its status",
			facts.MomentText(f, ready.LastTransitionTime))
	}
	return newFinding(severity, step, summary, e, subject).affects(
		textf("Kubernetes <= 1.31: the node turns Unknown %s after the last renewal of its lease", facts.LeaseLate),
		textf(">= 1.32: after %s; 5m later its pods are evicted", facts.LeaseGrace),
	).advise(func(s *Steps, _ string) { adviseAPIServer(f, s, gone) })
}

// noNodeObject reports whether the node's object is missing. A kubelet that has just started is about to make it.
func noNodeObject(f *facts.Facts) bool {
	const registers = 20 * time.Second // tried every 7 s at most (tryRegisterWithAPIServer)
	young := func(p host.Process) bool { return !p.Started.IsZero() && facts.AgeOf(f, p) < registers }
	s := f.Seen.Server.Value
	return s.NodeGone && !slices.ContainsFunc(facts.ProcessesOf(f, host.RoleKubelet), young) ||
		s.Node == nil && f.Log.APIOutage != nil && f.Log.APIFailure.NoNode && s.TLSError == "" && s.Err == ""
}

func adviseAPIServer(f *facts.Facts, s *Steps, gone bool) {
	name, port := apiServer(f)
	seen, log := f.Seen.Server.Value, KubeletLog(f)+" | grep -E 'node status|lease|x509|Unauthorized' | tail"
	webhook := f.Log.APIFailure.Webhook
	refused := f.Log.APIOutage != nil && webhook != "" && seen.Err == "" && seen.TLSError == ""
	switch {
	case gone:
		s.Look(`kubectl get node "$(hostname)"`, "Check that the Node object is missing, and find out who deleted it.")
	case refused:
		s.lookIf(facts.Safe(webhook), "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations -o "+
			"yaml | grep -B 30 "+webhook, "Find the webhook's service; exempt leases and nodes from its rules.")
	case name == "":
	case seen.TLSError != "":
		s.Look("openssl s_client -connect "+name+":"+port+" </dev/null 2>/dev/null | openssl x509 -noout -subject "+
			"-issuer -dates", "Read which certificate the API server has, and who signed it.")
	default:
		s.lookIf(net.ParseIP(name) == nil && facts.Safe(name), "getent hosts "+name+" || echo it does not resolve",
			"Check whether its name resolves.")
		s.Look("curl -skS --max-time 5 https://"+name+":"+port+"/healthz", "Check that it answers: ok, 401 or 403.")
		s.lookIf(net.ParseIP(name) != nil, "ip route get "+name, "Check the route to it.")
	}
	s.Look(log, "Read how the kubelet's calls fail.")
	if gone {
		s.restartKubelet(f, "Registers the node again: a running kubelet does not. Running containers go on.")
	} else if !refused {
		s.Look("openssl x509 -noout -enddate -in /var/lib/kubelet/pki/kubelet-client-current.pem",
			"Check that the kubelet's client certificate is valid.")
		s.Look(`kubectl get lease -n kube-node-lease "$(hostname)" -o yaml`, "Check whether the lease is renewed.")
		s.restartKubelet(f, "Only if the API server answers and the calls still fail: drops a dead connection.")
	}
}

// outageEvidence adds the failing calls of the kubelet's log, and returns their reason in a few words.
func outageEvidence(f *facts.Facts, e *checks.Evidence) string {
	s, record := f.Log.APIOutage, f.Log.APIFailure.Record
	Addf(&e.For, "%s of the kubelet to the API server %s, the last at %s: %s", units.Count(int(s.Records),
		"failed call"), facts.SinceText(f, s.From), facts.ClockText(f, s.To), Quote(record))
	if c := facts.Logged(f, signature.CertificateExpired); c != nil && facts.Fresh(f, c.Last, facts.APIFresh) {
		logEvidence(f, e, signature.CertificateExpired)
		return "a certificate has expired"
	}
	if strings.Contains(record, "Unauthorized") {
		return "it rejects the kubelet's credentials"
	}
	return reasonIn(record)
}

// reasonIn returns the end of a record's error, which names the failure: i/o timeout.
func reasonIn(record string) string {
	err := facts.ErrorWords(record)
	if i := strings.Index(err, "x509: "); i >= 0 {
		return facts.Clean(err[i:])
	}
	return facts.Clean(strings.Trim(err[strings.LastIndex(err, ": ")+1:], ` "`))
}

// serverEvidence adds kdiag's own reading of the API server, and returns its problem in a few words.
func serverEvidence(f *facts.Facts, e *checks.Evidence) string {
	look := f.Seen.Server
	s := look.Value
	if !look.OK {
		Addf(&e.Missing, "the API server was not asked: %s", look.Why())
		return ""
	}
	addIf(s.LeaseRead, &e.For, "the node's lease was renewed %s ago; the kubelet renews it every 10s", s.LeaseAge)
	url := facts.Clean(s.URL)
	switch {
	case !s.Reachable:
		why := facts.Clean(s.TLSError + s.Err)
		Addf(&e.For, "kdiag cannot reach %s: %s", url, why)
		return why
	case s.Status >= 500:
		Addf(&e.For, "%s answers kdiag with HTTP %d: it is not ready", url, s.Status)
		return "it is not ready"
	}
	Addf(&e.For, "%s answers kdiag in %s (HTTP %d)", url, s.Took, s.Status)
	notReady := NotReadyLine(f)
	addIf(notReady != "", &e.For, "%s", notReady)
	addIf(s.NodeGone, &e.For, "it answers 404 for this node")
	return "it answers kdiag"
}

// apiServer returns host and port of the API server, safe to paste, as the kubeconfig names it now, else as the log
// does, which may name an earlier one; empty when neither does.
func apiServer(f *facts.Facts) (host, port string) {
	for _, name := range []string{f.Seen.Server.Value.URL, f.Log.APIFailure.Record} {
		if m := serverInRecord.FindStringSubmatch(name); m != nil && !strings.HasPrefix(m[1], "-") {
			return m[1], cmp.Or(m[2], "443")
		}
	}
	return "", ""
}

// NotReadyLine is a sentence on the node object's Ready condition; empty where that is True or was not read.
func NotReadyLine(f *facts.Facts) string {
	c := f.Seen.Server.Value.Node.Condition("Ready")
	if c == nil || c.Status == "True" {
		return ""
	}
	return textf("the Node object is NotReady (%s) since %s: %s: %s", facts.Clean(c.Status),
		facts.MomentText(f, c.LastTransitionTime),
		facts.Clean(c.Reason), facts.Clean(c.Message))
}
