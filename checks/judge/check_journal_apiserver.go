package judge

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

func journalAPIServer() Check {
	return Check{
		ID:    "journal.apiserver",
		Title: "the kubelet reaches the API server",
		Text: "Reads how the kubelet's calls to the API server went: lease and node status above all. Failures for 40 s (50 s since Kubernetes 1.32) and more that go on make the node Unknown; those that are over are a " +
			"warning. This check reads the log only.",
		read: readJournalAPIServer,
	}
}

func readJournalAPIServer(f *facts.Facts) checks.Result {
	if r := unheard(f); r != nil {
		return *r
	}
	if s, ok := f.Log.APIOutage, f.Log.APIOut; ok {
		return result(checks.StatusCritical, "the kubelet has not reached it %s: %s", facts.SinceText(f, s.From), facts.FirstExample(f, signature.APIServerFailed, signature.Unauthorized))
	}
	if c := facts.Logged(f, signature.CertificateExpired); c != nil {
		return result(checks.StatusWarning, "certificates: %s", facts.Quote(f, c.Example))
	}
	if last := facts.LastOf(f, signature.APIServerFailed, signature.Unauthorized); last != nil {
		n := 0
		for _, s := range facts.Spells(f, facts.APIFresh, signature.APIServerFailed, signature.Unauthorized) {
			n += int(s.Records)
		}
		return result(checks.StatusWarning, "%s failed, the last at %s: %s", units.Count(n, "call"), facts.ClockText(f, *last), facts.FirstExample(f, signature.APIServerFailed, signature.Unauthorized))
	}
	return nothingOf(f, "no failing call to it")
}
