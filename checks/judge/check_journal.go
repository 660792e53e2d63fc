package judge

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal/signature"
)

// journalChecks are the checks of the logs of the node.
func journalChecks() []Check {
	return []Check{
		{
			ID:    "journal.pleg",
			Title: "the kubelet does not say that PLEG is unhealthy",
			Text: "Reads the kubelet's own words of the last 20 minutes: while PLEG is unhealthy it says so every five seconds. An incident that is over is a warning: the node flaps. " +
				"The first lines of a kubelet that has just started are no incident.",
			read: readJournalPLEG,
		},
		{
			ID:    "journal.kubelet",
			Title: "the kubelet stays up",
			Text: "Counts the restarts of the kubelet's unit that nobody asked for, its fatal errors and the watchdog's kills in the last 20 minutes. Three are a loop; one is a warning. " +
				"Restarts by a person are not counted.",
			read: readJournalKubelet,
		},
		{
			ID:    "journal.apiserver",
			Title: "the kubelet reaches the API server",
			Text: "Reads how the kubelet's calls to the API server went: lease and node status above all. Failures for 40 s (50 s since Kubernetes 1.32) and more that go on make the node Unknown; those that are over are a " +
				"warning. This check reads the log only.",
			read: readJournalAPIServer,
		},
		{
			ID:    "journal.kernel",
			Title: "the kernel reports no hung task, lockup or kill for memory",
			Text: "Reads the kernel's lines of the last 20 minutes: hung tasks, soft lockups, RCU stalls, and the OOM killer. They depend on nothing else on the node, so they come first when they " +
				"are there. A container that is killed at its own limit is not counted.",
			read: readJournalKernel,
		},
	}
}

// unheard is the result of a check that needs the journal when there is none; nil when it was read.
func unheard(f *facts.Facts) *checks.Result {
	status, why := facts.LogUnread(f)
	if status == "" {
		return nil
	}
	return new(result(status, "%s", why))
}

// nothingOf is the result when the journal has nothing bad to say about the kubelet: a kubelet that does not log there is
// not known to be well.
func nothingOf(f *facts.Facts, good string) checks.Result {
	if !facts.KubeletLogs(f) && f.Kubelet == nil {
		return result(checks.StatusSkipped, "no kubelet speaks in the journal, and none was seen on this host")
	}
	if why := f.Log.KubeletElsewhere; why != "" {
		return result(checks.StatusUnknown, "nothing of the kubelet's was read: %s", why)
	}
	return result(checks.StatusOK, "%s in the last %s", good, units.Duration(f.Log.Window))
}

func readJournalPLEG(f *facts.Facts) checks.Result {
	if r := unheard(f); r != nil {
		return *r
	}
	if line := facts.PLEGLine(f); line != "" { // of another runtime than the one that was asked
		return result(checks.StatusWarning, "%s", line)
	}
	return nothingOf(f, "no word of PLEG being unhealthy")
}

func readJournalKubelet(f *facts.Facts) checks.Result {
	if r := unheard(f); r != nil {
		return *r
	}
	r := f.Log.Restarts
	if r.Count > 0 {
		return result(checks.StatusWarning, "%s", r.Line)
	}
	if c := facts.Logged(f, signature.WatchdogWithheld); c != nil {
		return result(checks.StatusWarning, "the kubelet withheld its watchdog's signal%s: its loop stood still, and systemd will kill it", causes.Often(c.Count))
	}
	return nothingOf(f, "no restart, fatal error or watchdog kill")
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

func readJournalKernel(f *facts.Facts) checks.Result {
	if r := unheard(f); r != nil {
		return *r
	}
	if n := f.Log.OOMKills; n > 0 {
		return result(checks.StatusOK, "%s of a container at its own limit, nothing else in the last %s", units.Count(n, "kill"), units.Duration(f.Log.Window))
	}
	return result(checks.StatusOK, "nothing of the kind in the last %s", units.Duration(f.Log.Window))
}
