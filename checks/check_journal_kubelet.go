package checks

import "github.com/kdiag/kdiag/journal/signature"

func journalKubelet() Check {
	return Check{
		ID:    "journal.kubelet",
		Title: "the kubelet stays up",
		Text: "Counts the restarts of the kubelet's unit that nobody asked for, its fatal errors and the watchdog's kills in the last 20 minutes. Three are a loop; one is a warning. " +
			"Restarts by a person are not counted.",
		read: readJournalKubelet,
	}
}

func readJournalKubelet(f *Facts) Result {
	if r := f.unheard(); r != nil {
		return *r
	}
	r := f.kubeletRestarts()
	switch c := recogniseKubeletCrashLooping(f); {
	case c != nil && c.Severity == Critical:
		return result(StatusCritical, "%s", c.Summary)
	case c != nil:
		return result(StatusWarning, "%s", c.Summary)
	case r.Count > 0:
		return result(StatusWarning, "%s", r.Line)
	}
	if c := f.logged(signature.WatchdogWithheld); c != nil {
		return result(StatusWarning, "the kubelet withheld its watchdog's signal%s: its loop stood still, and systemd will kill it", often(c.Count))
	}
	return f.nothingOf("no restart, fatal error or watchdog kill")
}
