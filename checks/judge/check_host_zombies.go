package judge

import (
	"github.com/kdiag/kdiag/checks"
	"github.com/kdiag/kdiag/checks/facts"
	"github.com/kdiag/kdiag/checks/host"
	"github.com/kdiag/kdiag/checks/units"
)

func hostZombies() Check {
	return Check{
		ID:    "host.zombies",
		Title: "no process collects dead children",
		Text: "Counts zombies by their parent. Each takes a process id until its parent waits for it; a container whose first process does not wait fills the limit of its pod, and a shim or kubelet that does not wait fills the node's. " +
			"A thousand is a warning.",
		read: readHostZombies,
	}
}

func readHostZombies(f *facts.Facts) checks.Result {
	return readReading(f, func(n *facts.Node) facts.Reading[host.Tasks] { return n.Tasks }, func(t host.Tasks) checks.Result {
		if limit := f.Limits.Node.Zombies; limit > 0 && len(t.ZombiesByParent) > 0 && t.ZombiesByParent[0].Count >= limit {
			p := t.ZombiesByParent[0]
			return result(checks.StatusWarning, "%s (pid %d)%s does not wait for its children: %s", facts.Clean(p.Name), p.PID, facts.OwnerSuffix(f, p.Owner), units.Count(p.Count, "zombie"))
		}
		if len(t.ZombiesByParent) == 0 || t.Zombies == 0 {
			return result(checks.StatusOK, "no zombies")
		}
		p := t.ZombiesByParent[0]
		return result(checks.StatusOK, "%s, most under %s (pid %d)", units.Count(t.Zombies, "zombie"), facts.Clean(p.Name), p.PID)
	})
}
