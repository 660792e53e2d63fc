package causes

import (
	"cmp"
	"net"
	"regexp"
	"strings"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// serverInRecord finds the API server in a record of its client.
var serverInRecord = regexp.MustCompile(`https://([A-Za-z0-9.-]{1,253}|\[[0-9a-fA-F:]{2,39}\]):(\d{1,5})\b`)

// APIServerUnreachable is the code of this cause.
const APIServerUnreachable = "APIServerUnreachable"

var apiserverUnreachable = cause(APIServerUnreachable, recogniseAPIServerUnreachable, nil, "kubelet.apiserver")

func recogniseAPIServerUnreachable(f *facts.Facts) *Finding {
	look := f.Seen.Server
	away := look.OK && !look.Value.Reachable && (look.Value.Err != "" || look.Value.TLSError != "")
	if f.Target.Simulated || !f.Log.APIOut && !away && !f.Agent.LeaseStale {
		return nil
	}
	var e checks.Evidence
	severity, step, summary, why := checks.Critical, checks.Strong, "", ""
	switch {
	case f.Log.APIOut:
		why = outageEvidence(f, &e)
		summary = "the kubelet has not reached the API server " + facts.SinceText(f, f.Log.APIOutage.From)
		if strings.Contains(e.For[0], "node status") || strings.Contains(e.For[0], "lease") {
			step = checks.Certain
		} else {
			Addf(&e.Missing, "whether lease and node status fail too: the first record is of another call")
		}
	case away:
		summary = "the API server of this node cannot be reached"
		addGaps(f, &e, gapJournal)
		if f.Agent.APIQuiet {
			severity, step = checks.Warning, checks.Fair
			Addf(&e.Against, "the kubelet logs no failing call: it may go through a proxy (HTTPS_PROXY)")
		}
	default:
		step = checks.Certain
		summary = "the kubelet has not renewed the node's lease for " + units.Duration(look.Value.LeaseAge)
		addGaps(f, &e, gapJournal)
	}
	seen := serverEvidence(f, &e)
	summary += ": " + cmp.Or(why, seen, "its calls fail")
	return newFinding(severity, step, summary, e, *facts.KubeletSubject(f)).advise(func(s *Steps, _ string) {
		if name, port := apiServer(f); name != "" {
			s.Look("curl -sk --max-time 5 https://"+name+":"+port+"/healthz", "Does it answer ok, 401 or 403?")
			if net.ParseIP(name) != nil {
				s.Look("ip route get "+name, "Over which interface does the way go?")
			} else if facts.Safe(name) {
				s.Look("getent hosts "+name, "Does its name resolve?")
			}
		}
		s.Look(facts.KubeletLog(f)+" | grep -E 'node status|lease|x509|Unauthorized' | tail", "How do they fail?")
		s.Look("openssl x509 -noout -enddate -in /var/lib/kubelet/pki/kubelet-client-current.pem", "Is it valid?")
		s.Look(`kubectl get lease -n kube-node-lease "$(hostname)" -o yaml`, "Is it renewed? Are others Unknown too?")
		s.restartKubelet(f, "Only if the way is free and the calls still fail: it drops a dead connection.")
	})
}

// outageEvidence adds how the kubelet's calls fail by its log, and returns why in a few words.
func outageEvidence(f *facts.Facts, e *checks.Evidence) string {
	s, example := f.Log.APIOutage, facts.FirstExample(f, signature.APIServerFailed, signature.Unauthorized)
	Addf(&e.For, "%s of the kubelet towards the API server %s, the last at %s: %s", units.Count(int(s.Records),
		"failing call"), facts.SinceText(f, s.From), facts.ClockText(f, s.To), example)
	if logEvidence(f, e, signature.CertificateExpired) {
		return "a certificate has expired"
	}
	if c := facts.Logged(f, signature.Unauthorized); c != nil && facts.Fresh(f, c.Last, facts.APIFresh) {
		return "it does not accept the kubelet's credentials"
	}
	return reasonIn(example)
}

// reasonIn is the end of an error, which names what failed: i/o timeout.
func reasonIn(err string) string {
	if i := strings.Index(err, "x509: "); i >= 0 {
		return facts.Clean(strings.TrimRight(err[i:], `\"`))
	}
	return facts.Clean(strings.Trim(err[strings.LastIndex(err, ": ")+1:], ` \"`))
}

// serverEvidence adds what kdiag itself saw of the API server, and returns in a few words what is wrong with the way
// to it.
func serverEvidence(f *facts.Facts, e *checks.Evidence) string {
	look := f.Seen.Server
	s := look.Value
	if !look.OK {
		Addf(&e.Missing, "the API server was not asked: %s", look.Why())
		return ""
	}
	addIf(s.LeaseRead, &e.For, "the node's lease was renewed %s ago; the kubelet renews it every 10 s", s.LeaseAge)
	url := facts.Clean(s.URL)
	switch {
	case s.TLSError != "":
		Addf(&e.For, "%s: %s", url, facts.Clean(s.TLSError))
		return "its certificate does not hold"
	case !s.Reachable:
		Addf(&e.For, "kdiag does not reach %s: %s", url, facts.Clean(s.Err))
		return cmp.Or(facts.Clean(s.Err), "kdiag does not reach it")
	case s.Status >= 500:
		Addf(&e.For, "kdiag reaches %s, which answers %d: it is not ready", url, s.Status)
		return "it is not ready"
	}
	Addf(&e.For, "kdiag reaches %s in %s (HTTP %d): the way is free", url, s.Took, s.Status)
	return "the way is free, and the kubelet does not use it"
}

// apiServer returns host and port of the API server, safe to paste, as the kubeconfig names it now, else as the log
// does, which may tell of an earlier one; empty when neither does.
func apiServer(f *facts.Facts) (host, port string) {
	names := []string{f.Seen.Server.Value.URL, facts.FirstExample(f, signature.APIServerFailed, signature.Unauthorized)}
	for _, name := range names {
		if m := serverInRecord.FindStringSubmatch(name); m != nil && !strings.HasPrefix(m[1], "-") {
			return m[1], m[2]
		}
	}
	return "", ""
}
