package judge

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
)

func journalPLEG() Check {
	return Check{
		ID:    "journal.pleg",
		Title: "the kubelet does not say that PLEG is unhealthy",
		Text: "Reads the kubelet's own words of the last 20 minutes: while PLEG is unhealthy it says so every five seconds. An incident that is over is a warning: the node flaps. " +
			"The first lines of a kubelet that has just started are no incident.",
		read: readJournalPLEG,
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
	switch {
	case f.Log.PLEGNow != nil:
		return result(checks.StatusCritical, "%s", facts.PLEGLine(f))
	case len(f.Log.Incidents) > 0:
		return result(checks.StatusWarning, "%s", facts.PLEGLine(f))
	}
	return nothingOf(f, "no word of PLEG being unhealthy")
}
