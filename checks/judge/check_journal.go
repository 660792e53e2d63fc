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
			Text: "Reads the kubelet's records of the last 20 minutes: while PLEG is unhealthy it writes one every " +
				"five seconds. An incident that is over is a warning: the node flaps. " +
				"The first lines of a kubelet that has just started are no incident.",
			read: withJournal(readJournalPLEG),
		},
		{
			ID:    "journal.kubelet",
			Title: "the kubelet stays up",
			Text: "Counts the restarts of the kubelet's unit that nobody asked for, its fatal errors and the " +
				"watchdog's kills in the last 20 minutes. Three are a loop; one is a warning.",
			read: withJournal(readJournalKubelet),
		},
		{
			ID:    "journal.apiserver",
			Title: "the kubelet reaches the API server",
			Text: "Reads how the kubelet's calls to the API server went. Failures for 40 s (50 s since Kubernetes " +
				"1.32) and more that go on make the node Unknown; those that are over are a warning.",
			read: withJournal(readJournalAPIServer),
		},
		{
			ID:    "journal.kernel",
			Title: "the kernel reports no hung task, lockup or kill for memory",
			Text: "Reads the kernel's lines of the last 20 minutes: hung tasks, soft lockups, RCU stalls, and the " +
				"OOM killer. A container that is killed at its own limit is not counted.",
			read: withJournal(readJournalKernel),
		},
	}
}

// withJournal returns a check that needs the journal.
func withJournal(read func(*facts.Facts) checks.Result) func(*facts.Facts) checks.Result {
	return func(f *facts.Facts) checks.Result {
		if status, why := facts.LogUnread(f); status != "" {
			return result(status, "%s", why)
		}
		return read(f)
	}
}

// nothingOf is the result when the journal has nothing bad to say about the kubelet: a kubelet that does not log
// there is not known to be well.
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
	if line := facts.PLEGLine(f); line != "" { // of another runtime than the one that was asked
		return result(checks.StatusWarning, "%s", line)
	}
	return nothingOf(f, "no word of PLEG being unhealthy")
}

func readJournalKubelet(f *facts.Facts) checks.Result {
	r := f.Log.Restarts
	if r.Count > 0 {
		return result(checks.StatusWarning, "%s", r.Line)
	}
	if c := facts.Logged(f, signature.WatchdogWithheld); c != nil {
		return result(checks.StatusWarning,
			"the kubelet withheld its watchdog's signal%s: its loop stood still, and systemd will kill it", causes.Often(c.Count))
	}
	return nothingOf(f, "no restart, fatal error or watchdog kill")
}

func readJournalAPIServer(f *facts.Facts) checks.Result {
	if s, ok := f.Log.APIOutage, f.Log.APIOut; ok {
		return result(checks.StatusCritical, "the kubelet has not reached it %s: %s", facts.SinceText(f, s.From),
			facts.FirstExample(f, signature.APIServerFailed, signature.Unauthorized))
	}
	if c := facts.Logged(f, signature.CertificateExpired); c != nil {
		return result(checks.StatusWarning, "certificates: %s", facts.Quote(f, c.Example))
	}
	for _, code := range []string{signature.APIServerFailed, signature.Unauthorized} {
		if c := facts.Logged(f, code); c != nil && c.Last != nil {
			return result(checks.StatusWarning, "%s failed, the last at %s: %s", units.Count(c.Count, "call"),
				facts.ClockText(f, *c.Last), facts.Quote(f, c.Example))
		}
	}
	return nothingOf(f, "no failing call to it")
}

func readJournalKernel(f *facts.Facts) checks.Result {
	if n := f.Log.OOMKills; n > 0 {
		return result(checks.StatusOK, "%s of a container at its own limit, nothing else in the last %s",
			units.Count(n, "kill"), units.Duration(f.Log.Window))
	}
	return result(checks.StatusOK, "nothing of the kind in the last %s", units.Duration(f.Log.Window))
}
