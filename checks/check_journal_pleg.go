package checks

import (
	"slices"
	"strings"

	"github.com/kdiag/kdiag/checks/units"
	"github.com/kdiag/kdiag/journal"
	"github.com/kdiag/kdiag/journal/signature"
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
func (f *Facts) unheard() *Result {
	var r Result
	switch {
	case f.simulated():
		r = result(StatusSkipped, "the runtime is simulated: the node's journal is not about it")
	case f.Journal == nil && f.JournalProblem != "":
		r = result(StatusUnknown, "the journal was not read: %s", clean(f.JournalProblem))
	case f.Journal == nil:
		r = result(StatusSkipped, "the journal was not looked at")
	case f.Journal.Lines == 0 && len(f.Journal.Signatures) == 0:
		r = result(StatusUnknown, "the journal holds nothing of the last %s", units.Duration(f.journalWindow()))
	default:
		return nil
	}
	return &r
}

// kubeletLogs reports whether the journal holds anything of a kubelet.
func (f *Facts) kubeletLogs() bool {
	for _, c := range f.Journal.Signatures {
		if c.Lane == string(signature.Kubelet) && c.Count > 0 {
			return true
		}
	}
	return len(f.Journal.Episodes) > 0
}

// ownLog is the file in which RKE2 has its kubelet log, and nowhere else.
const ownLog = "/var/lib/rancher/rke2/agent/logs/kubelet.log"

// kubeletElsewhere says why the kubelet's silence in what was read means nothing: it logs elsewhere. Empty where its log was read, as far as
// can be told.
func (f *Facts) kubeletElsewhere() string {
	if f.kubeletLogs() {
		return ""
	}
	only := func(is func(journal.Source) bool) bool {
		return len(f.Journal.Sources) > 0 && !slices.ContainsFunc(f.Journal.Sources, func(s journal.Source) bool { return !is(s) })
	}
	switch {
	case only(func(s journal.Source) bool { return s.Format == "kmsg" || s.Problem != "" }):
		return "only the kernel's log was read"
	case strings.HasPrefix(f.kubeletUnit(), "rke2-") && only(func(s journal.Source) bool { return !strings.HasSuffix(s.Name, ownLog) || s.Problem != "" }):
		return "RKE2's kubelet logs into " + ownLog + ", which was not read"
	}
	return ""
}

// nothingOf is the result when the journal has nothing bad to say about the kubelet: a kubelet that does not log there is
// not known to be well.
func (f *Facts) nothingOf(good string) Result {
	if !f.kubeletLogs() && f.Kubelet == nil {
		return result(StatusSkipped, "no kubelet speaks in the journal, and none was seen on this host")
	}
	if why := f.kubeletElsewhere(); why != "" {
		return result(StatusUnknown, "nothing of the kubelet's was read: %s", why)
	}
	return result(StatusOK, "%s in the last %s", good, units.Duration(f.journalWindow()))
}

func readJournalPLEG(f *Facts) Result {
	if r := f.unheard(); r != nil {
		return *r
	}
	switch {
	case f.plegNow() != nil:
		return result(StatusCritical, "%s", f.plegLine())
	case len(f.incidents()) > 0:
		return result(StatusWarning, "%s", f.plegLine())
	}
	return f.nothingOf("no word of PLEG being unhealthy")
}
