package judge

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/units"
)

func journalKernel() Check {
	return Check{
		ID:    "journal.kernel",
		Title: "the kernel reports no hung task, lockup or kill for memory",
		Text: "Reads the kernel's lines of the last 20 minutes: hung tasks, soft lockups, RCU stalls, and the OOM killer. They depend on nothing else on the node, so they come first when they " +
			"are there. A container that is killed at its own limit is not counted.",
		read: readJournalKernel,
	}
}

func readJournalKernel(f *facts.Facts) checks.Result {
	if r := unheard(f); r != nil {
		return *r
	}
	hung, oom := causes.RecogniseKernelHung(f), causes.RecogniseOOMKilled(f)
	worst := hung
	if worst == nil || oom != nil && oom.Severity == checks.Critical && worst.Severity != checks.Critical {
		worst = oom
	}
	switch {
	case worst == nil && f.Log.OOMKills > 0:
		return result(checks.StatusOK, "%s of a container at its own limit, nothing else in the last %s", units.Count(f.Log.OOMKills, "kill"), units.Duration(f.Log.Window))
	case worst == nil:
		return result(checks.StatusOK, "nothing of the kind in the last %s", units.Duration(f.Log.Window))
	case worst.Severity == checks.Critical:
		return result(checks.StatusCritical, "%s", worst.Summary)
	}
	return result(checks.StatusWarning, "%s", worst.Summary)
}
