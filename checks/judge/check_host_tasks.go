package judge

import (
	"fmt"
	"slices"

	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/causes"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

func hostTasks() Check {
	return Check{
		ID:    "host.tasks",
		Title: "no task of a container or the runtime is stuck in the kernel",
		Text: "Looks twice for threads in uninterruptible sleep. In one look only they use a busy disk; in both, and in the same place, they are a warning; with a second witness (the kernel's report, a mount that does not answer, a hung " +
			"call about the same pod) they are stuck.",
		read: readHostTasks,
	}
}

func readHostTasks(f *facts.Facts) checks.Result {
	return readReading(f, func(n *facts.Node) facts.Reading[host.Tasks] { return n.Tasks }, func(t host.Tasks) checks.Result {
		if c := causes.RecogniseTaskStuck(f); c != nil {
			if c.Severity == checks.Critical {
				return result(checks.StatusCritical, "%s", c.Summary)
			}
			return result(checks.StatusWarning, "%s", c.Summary)
		}
		lasting := len(t.Blocked) + t.BlockedMore
		if i := slices.IndexFunc(t.Blocked, func(b host.BlockedTask) bool { return facts.IsOurs(b.Owner) }); i >= 0 {
			line := fmt.Sprintf("%s was in uninterruptible sleep in two looks", causes.TaskName(f, t.Blocked[i]))
			if at := facts.WaitsIn(t.Blocked[i]); at != "" {
				line += ", in " + at
			}
			return result(checks.StatusWarning, "%s; look again: a busy disk does so too", line)
		}
		if lasting > 0 {
			return result(checks.StatusOK, "%s, %s in uninterruptible sleep in two looks, none of a container or the runtime", units.Count(t.Threads, "thread"), units.Number(lasting))
		}
		return result(checks.StatusOK, "%s, none in uninterruptible sleep in two looks; %s in one", units.Count(t.Threads, "thread"), units.Number(t.BlockedMoments))
	})
}
