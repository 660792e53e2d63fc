package checks

import (
	"fmt"
	"slices"

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

func readHostTasks(f *Facts) Result {
	return readLook(f, func(n *Node) Look[host.Tasks] { return n.Tasks }, func(t host.Tasks) Result {
		if c := recogniseTaskStuck(f); c != nil {
			if c.Severity == Critical {
				return result(StatusCritical, "%s", c.Summary)
			}
			return result(StatusWarning, "%s", c.Summary)
		}
		lasting := len(t.Blocked) + t.BlockedMore
		if i := slices.IndexFunc(t.Blocked, func(b host.BlockedTask) bool { return isOurs(b.Owner) }); i >= 0 {
			line := fmt.Sprintf("%s was in uninterruptible sleep in two looks", f.taskName(t.Blocked[i]))
			if at := where(t.Blocked[i]); at != "" {
				line += ", in " + at
			}
			return result(StatusWarning, "%s; look again: a busy disk does so too", line)
		}
		if lasting > 0 {
			return result(StatusOK, "%s, %s in uninterruptible sleep in two looks, none of a container or the runtime", units.Count(t.Threads, "thread"), units.Number(lasting))
		}
		return result(StatusOK, "%s, none in uninterruptible sleep in two looks; %s in one", units.Count(t.Threads, "thread"), units.Number(t.BlockedMoments))
	})
}
