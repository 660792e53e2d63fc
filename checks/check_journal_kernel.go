package checks

import "github.com/kdiag/kdiag/checks/units"

func journalKernel() Check {
	return Check{
		ID:    "journal.kernel",
		Title: "the kernel reports no hung task, lockup or kill for memory",
		Text: "Reads the kernel's lines of the last 20 minutes: hung tasks, soft lockups, RCU stalls, and the OOM killer. They depend on nothing else on the node, so they come first when they " +
			"are there. A container that is killed at its own limit is not counted.",
		read: readJournalKernel,
	}
}

func readJournalKernel(f *Facts) Result {
	if r := f.unheard(); r != nil {
		return *r
	}
	hung, oom := recogniseKernelHung(f), recogniseOOMKilled(f)
	worst := hung
	if worst == nil || oom != nil && oom.Severity == Critical && worst.Severity != Critical {
		worst = oom
	}
	switch {
	case worst == nil && f.oomKills() > 0:
		return result(StatusOK, "%s of a container at its own limit, nothing else in the last %s", units.Count(f.oomKills(), "kill"), units.Duration(f.journalWindow()))
	case worst == nil:
		return result(StatusOK, "nothing of the kind in the last %s", units.Duration(f.journalWindow()))
	case worst.Severity == Critical:
		return result(StatusCritical, "%s", worst.Summary)
	}
	return result(StatusWarning, "%s", worst.Summary)
}
