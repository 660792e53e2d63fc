package judge

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/journal/signature"
)

func journalKubelet() Check {
	return Check{
		ID:    "journal.kubelet",
		Title: "the kubelet stays up",
		Text: "Counts the restarts of the kubelet's unit that nobody asked for, its fatal errors and the watchdog's kills in the last 20 minutes. Three are a loop; one is a warning. " +
			"Restarts by a person are not counted.",
		read: readJournalKubelet,
	}
}

func readJournalKubelet(f *facts.Facts) checks.Result {
	if r := unheard(f); r != nil {
		return *r
	}
	r := f.Log.Restarts
	switch c := causes.RecogniseKubeletCrashLooping(f); {
	case c != nil && c.Severity == checks.Critical:
		return result(checks.StatusCritical, "%s", c.Summary)
	case c != nil:
		return result(checks.StatusWarning, "%s", c.Summary)
	case r.Count > 0:
		return result(checks.StatusWarning, "%s", r.Line)
	}
	if c := facts.Logged(f, signature.WatchdogWithheld); c != nil {
		return result(checks.StatusWarning, "the kubelet withheld its watchdog's signal%s: its loop stood still, and systemd will kill it", causes.Often(c.Count))
	}
	return nothingOf(f, "no restart, fatal error or watchdog kill")
}
