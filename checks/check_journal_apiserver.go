package checks

import (
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

func readJournalAPIServer(f *Facts) Result {
	if r := f.unheard(); r != nil {
		return *r
	}
	if s, ok := f.apiOutage(); ok {
		return result(StatusCritical, "the kubelet has not reached it %s: %s", f.since(s.From), f.firstExample(signature.APIServerFailed, signature.Unauthorized))
	}
	if c := f.logged(signature.CertificateExpired); c != nil {
		return result(StatusWarning, "certificates: %s", f.quote(c.Example))
	}
	if last := f.lastOf(signature.APIServerFailed, signature.Unauthorized); last != nil {
		n := 0
		for _, s := range f.spells(apiFresh, signature.APIServerFailed, signature.Unauthorized) {
			n += int(s.Records)
		}
		return result(StatusWarning, "%s failed, the last at %s: %s", units.Count(n, "call"), f.clock(*last), f.firstExample(signature.APIServerFailed, signature.Unauthorized))
	}
	return f.nothingOf("no failing call to it")
}
